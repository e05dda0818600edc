"""A connection to a proxy on asyncio."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from typing import Any, Self, TypeVar, cast

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
        self._frames = FrameBuffer(address)
        self._sequence_id = chance.request_number()
        self._transport: asyncio.Transport | None = None
        self._asked: Call[Any] | None = None  # the pending call
        self._done: Callable[[Any], None] | None = None  # takes its answer or error
        self._timeout_s = 0.0  # of that call
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
        except (OSError, ValueError) as error:  # from name service, sockets and TLS
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

        Raises the errors of ``ask``. Cancelling closes the connection: a late answer would be taken
        for another call's.
        """
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.ask(call, timeout_s=timeout_s, done=partial(_give, answer))
        try:
            return await answer
        except asyncio.CancelledError:
            self.drop()
            raise
        finally:
            del answer  # a failure would refer to this frame

    def ask(
        self, call: Call[T], *, timeout_s: float, done: Callable[[T | ClientError], None]
    ) -> None:
        """Send *call*; pass its answer or its error to *done*, after at most *timeout_s*.

        The errors are ConnectionLost, Refused, ProxyFault and ProtocolError.
        """
        if self._transport is None:
            done(ConnectionLost(f"the connection to {self.address} is closed", broke=True))
            return
        self._sequence_id = (self._sequence_id + 1) & chance.MAX_REQUEST_NUMBER
        self._transport.write(call.encode(self._sequence_id))
        self._asked, self._done, self._timeout_s = call, done, timeout_s
        loop = asyncio.get_running_loop()
        self._deadline_s = loop.time() + timeout_s
        if self._timer is None or self._timer.when() > self._deadline_s:
            self._set_timer(loop)

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start a timer unless one is running: most answers arrive long before; see ``_late``."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(self._deadline_s, self._late, loop)

    def _late(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if self._asked is None:
            return
        if loop.time() < self._deadline_s:  # the timer was started by an earlier call
            self._set_timer(loop)
        else:
            text = f"{self.address} did not answer {self._asked.method} within"
            self._fail(ConnectionLost(f"{text} {self._timeout_s:g} s"))

    def drop(self) -> None:
        """Close the connection and forget a pending call."""
        self._asked = self._done = None
        self._disconnect()

    def close(self) -> None:
        """Close the connection; a pending call fails with ConnectionLost."""
        self._disconnect()
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
        try:
            frame = self._frames.receive_frame(data)
        except ClientError as error:
            self._fail(error)
            return
        if frame is not None and self._asked is not None:
            self._take(self._asked, frame)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the pending call."""
        self._transport = None
        self._frames.clear()
        self._disconnect()
        why = "" if exc is None else f": {exc}"
        self._fail(ConnectionLost(f"{self.address} closed the connection{why}", broke=True))

    def _disconnect(self) -> None:
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _take(self, call: Call[Any], frame: bytes) -> None:
        try:
            answer = call.decode(frame, sequence_id=self._sequence_id, sender=self.address)
        except ClientError as error:
            self._fail(error)
            return
        done, self._asked, self._done = self._done, None, None
        if done is not None:
            done(answer)

    def _fail(self, error: ClientError) -> None:
        done, self._asked, self._done = self._done, None, None
        if not error.leaves_connection:
            self._disconnect()
        if done is not None:
            done(error)


def _give(answer: asyncio.Future[T], outcome: T | ClientError) -> None:
    if answer.done():
        return
    if isinstance(outcome, ClientError):
        answer.set_exception(outcome)
    else:
        answer.set_result(outcome)
