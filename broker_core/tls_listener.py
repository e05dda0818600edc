"""A port that speaks TLS and, if permitted, plain connections, as RocketMQ's ports do.

A connection's first byte distinguishes them. The byte is peeked at and not consumed, so a
plain connection costs nothing more from then on.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

from broker_core.acceptor import Acceptor
from broker_core.rare_warnings import RareWarnings
from broker_core.remoting_channel import address_text
from broker_core.tasks import cancel_and_wait, spawn
from broker_core.tls import HANDSHAKE_S, SHUTDOWN_S, LiveContext, why_broken
from broker_core.tracebacks import forget_frames

#: First byte of a TLS handshake. No frame begins with it: it would have 369 MB.
_HANDSHAKE = b"\x16"


class TlsListener:
    """Listens at one address. All methods need the running loop."""

    def __init__(
        self,
        tls: LiveContext,
        take: Callable[[str], asyncio.Protocol | None],
        warnings: RareWarnings,
        *,
        plain_too: bool,
        silent_s: float,
        gone: Callable[[Any], None],
    ) -> None:
        """Prepare a listener.

        Args:
            tls: certificates for new connections
            take: creates the protocol of an accepted connection from the peer's address, without
                its port; None refuses the connection
            warnings: log of refused connections
            plain_too: accept plain connections as well, instead of refusing them
            silent_s: seconds after which a connection without any data is closed
            gone: receives the protocol of a connection that ended before it was established
        """
        self._tls = tls
        self._protocol_of = take
        self._warnings = warnings
        self._plain_too = plain_too
        self._silent_s = silent_s
        self._gone = gone
        self._acceptor: Acceptor | None = None
        self._greetings: set[asyncio.Task[None]] = set()

    def listen(self, host: str, port: int) -> str:
        """Listen on *host* and *port* (0: any free one); return ``host:port``. Raise OSError."""
        self._acceptor = Acceptor(host, port, self._take, self._no_more)
        self._acceptor.open()
        return address_text(self._acceptor.address)

    async def close(self) -> None:
        """Stop listening, and disconnect clients that are not yet established."""
        if self._acceptor is not None:
            self._acceptor.close()
        await cancel_and_wait(*self._greetings)

    def _no_more(self, error: OSError) -> None:
        self._warnings.warn(
            "cannot accept connections, trying again", peer="", reason=error.strerror
        )

    def _take(self, connection: socket.socket, address: Any) -> None:
        protocol = self._protocol_of(str(address[0]))
        if protocol is None:
            connection.close()
            return
        connection.setblocking(False)
        peer = address_text(address)
        task = spawn(self._greet(connection, peer, protocol), name=f"greet {peer}")
        self._greetings.add(task)
        task.add_done_callback(self._greetings.discard)

    async def _greet(
        self, connection: socket.socket, peer: str, protocol: asyncio.Protocol
    ) -> None:
        is_open = False
        try:
            is_open = await self._opened(connection, peer, protocol)
        finally:
            if not is_open:
                self._gone(protocol)

    async def _opened(
        self, connection: socket.socket, peer: str, protocol: asyncio.Protocol
    ) -> bool:
        """Return whether the connection was established."""
        try:
            async with asyncio.timeout(self._silent_s):
                first = await _first_byte(connection)
        except (OSError, TimeoutError):
            first = b""
        except asyncio.CancelledError:
            connection.close()
            raise
        if first == _HANDSHAKE:
            return await self._serve(
                connection,
                peer,
                protocol,
                ssl=self._tls.newest(),
                ssl_handshake_timeout=HANDSHAKE_S,
                ssl_shutdown_timeout=SHUTDOWN_S,
            )
        if first and self._plain_too:
            return await self._serve(connection, peer, protocol)
        connection.close()
        if first:
            self._warnings.warn("plain connection refused: this port requires TLS", peer=peer)
        return False

    async def _serve(
        self, connection: socket.socket, peer: str, protocol: asyncio.Protocol, **tls: Any
    ) -> bool:
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(lambda: protocol, connection, **tls)
        except OSError as error:  # the connection is closed then
            why, what = why_broken(error), "TLS handshake failed" if tls else "connection failed"
            self._warnings.warn(f"{what}, disconnected", peer=peer, reason=why)
            forget_frames(error)
            return False
        return True


async def _first_byte(connection: socket.socket) -> bytes:
    """Peek at the first byte; return nothing if the peer left without sending any."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            return connection.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            pass
        readable = loop.create_future()
        loop.add_reader(connection, _wake, readable)
        try:
            await readable
        finally:
            loop.remove_reader(connection)


def _wake(readable: asyncio.Future[None]) -> None:
    if not readable.done():
        readable.set_result(None)
