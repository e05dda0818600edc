"""The Thrift server: listens and tracks open connections. No decisions."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import structlog

from broker_core.clock import now_ns
from broker_core.connection_counts import ConnectionCounts
from broker_core.stop_accepting import stop_accepting
from broker_core.time_slices import TimeSlices
from proxy.core.group.token_bucket import SECOND
from proxy.downstream.port.connection import Connection, Entry
from proxy.downstream.port.elements.budget import TooManyElements
from proxy.downstream.port.frames import Call
from proxy.downstream.port.large_requests import decode_large, has_time
from proxy.downstream.port.load import Load
from proxy.downstream.port.request_rate import RequestRate, take
from proxy.errors import Overloaded
from proxy.net.counted_tls import ContextOf, counted_tls
from proxy.net.dead_peers import is_dead_peer
from proxy.net.overdue import Overdue
from proxy.net.wakeup import Signal
from proxy.observe.logs import NoisyLog
from proxy.settings.proxy_settings import LimitSettings

_log = structlog.get_logger("thrift")


class ThriftServer:
    """Listens and tracks open connections. ``methods`` of all services by name."""

    def __init__(
        self,
        methods: Mapping[str, Entry],
        limits: LimitSettings,
        load: Load | None = None,
        *,
        time_slices: TimeSlices | None = None,
    ) -> None:
        """*load* is shared with other components that check for free memory."""
        self.methods = methods
        self.limits = limits
        self.load = load or Load(limits.max_inflight_bytes)
        self.bad_frames = 0
        self.refused_connections = 0
        self.open: dict[int, Connection] = {}
        #: Shared by the requests of all connections.
        self.time_slices = time_slices or TimeSlices()
        #: Connections with an unsent answer, and with an incomplete request.
        self.unread = Overdue[Connection](limits.slow_reader_s, self._drop_slow_reader)
        self.begun = Overdue[Connection](limits.slow_request_s, self._drop_slow_request)
        self._counts = ConnectionCounts[Connection](
            limits.max_connections, limits.max_connections_per_address
        )
        rate = limits.max_requests_per_s_per_address
        self._rate = None if rate is None else RequestRate(rate)
        share = limits.max_decoding_share_per_address
        self._decoding = None if share is None else RequestRate(share * SECOND)
        self.noisy = NoisyLog(_log)  # for events that clients can provoke
        self._all_closed = Signal()
        self._last_id = 0
        self._listeners: list[asyncio.Server] = []
        self._refuses = False
        self._tls: ContextOf | None = None  # of the most recent listener
        self._is_revoked: Callable[[bytes | None], bool] | None = None
        #: Port to which clients return; None: the one that they connected to.
        self.home_port: int | None = None
        #: Called when ``listening`` changes or a connection ends.
        self.on_change: Callable[[], None] | None = None

    def lead_back_to(self, port: int) -> None:
        """Let clients return to *port* of this process instead of the port that they
        connected to.
        """
        self.home_port = port

    def check_certificates(self, is_revoked: Callable[[bytes | None], bool]) -> None:
        """Refuse new connections whose certificate, in DER, *is_revoked*."""
        self._is_revoked = is_revoked

    def call_on_change(self, callback: Callable[[], None] | None) -> None:
        """Set the callback, replacing any other, for a change of ``listening`` or the end of a
        connection.
        """
        self.on_change = callback

    async def listen(self, host: str, port: int, *, tls: ContextOf | None = None) -> int:
        """Listen on *host*:*port* (0: any free one); return the port. Raises OSError. *tls* is
        called for each connection.
        """
        loop = asyncio.get_running_loop()
        listener = await loop.create_server(
            lambda: self._secured(self._connection()), host, port, backlog=1024
        )
        self._listeners.append(listener)
        self._refuses = False
        self._tls = tls
        self._changed()
        return int(listener.sockets[0].getsockname()[1])

    @property
    def listening(self) -> bool:
        """Whether new connections are accepted."""
        return bool(self._listeners)

    @property
    def counted(self) -> int:
        """Number of connections that count towards the limits, unfinished handshakes included."""
        return len(self._counts)

    async def accept_passed(self, accepted: socket.socket) -> Connection | None:
        """Serve a connection that another process accepted. Return None if it has ended or this
        server does not listen.
        """
        connection = self._connection()
        if self.listening:
            with suppress(OSError):  # the client has left
                await asyncio.get_running_loop().connect_accepted_socket(
                    lambda: self._secured(connection), accepted
                )
                return connection
        accepted.close()
        return None

    def stop_listening(self) -> None:
        """Accept no new connections."""
        for listener in self._listeners:
            stop_accepting(listener)
        self._listeners.clear()
        self._changed()

    async def close(self, *, grace_s: float = 1.0) -> None:
        """Stop for good, as ``disconnect_all``."""
        await self.disconnect_all(grace_s=grace_s)
        self.unread.close()
        self.begun.close()

    async def disconnect_all(self, *, grace_s: float = 1.0) -> None:
        """Stop listening and close all connections; abort those not closed after *grace_s*. None is
        accepted until ``listen`` is called again.
        """
        self._refuses = True
        self.stop_listening()
        await asyncio.sleep(0)
        for connection in list(self.open.values()):
            connection.close()
        if self.open and not await self._all_closed.wait(grace_s):
            for connection in list(self.open.values()):
                connection.abort()
            await self._all_closed.wait(grace_s)

    def admit(self, connection: Connection) -> bool:
        """Register a new connection; return False if it is refused, as after ``disconnect_all``:
        some may have been accepted that are not yet open.
        """
        self.open[connection.connection_id] = connection
        self._limit(connection)
        has_room = self._greet(connection, connection.address) and not self._refuses
        return has_room and not self._has_revoked_certificate(connection)

    def _has_revoked_certificate(self, connection: Connection) -> bool:
        if self._is_revoked is None or not self._is_revoked(connection.certificate):
            return False
        client = connection.address
        self.noisy.warning(f"revoked {client}", "revoked certificate refused", client=client)
        return True

    def _secured(self, connection: Connection) -> asyncio.BaseProtocol:
        """Return the protocol of an accepted connection, which has no address yet."""
        if self._tls is None:
            return connection
        return counted_tls(connection, self._tls(), self._greet, self._counts.leave)

    def _greet(self, connection: Connection, address: str) -> bool:
        """Count a connection before its handshake; return False if it is one too many."""
        has_room = self._counts.enter(connection, address)
        if not has_room:
            self._refuse_connection(address)
        return has_room

    def _refuse_connection(self, client: str) -> None:
        self.refused_connections += 1
        full = self._counts.exceeds_total(more=0)
        limit = "max_connections" if full else "max_connections_per_address"
        self.noisy.warning(f"refused {client}", "connection refused", client=client, reached=limit)

    def _limit(self, connection: Connection) -> None:
        if self._rate is not None:
            connection.limit_rate(self._rate.enter(connection.address, now_ns()))
        if self._decoding is not None:
            connection.limit_decoding(self._decoding.enter(connection.address, now_ns()))

    def forget(self, connection: Connection, reason: BaseException | None = None) -> None:
        """Unregister a closed connection; *reason* is its transport's, if any."""
        if is_dead_peer(reason):
            self._dropped(connection, "dead_peer_s", "its peer stopped answering")
        self._counts.leave(connection)
        known = self.open.pop(connection.connection_id, None) is not None
        if known and not self._counts.has(connection.address):
            for rate in (self._rate, self._decoding):
                if rate is not None:
                    rate.leave(connection.address, now_ns())
        if not self.open:
            self._all_closed.fire()
        self._changed()

    def closed_for(self, connection: Connection, reason: str) -> None:
        """Close a connection that sent an invalid request."""
        self.bad_frames += 1
        client = connection.address
        self.noisy.warning(
            f"bad {client}", "connection closed: invalid request", client=client, reason=reason
        )
        connection.abort()

    def decode(self, connection: Connection, entry: Entry, call: Call) -> Any:
        """Return the arguments of a large call.

        Raises Overloaded if its address has used its share of the time, TooManyElements,
        NotAllowed, or FrameError for invalid bytes.
        """
        if not has_time(connection.decoding):
            limit = "max_decoding_share_per_address"
            error = self.load.refuse(
                limit,
                f"large requests from {connection.address} take more than this proxy's setting"
                f" limits.{limit} ({self.limits.max_decoding_share_per_address:g}) allows: try"
                " again later, or send smaller requests",
            )
            self._refused(connection, error)
            raise error
        check = entry.authenticate
        try:
            return decode_large(
                call,
                entry.arguments,
                authenticate=None if check is None else lambda call: check(call, connection),
                time=connection.decoding,
            )
        except TooManyElements as wrong:
            self.bad_frames += 1
            client = connection.address
            self.noisy.warning(
                f"elements {client}", "request refused", client=client, reason=str(wrong)
            )
            raise

    def refusal(
        self, connection: Connection, entry: Entry, *, passed_over: bool
    ) -> Overloaded | None:
        """Return the error for a request over a limit; None if it may proceed.

        *passed_over*: its bytes were skipped for lack of memory. Counts towards the rate of its
        address.
        """
        bucket = connection.bucket
        if passed_over or (self.load.is_over and not entry.frees):
            told = self.load.over()
        elif bucket is not None and not (take(bucket, now_ns()) or entry.frees):
            limit = "max_requests_per_s_per_address"
            told = self.load.refuse(
                limit,
                f"more than {bucket.rate:g} requests a second came from {connection.address}:"
                f" the limit is this proxy's setting limits.{limit}",
            )
        else:
            return None
        self._refused(connection, told)
        return told

    def _refused(self, connection: Connection, error: Overloaded) -> None:
        client = connection.address
        self.noisy.warning(
            f"{error.limit} {client}", "request refused", client=client, reached=error.limit
        )

    def _drop_slow_reader(self, connection: Connection) -> None:
        self._dropped(connection, "slow_reader_s", "its client did not read the answer in time")
        connection.abort()

    def _drop_slow_request(self, connection: Connection) -> None:
        self._dropped(connection, "slow_request_s", "its request was incomplete at the time limit")
        connection.abort()

    def _dropped(self, connection: Connection, limit: str, reason: str) -> None:
        self.load.dropped[limit] += 1
        client = connection.address
        self.noisy.warning(
            f"{limit} {client}", "connection closed", client=client, reached=limit, reason=reason
        )

    def _connection(self) -> Connection:
        self._last_id += 1
        return Connection(self, self._last_id)

    def _changed(self) -> None:
        if self.on_change is not None:
            self.on_change()
