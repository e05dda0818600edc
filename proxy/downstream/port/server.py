"""The Thrift server: listens, and keeps the open connections. No decisions."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import structlog

from broker_core.clock import now_ns
from broker_core.time_slices import TimeSlices
from proxy.downstream.port.connection import Connection, Entry
from proxy.downstream.port.load import Load
from proxy.downstream.port.request_rate import RequestRate, take
from proxy.errors import Overloaded
from proxy.net.dead_peers import is_dead_peer
from proxy.net.overdue import Overdue
from proxy.net.tls import HANDSHAKE_S, SHUTDOWN_S
from proxy.net.wakeup import Signal
from proxy.observe.logs import NoisyLog
from proxy.settings.proxy_settings import LimitSettings

_log = structlog.get_logger("thrift")


class ThriftServer:
    """Listens, and keeps the open connections. ``methods`` by name, of all services."""

    def __init__(
        self, methods: Mapping[str, Entry], limits: LimitSettings, load: Load | None = None
    ) -> None:
        """*load*: where other parts of the process look whether there is room."""
        self.methods = methods
        self.limits = limits
        self.load = load or Load(limits.max_inflight_bytes)
        self.bad_frames = 0
        self.refused_connections = 0
        self.open: dict[int, Connection] = {}
        #: Of the requests of all connections.
        self.turns = TimeSlices()
        #: Connections whose answer has not left, and those whose request is not whole.
        self.unread = Overdue[Connection](limits.slow_reader_s, self._drop_slow_reader)
        self.begun = Overdue[Connection](limits.slow_request_s, self._drop_slow_request)
        self._addresses: Counter[str] = Counter()
        rate = limits.max_requests_per_s_per_address
        self._rate = None if rate is None else RequestRate(rate)
        self.noisy = NoisyLog(_log)  # of what clients can cause at will
        self._all_closed = Signal()
        self._last_id = 0
        self._listeners: list[asyncio.Server] = []
        self._tls: ssl.SSLContext | None = None  # of the last listener
        #: Which port of this process clients are led back to; None: the one that they came to.
        self.home_port: int | None = None
        #: Called when ``listening`` is another, and when a connection has ended.
        self.on_change: Callable[[], None] | None = None

    def lead_back_to(self, port: int) -> None:
        """Lead clients back to that *port* of this process instead of the one that they came to."""
        self.home_port = port

    def call_on_change(self, callback: Callable[[], None] | None) -> None:
        """Call *callback*, and no other, when ``listening`` is another or a connection ended."""
        self.on_change = callback

    async def listen(self, host: str, port: int, *, tls: ssl.SSLContext | None = None) -> int:
        """Listen on *host*:*port* (0: any free one); returns the port. Raises OSError."""
        loop = asyncio.get_running_loop()
        listener = await loop.create_server(
            self._connection, host, port, backlog=1024, ssl=tls, **_times(tls)
        )
        self._listeners.append(listener)
        self._tls = tls
        self._changed()
        return int(listener.sockets[0].getsockname()[1])

    @property
    def listening(self) -> bool:
        """Whether new connections are taken."""
        return bool(self._listeners)

    async def adopt(self, accepted: socket.socket) -> Connection | None:
        """Serve a client that came to another process, as if it had come here; None if it is gone,
        or this server does not listen.
        """
        connection = self._connection()
        if self.listening:
            with suppress(OSError):  # it left, or spoke no TLS
                await asyncio.get_running_loop().connect_accepted_socket(
                    lambda: connection, accepted, ssl=self._tls, **_times(self._tls)
                )
                return connection
        accepted.close()
        return None

    def stop_listening(self) -> None:
        """Take no new connections."""
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()
        self._changed()

    async def close(self, *, grace_s: float = 1.0) -> None:
        """Stop listening; end all connections, those whose clients do not read after *grace_s*."""
        self.stop_listening()
        for connection in list(self.open.values()):
            connection.close()
        if self.open and not await self._all_closed.wait(grace_s):
            for connection in list(self.open.values()):
                connection.abort()
            await self._all_closed.wait(grace_s)
        self.unread.close()
        self.begun.close()

    def admit(self, connection: Connection) -> bool:
        """Count a new connection in; False if it is one too many."""
        self.open[connection.connection_id] = connection
        self._addresses[connection.address] += 1
        if self._rate is not None:
            connection.limit_rate(self._rate.enter(connection.address, now_ns()))
        full = len(self.open) > self.limits.max_connections
        if full or self._addresses[connection.address] > self.limits.max_connections_per_address:
            self.refused_connections += 1
            client = connection.address
            limit = "max_connections" if full else "max_connections_per_address"
            self.noisy.warning(
                f"refused {client}", "connection refused", client=client, reached=limit
            )
            return False
        return True

    def forget(self, connection: Connection, reason: BaseException | None = None) -> None:
        """Count a closed connection out; *reason* is its transport's, if it had one."""
        if is_dead_peer(reason):
            self._dropped(connection, "dead_peer_s", "it answers nothing any more")
        if self.open.pop(connection.connection_id, None) is not None:
            self._addresses[connection.address] -= 1
            if not self._addresses[connection.address]:
                del self._addresses[connection.address]
                if self._rate is not None:
                    self._rate.leave(connection.address, now_ns())
        if not self.open:
            self._all_closed.fire()
        self._changed()

    def closed_for(self, connection: Connection, reason: str) -> None:
        """End a connection whose bytes are no request."""
        self.bad_frames += 1
        client = connection.address
        self.noisy.warning(
            f"bad {client}", "connection closed: not a request", client=client, reason=reason
        )
        connection.abort()

    def refusal(
        self, connection: Connection, entry: Entry, *, passed_over: bool
    ) -> Overloaded | None:
        """What the client of a request is told that reaches a limit; None if it is served.

        *passed_over*: there was no room for its bytes. Affects: what its address may ask for.
        """
        bucket = connection.bucket
        if passed_over or (self.load.is_over and not entry.frees):
            told = self.load.over()
        elif bucket is not None and not take(bucket, now_ns()):
            limit = "max_requests_per_s_per_address"
            told = self.load.refuse(
                limit,
                f"more than {bucket.rate:g} requests a second came from {connection.address}:"
                f" that is this proxy's setting limits.{limit}",
            )
        else:
            return None
        client = connection.address
        self.noisy.warning(
            f"{told.limit} {client}", "request refused", client=client, reached=told.limit
        )
        return told

    def _drop_slow_reader(self, connection: Connection) -> None:
        self._dropped(connection, "slow_reader_s", "it did not read its answer")
        connection.abort()

    def _drop_slow_request(self, connection: Connection) -> None:
        self._dropped(connection, "slow_request_s", "its request was not whole in time")
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


def _times(tls: ssl.SSLContext | None) -> dict[str, Any]:
    if tls is None:
        return {}
    return {"ssl_handshake_timeout": HANDSHAKE_S, "ssl_shutdown_timeout": SHUTDOWN_S}
