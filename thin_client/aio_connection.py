"""A connection to a proxy on asyncio."""

from __future__ import annotations

import asyncio
import socket
from typing import Self, TypeVar, cast

from thin_client import chance, forks
from thin_client.addresses import Address
from thin_client.calls import Call
from thin_client.errors import ClientError, ConnectionLost
from thin_client.servers import Destination
from thin_client.wire import FrameBuffer

T = TypeVar("T")


class AsyncConnection(asyncio.Protocol):
    """One connection, one call at a time. Any ClientError except Refused closes it."""

    def __init__(self, address: Address) -> None:
        """Create an unconnected object; call ``open`` instead."""
        self.address = address
        self._frames = FrameBuffer()
        self._sequence_id = chance.request_number()
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[bytes] | None = None
        self._asked = ("", 0.0)  # method of the pending call, and its time-out in seconds
        self._deadline_s = 0.0  # by the loop's clock
        self._timer: asyncio.TimerHandle | None = None

    @classmethod
    async def open(cls, destination: Destination, *, timeout_s: float) -> Self:
        """Connect to the first of the name's addresses that accepts a connection.

        Raises ConnectionLost if none does within *timeout_s*.
        """
        address = destination.address
        try:
            async with asyncio.timeout(timeout_s):
                return await cls._open(destination, timeout_s)
        except TimeoutError as error:
            raise ConnectionLost(f"no connection to {address} within {timeout_s:g} s") from error
        except OSError as error:  # from name service, sockets and TLS
            raise ConnectionLost(f"no connection to {address}: {error}") from error

    @classmethod
    async def _open(cls, destination: Destination, timeout_s: float) -> Self:
        loop = asyncio.get_running_loop()
        host, port = destination.address
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        failure = OSError("the name has no address")
        for *_, address in destination.in_turn(found):
            try:
                async with asyncio.timeout(timeout_s / len(found)):
                    _, connection = await loop.create_connection(
                        lambda: cls(destination.address),
                        *address[:2],
                        ssl=destination.ssl_context,
                        server_hostname=destination.server_name,
                    )
            except OSError as error:
                failure = error.with_traceback(None)
            else:
                return connection
        try:
            raise failure
        finally:
            del failure  # it refers to this frame

    @property
    def closed(self) -> bool:
        """True once either side has closed it."""
        return self._transport is None

    async def call(self, call: Call[T], *, timeout_s: float) -> T:
        """Send *call* and return its answer, after at most *timeout_s*.

        Raises ConnectionLost, Refused, ProxyFault or ProtocolError. Cancelling closes the
        connection: a late answer would be taken for another call's.
        """
        if self._transport is None:
            raise ConnectionLost(f"the connection to {self.address} is closed", broke=True)
        loop = asyncio.get_running_loop()
        self._sequence_id = (self._sequence_id + 1) & chance.MAX_REQUEST_NUMBER
        self._answer = loop.create_future()
        self._transport.write(call.encode(self._sequence_id))
        self._asked = (call.method, timeout_s)
        self._deadline_s = loop.time() + timeout_s
        if self._timer is None or self._timer.when() > self._deadline_s:
            self._set_timer(loop)
        try:
            frame = await self._answer
            return call.decode(frame, sequence_id=self._sequence_id, sender=self.address)
        except ClientError as error:
            if not error.leaves_connection:
                self.close()
            raise
        except asyncio.CancelledError:
            self.close()
            raise
        finally:
            self._answer = None

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start a timer unless one is running: most answers arrive long before; see ``_late``."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(self._deadline_s, self._late, loop)

    def _late(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if self._answer is None or self._answer.done():
            return
        if loop.time() < self._deadline_s:  # the timer was started by an earlier call
            self._set_timer(loop)
        else:
            method, timeout_s = self._asked
            text = f"{self.address} did not answer {method} within {timeout_s:g} s"
            self._fail(ConnectionLost(text))

    def close(self) -> None:
        """Close the connection; a pending call fails with ConnectionLost."""
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._fail(ConnectionLost(f"the connection to {self.address} was closed"))

    def forked(self) -> None:
        """Release the socket, which belongs to the parent process or to a closed loop.

        The transport is not closed: it would remove the socket from the parent's selector, which
        both processes share.
        """
        transport, self._transport = self._transport, None
        if transport is not None:
            forks.release_socket(transport.get_extra_info("socket"))

    # ---- asyncio.Protocol -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.Transport, transport)
        forks.register(self)

    def data_received(self, data: bytes) -> None:
        """Pass a complete answer to the pending call."""
        self._frames.receive_data(data)
        try:
            frame = self._frames.next_frame()
        except ClientError as error:
            self._fail(error)
            return
        if frame is not None and self._answer is not None and not self._answer.done():
            self._answer.set_result(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the pending call."""
        self._transport = None
        self._frames.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        why = "" if exc is None else f": {exc}"
        self._fail(ConnectionLost(f"{self.address} closed the connection{why}", broke=True))

    def _fail(self, error: ClientError) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
