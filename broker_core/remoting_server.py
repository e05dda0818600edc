"""The listening side of remoting, shared by broker and nameserver."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Mapping

from broker_core.clock import now_ns
from broker_core.connection_counts import ConnectionCounts
from broker_core.errors import reason_of
from broker_core.port_memory import MAX_INFLIGHT_BYTES, PortMemory
from broker_core.rare_warnings import RareWarnings
from broker_core.refused_connection import RefusedConnection
from broker_core.remoting.connection import Role
from broker_core.remoting_channel import Handler, RemotingChannel, address_text
from broker_core.stop_accepting import stop_accepting
from broker_core.tasks import cancel_and_wait, spawn
from broker_core.tls import LiveContext, follow
from broker_core.tls_listener import TlsListener
from broker_core.tls_settings import ServerTls


class RemotingServer:
    """Accepts connections and passes their requests to *handlers* (see ``Handler``), by code.

    Example::

        server = RemotingServer({RequestCode.GET_MAX_OFFSET: self.max_offset})
        address = await server.listen("127.0.0.1", 0)
        ...
        await server.close()
    """

    def __init__(
        self,
        handlers: Mapping[int, Handler],
        *,
        on_closed: Callable[[RemotingChannel], None] | None = None,
        idle_s: float = 120.0,
        stuck_s: float = 60.0,
        max_connections: int = 10_000,
        max_connections_per_address: int = 1_000,
        max_inflight_bytes: int = MAX_INFLIGHT_BYTES,
        tls: ServerTls | None = None,
    ) -> None:
        """Prepare a server. Raise TlsError if the files of *tls* cannot be used.

        Args:
            handlers: by request code
            on_closed: called when a connection has ended, by either side
            idle_s: seconds without any incoming data after which a connection is closed; RocketMQ's
                default
            stuck_s: seconds (or up to a quarter more) after which a connection is closed if a
                request is incomplete or answers are unread
            max_connections: connections above this number are closed at once; they count from
                the time that they are accepted, before a TLS handshake
            max_connections_per_address: the same for connections from one address
            max_inflight_bytes: of requests being handled, and of incomplete requests and unread
                answers, on all connections (see ``port_memory``)
            tls: None for plain connections
        """
        self._handlers = handlers
        self._on_closed = on_closed
        self._idle_s = idle_s
        self._stuck_s = stuck_s
        self._counts = ConnectionCounts[RemotingChannel](
            max_connections, max_connections_per_address
        )
        #: Of all connections.
        self.memory = PortMemory[RemotingChannel](max_inflight_bytes)
        if tls is None or tls.mode == "disabled":
            self._tls: LiveContext | None = None
        else:
            self._tls = LiveContext(tls, "tls")
            self._tls.watch(lambda: self.channels)
            self._plain_too = tls.mode == "permissive"
        #: Number of connections that were refused because there were too many.
        self.refused_connections = 0
        self._listeners: list[asyncio.Server] = []
        self._closed = False
        self._served: Container[int] | None = None  # codes, once others are refused
        self._tls_listeners: list[TlsListener] = []
        self._channels: dict[RemotingChannel, None] = {}
        self._handling_on: list[RemotingChannel] = []  # lost, with handlers that still run
        self._warnings = RareWarnings("remoting")
        self._regular: list[asyncio.Task[None]] = []

    @property
    def codes(self) -> frozenset[int]:
        """Codes of the requests served here."""
        return frozenset(self._handlers)

    @property
    def channels(self) -> frozenset[RemotingChannel]:
        """The open connections."""
        return frozenset(self._channels)

    @property
    def counted(self) -> int:
        """Number of connections that count towards the limits, unfinished handshakes included."""
        return len(self._counts)

    async def listen(self, host: str, port: int) -> str:
        """Listen on *port* of *host*, in addition to earlier ones, and return ``host:port``.

        Port 0 is any free one. Raises OSError with a sentence that names the address.
        """
        try:
            address = await self._listen(host, port)
        except OSError as error:
            reason = reason_of(error)
            raise OSError(error.errno, f"cannot listen on {host}:{port}: {reason}") from error
        if not self._regular:
            self._regular.append(spawn(self._sweep_idle(), name="close idle connections"))
            if self._tls is not None:
                self._regular.append(spawn(follow([self._tls]), name="certificates"))
        return address

    async def _listen(self, host: str, port: int) -> str:
        if self._tls is None:
            loop = asyncio.get_running_loop()
            plain = await loop.create_server(self._accept, host, port, backlog=1024)
            self._listeners.append(plain)
            return address_text(plain.sockets[0].getsockname())
        listener = TlsListener(
            self._tls,
            self._take,
            self._warnings,
            plain_too=self._plain_too,
            silent_s=min(self._idle_s, self._stuck_s),
            gone=self._counts.leave,
        )
        self._tls_listeners.append(listener)
        return listener.listen(host, port)

    async def refuse(self, *, but: Container[int] = ()) -> None:
        """Refuse connections and, except those with codes *but* and one-way ones, requests from now
        on: this server is about to close. Their clients know that nothing was done.
        """
        for plain in self._listeners:
            stop_accepting(plain)
        await asyncio.sleep(0)
        for listener in self._tls_listeners:
            await listener.close()
        # Not before: clients connect again, and the end of the listener would reset them.
        self._served = but
        for channel in self._channels:
            channel.refuse(but=but)

    async def close(self, *, grace_s: float = 1.0) -> None:
        """Stop accepting, refuse what comes, give running handlers *grace_s* to answer, and
        disconnect all: clients that send requests nevertheless after *grace_s*, others sooner.

        No handler runs on return.
        """
        await self.refuse()
        self._closed = True
        await cancel_and_wait(*self._regular)
        ending = (*self._channels, *self._handling_on)
        await asyncio.gather(*(channel.close(grace_s=grace_s) for channel in ending))
        for plain in self._listeners:
            await plain.wait_closed()

    def _take(self, address: str) -> RemotingChannel | None:
        """Return the channel of a connection before its handshake, None if it is one too many."""
        if self._counts.is_full(address):
            self._refuse_full(address)
            return None
        channel = self._channel()
        self._counts.enter(channel, address)
        return channel

    def _accept(self) -> asyncio.BaseProtocol:
        if self._counts.exceeds_total():
            self._refuse_full("any")
            return RefusedConnection()
        return self._channel()

    def _refuse_full(self, address: str) -> None:
        self.refused_connections += 1
        self._warnings.warn("connection refused: too many connections", peer=address)

    def _channel(self) -> RemotingChannel:
        return RemotingChannel(
            Role.SERVER,
            handlers=self._handlers,
            on_opened=self._opened,
            on_closed=self._connection_ended,
            warnings=self._warnings,
            memory=self.memory,
        )

    def _opened(self, channel: RemotingChannel) -> None:
        self._channels[channel] = None
        if self._served is not None:
            channel.refuse(but=self._served)
        if not self._counts.enter(channel, channel.address):
            self._refuse_full(channel.address)
            channel.abort()
        elif self._closed:
            channel.abort()  # it was accepted before, and opens only now
        elif self._tls is not None and self._tls.is_revoked(channel.certificate):
            self._warnings.warn("revoked certificate, disconnected", peer=channel.peer)
            channel.abort()

    def _connection_ended(self, channel: RemotingChannel) -> None:
        self._channels.pop(channel, None)
        self._handling_on = [each for each in (*self._handling_on, channel) if each.handling]
        self._counts.leave(channel)
        if self._on_closed is not None:
            self._on_closed(channel)

    async def _sweep_idle(self) -> None:
        while True:
            await asyncio.sleep(min(self._idle_s, self._stuck_s) / 4)
            oldest_ns = now_ns() - int(self._idle_s * 1e9)
            stuck_ns = now_ns() - int(self._stuck_s * 1e9)
            for channel in self.channels:
                if (reason := channel.stuck_since(stuck_ns)) is not None:
                    self._warnings.warn(
                        "peer is stuck, disconnected", peer=channel.peer, why=reason
                    )
                    channel.abort()
                elif channel.last_activity_ns < oldest_ns:
                    spawn(channel.close(), name=f"close idle {channel.peer}")
