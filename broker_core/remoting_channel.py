"""One remoting connection on asyncio, for either end: sends requests, matches answers, and passes
incoming requests to handlers.

A handler, chosen by request code, answers at once (returns a command) or later (returns an
awaitable, e.g. is an ``async def``, or a ``LateAnswer``, which needs no task), so a held pull never
delays the requests behind it. A server's memory is bounded: the channel stops reading while too
many answers are unread or too many requests are being handled, and disconnects a peer that does not
read at all.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import Awaitable, Callable, Container, Coroutine, Mapping
from functools import partial
from typing import Any, TypeAlias, cast

import structlog

from broker_core import chance, forks
from broker_core.clock import now_ns
from broker_core.errors import (
    STOPPING,
    BrokerError,
    ConnectionLost,
    InvalidCommand,
    LocalProtocolError,
    NotConnected,
    NotSentInTime,
    RemoteProtocolError,
    RequestTimeout,
)
from broker_core.late_answer import LateAnswer
from broker_core.port_memory import PortMemory
from broker_core.rare_warnings import RareWarnings
from broker_core.remoting.codes import ResponseCode, request_name
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.connection import (
    RemotingConnection,
    Role,
)
from broker_core.tasks import cancel_and_wait, spawn
from broker_core.tls import certificate_of

Answer: TypeAlias = RemotingCommand | None
#: Receives a request and its channel. May raise BrokerError (answered with its code and remark) or
#: InvalidCommand (code 1). None means: no answer. A one-way request is never answered. A handler
#: continues when its connection ends (see ``on_closed``); its answer is then dropped.
Handler: TypeAlias = Callable[[RemotingCommand, "RemotingChannel"], "Result"]
Result: TypeAlias = "Answer | LateAnswer | Awaitable[Answer]"

_HIGH_WATER_BYTES = 4 * 1024 * 1024  # unread answers: stop reading requests
SLOW_READER_BYTES = 64 * 1024 * 1024  # unread answers: disconnect the peer
MAX_HANDLING_BYTES = 64 * 1024 * 1024  # requests being handled: stop reading
_MAX_REMARK_CHARS = 1000
_DEAD_PEER_MS = 10_000  # sent bytes unacknowledged for this time: the peer is dead
#: Silence of a peer after which a stopping server disconnects it: longer than a round trip.
_QUIET_NS = 50_000_000

_log = structlog.get_logger("remoting")


class RemotingChannel(asyncio.Protocol):
    """One remoting connection. Created by ``RemotingServer`` and ``ConnectionPool``."""

    def __init__(
        self,
        role: Role,
        *,
        handlers: Mapping[int, Handler],
        on_opened: Callable[[RemotingChannel], None] | None = None,
        on_closed: Callable[[RemotingChannel], None] | None = None,
        warnings: RareWarnings | None = None,
        memory: PortMemory[RemotingChannel] | None = None,
    ) -> None:
        """Create a channel that is not connected yet.

        Args:
            role: the end of the connection
            handlers: by request code; any other code is answered with 3
            on_opened: called when requests can arrive: with TLS, after the handshake
            on_closed: called when the connection has ended
            warnings: log of the peers' errors; channels may share it
            memory: of all connections of a server's port; None: unlimited
        """
        self.peer = "?"  # host:port of the other end
        self.last_activity_ns = now_ns()
        self._role = role
        self._handlers = handlers
        self._on_opened = on_opened
        self._on_closed = on_closed
        self._warnings = warnings or RareWarnings("remoting")
        self._memory = memory
        self._is_buffering = False  # as of the last report to it
        self._connection = RemotingConnection(role)
        self._transport: asyncio.Transport | None = None
        self._waiting: dict[int, asyncio.Future[RemotingCommand]] = {}
        # Starts anywhere, so that answers of two connections cannot be confused.
        self._opaques = itertools.count(chance.number_below(1 << 31))
        self._handling: set[asyncio.Task[None]] = set()
        self._late = 0  # requests whose handlers returned a LateAnswer
        self._all_given: asyncio.Future[None] | None = None
        self._handling_bytes = 0
        self._reading = True
        self._unread_ns = 0  # time since which answers are unread; 0: none are
        self._begun_ns = 0  # time since which a command is incomplete
        self._closing = False
        self._served: Container[int] | None = None  # codes, once others are refused
        self._writable = asyncio.Event()
        self._writable.set()
        self._closed = asyncio.Event()
        # The same two as fields: each command asks several times.
        self._may_write, self._is_lost = True, False

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else "open"
        return (
            f"<RemotingChannel {self._role.value} {self.peer} {state}"
            f" waiting={len(self._waiting)} handling={len(self._handling)}>"
        )

    @property
    def certificate(self) -> bytes | None:
        """The peer's certificate in DER; None without one."""
        return certificate_of(self._transport)

    @property
    def is_closed(self) -> bool:
        """True once nothing can be sent any more."""
        return self._is_lost or self._transport is None or self._transport.is_closing()

    @property
    def is_ready(self) -> bool:
        """True if the peer reads its answers."""
        return not self.is_closed and self._may_write

    @property
    def is_reading(self) -> bool:
        """False while reading pauses because too many answers or requests are pending."""
        return self._reading

    @property
    def handling(self) -> int:
        """Number of requests whose handlers run as tasks."""
        return len(self._handling)

    @property
    def address(self) -> str:
        """The peer's address, without its port."""
        return self.peer.rpartition(":")[0].strip("[]")

    @property
    def buffered_bytes(self) -> int:
        """Bytes of an incomplete or waiting request and of unsent answers; 0 once it is closed."""
        return 0 if self.is_closed else self._connection.buffered_bytes + self.unsent_bytes

    @property
    def unsent_bytes(self) -> int:
        """Bytes written but not yet taken by the socket."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def stuck_since(self, before_ns: int) -> str | None:
        """Return what the peer began before *before_ns* and has not ended, or None."""
        if 0 < self._unread_ns < before_ns:
            return "it does not read its answers"
        if self._reading and 0 < self._begun_ns < before_ns:
            return "its request was incomplete for too long"
        return None

    def abort(self) -> None:
        """Disconnect now."""
        if self._transport is not None:
            self._transport.abort()

    def drop(self) -> None:
        """Disconnect now, because the port has no memory left and this peer takes most of it."""
        self._warnings.warn(
            "too many bytes in flight, disconnected",
            peer=self.peer,
            buffered_bytes=self.buffered_bytes,
        )
        self.abort()
        self._connection.drop_bytes()

    def forked(self) -> None:
        """Close in a child process.

        The transport is not closed: it would remove the socket from the parent's selector, which
        both processes share.
        """
        transport, self._transport = self._transport, None
        if transport is not None:
            forks.release_socket(transport.get_extra_info("socket"))

    # -- requests out --------------------------------------------------------------------------

    async def request(self, command: RemotingCommand, *, timeout_s: float) -> RemotingCommand:
        """Send a request and return its answer, of any code.

        Raises ConnectionLost or RequestTimeout (effect unknown unless ``unsent``), or
        LocalProtocolError.
        """
        loop = asyncio.get_running_loop()
        if not self._may_write:
            timeout_s -= await self._wait_writable(command, timeout_s)
        self._refuse_if_closed()
        opaque = next(self._opaques) & 0x7FFFFFFF
        command.number(opaque)
        frame = self._connection.send(command)
        answer: asyncio.Future[RemotingCommand] = loop.create_future()
        self._waiting[opaque] = answer
        timer = loop.call_later(timeout_s, self._expire, command, timeout_s)
        try:
            self._write(frame)
            del frame  # the transport has what is not sent yet
            return await answer
        finally:
            timer.cancel()
            self._waiting.pop(opaque, None)
            if answer.done() and not answer.cancelled():
                answer.exception()  # retrieves it, also if the caller was cancelled meanwhile
            # A failure refers to this frame: the request would wait for the garbage collector.
            del answer, command

    def send_oneway(self, command: RemotingCommand) -> None:
        """Send a request that gets no answer; raise NotConnected if already closed."""
        self._refuse_if_closed()
        command.number(next(self._opaques) & 0x7FFFFFFF)
        self._write(self._connection.send(command.oneway()))

    def refuse(self, *, but: Container[int] = ()) -> None:
        """Refuse requests from now on, except those with codes *but* and one-way ones, which get no
        answer: the server stops.
        """
        self._served = but

    async def close(self, *, grace_s: float = 0.0) -> None:
        """Disconnect; first wait up to *grace_s* until running handlers have answered and the peer
        sends nothing more, since it cannot know whether an unanswered request has been executed.

        No handler runs on return, not even if the connection was lost before.
        """
        if self._transport is None:
            return
        if grace_s > 0:
            until_ns = now_ns() + int(grace_s * 1e9)
            await self._wait_handled(grace_s)
            await self._wait_quiet(until_ns)
        self._closing = True
        if not self._is_lost and self._transport.is_reading():
            self._transport.pause_reading()
        await cancel_and_wait(*self._handling)
        if self._is_lost:
            return
        self._transport.close()
        try:
            async with asyncio.timeout(1.0):
                await self._closed.wait()
        except TimeoutError:  # the peer does not read the rest
            self._transport.abort()
            await self._closed.wait()

    async def _wait_handled(self, grace_s: float) -> None:
        handling: set[asyncio.Future[None]] = set(self._handling)
        if self._late and not self.is_closed:
            self._all_given = asyncio.get_running_loop().create_future()
            handling.add(self._all_given)
        if handling:
            await asyncio.wait(handling, timeout=grace_s)

    async def _wait_quiet(self, until_ns: int) -> None:
        while not self.is_closed:
            rest_ns = min(self.last_activity_ns + _QUIET_NS, until_ns) - now_ns()
            if rest_ns <= 0:
                return
            await asyncio.sleep(rest_ns / 1e9)

    def _refuse_if_closed(self) -> None:
        if self.is_closed:
            raise NotConnected(f"the connection to {self.peer} is closed")

    def _write(self, frame: bytes) -> None:
        transport: Any = self._transport  # open, or the caller would not write
        transport.write(frame)
        if self._memory is not None and transport.get_write_buffer_size():
            self._report()
        if not self._may_write and transport.get_write_buffer_size() > SLOW_READER_BYTES:
            self._warnings.warn("peer does not read its answers, disconnected", peer=self.peer)
            transport.abort()

    async def _wait_writable(self, command: RemotingCommand, timeout_s: float) -> float:
        started_ns = now_ns()
        try:
            async with asyncio.timeout(timeout_s):
                await self._writable.wait()
        except TimeoutError:
            name = request_name(command.code)
            raise NotSentInTime(
                f"{name}: {self.peer} took nothing within {timeout_s:.3g} s"
            ) from None
        return (now_ns() - started_ns) / 1e9

    def _deliver(self, response: RemotingCommand) -> None:
        answer = self._waiting.pop(response.opaque, None)
        if answer is not None and not answer.done():  # otherwise it is too late
            answer.set_result(response)

    def _expire(self, command: RemotingCommand, timeout_s: float) -> None:
        answer = self._waiting.pop(command.opaque, None)
        if answer is not None and not answer.done():
            answer.set_exception(self._timeout(command, timeout_s))

    def _timeout(self, command: RemotingCommand, timeout_s: float) -> RequestTimeout:
        name = request_name(command.code)
        return RequestTimeout(f"{name}: no answer from {self.peer} within {timeout_s:.3g} s")

    # -- called by the transport ---------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Set up the socket."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_HIGH_WATER_BYTES)
        self.peer = address_text(transport.get_extra_info("peername"))
        if self._role is Role.CLIENT:
            forks.register(self)
        if (sock := transport.get_extra_info("socket")) is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if hasattr(socket, "TCP_USER_TIMEOUT"):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _DEAD_PEER_MS)
        if self._on_opened is not None:
            self._on_opened(self)

    def data_received(self, data: bytes) -> None:
        """Handle all complete commands that have arrived."""
        self.last_activity_ns = now_ns()
        self._connection.receive_data(data)
        self._handle_events()
        if self._is_buffering or self._connection.buffered_bytes:
            self._report()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail all waiting requests; answers of running handlers will be dropped."""
        self._is_lost = self._may_write = True
        self._closed.set()
        self._writable.set()
        self._connection.drop_bytes()
        self._report()
        reason = f"the connection to {self.peer} was lost" + (f": {exc}" if exc else "")
        waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            if not answer.done():
                answer.set_exception(ConnectionLost(reason))
        if self._on_closed is not None:
            self._on_closed(self)

    def pause_writing(self) -> None:
        """Stop handling requests while the peer does not read."""
        self._may_write = False
        self._writable.clear()
        self._unread_ns = now_ns()
        self._regulate_reading()

    def resume_writing(self) -> None:
        """Handle requests again."""
        self._may_write = True
        self._writable.set()
        self._unread_ns = 0
        self._report()
        self._regulate_reading()

    # -- requests in ---------------------------------------------------------------------------

    def _handle_events(self) -> None:
        try:
            next_command = self._connection.next_command
            taken = False
            while self._reading and not (self._closing or self.is_closed):
                if (command := next_command()) is None:
                    if not self._connection.buffered_bytes:
                        self._begun_ns = 0
                    elif taken or not self._begun_ns:
                        self._begun_ns = now_ns()
                    return
                taken = True
                if command.is_response:
                    self._deliver(command)
                else:
                    self._handle(command)
        except RemoteProtocolError as error:
            self._warnings.warn("broken frame, disconnected", peer=self.peer, error=str(error))
            cast(asyncio.Transport, self._transport).abort()

    def _handle(self, request: RemotingCommand) -> None:
        handler = self._handlers.get(request.code)
        if handler is None:
            self._answer(request, _unsupported(request))
            return
        served = self._served
        if served is not None and request.code not in served and not request.is_oneway:
            self._answer(request, request.response(ResponseCode.SERVICE_NOT_AVAILABLE, STOPPING))
            return
        memory = self._memory
        if memory is not None and not memory.admits(request.weight):
            self._refuse(request, memory)
            return
        try:
            result = handler(request, self)
        except Exception as error:
            self._answer(request, self._failure(request, error))
            return
        if result is None or isinstance(result, RemotingCommand):
            self._answer(request, result)
            return
        cost_bytes = request.weight
        self._count_handling(cost_bytes)
        if isinstance(result, LateAnswer):
            self._late += 1
            result.wait(partial(self._late_given, request, cost_bytes))
            self._regulate_reading()
            return
        task = spawn(self._answer_later(request, result), name=request_name(request.code))
        self._handling.add(task)
        task.add_done_callback(lambda task: self._handled(task, cost_bytes))
        if isinstance(result, Coroutine):
            # A task that is cancelled before its first step never awaits it.
            task.add_done_callback(lambda _task: result.close())
        self._regulate_reading()

    def _late_given(
        self, request: RemotingCommand, cost_bytes: int, answer: Answer | Exception
    ) -> None:
        if isinstance(answer, Exception):
            answer = self._failure(request, answer)
        self._answer(request, answer)
        self._late -= 1
        self._count_handling(-cost_bytes)
        self._regulate_reading()
        if not self._late and self._all_given is not None and not self._all_given.done():
            self._all_given.set_result(None)

    async def _answer_later(self, request: RemotingCommand, result: Awaitable[Answer]) -> None:
        try:
            answer = await result
        except Exception as error:
            answer = self._failure(request, error)
        self._answer(request, answer)

    def _handled(self, task: asyncio.Task[None], cost_bytes: int) -> None:
        self._handling.discard(task)
        self._count_handling(-cost_bytes)
        self._regulate_reading()

    def _answer(self, request: RemotingCommand, answer: Answer) -> None:
        if answer is None or request.is_oneway or self.is_closed:
            return
        try:
            frame = self._connection.send(answer)
        except LocalProtocolError as error:
            frame = self._connection.send(self._failure(request, error))
        self._write(frame)

    def _failure(self, request: RemotingCommand, error: Exception) -> RemotingCommand:
        if isinstance(error, BrokerError):
            return request.response(error.code, _remark(error.remark))
        if not isinstance(error, InvalidCommand):
            name = request_name(request.code)
            _log.error("handler failed", request=name, peer=self.peer, exc_info=error)
        remark = _remark(str(error)) or type(error).__name__
        return request.response(ResponseCode.SYSTEM_ERROR, remark)

    def _refuse(self, request: RemotingCommand, memory: PortMemory[RemotingChannel]) -> None:
        text = (
            f"requests of {memory.handled_bytes} bytes are being handled here, above or near"
            f" max_inflight_bytes ({memory.limit_bytes}): try again later"
        )
        name = request_name(request.code)
        self._warnings.warn("request refused", peer=self.peer, request=name, reason=text)
        self._answer(request, request.response(ResponseCode.SYSTEM_BUSY, text))

    def _count_handling(self, more_bytes: int) -> None:
        self._handling_bytes += more_bytes
        if self._memory is not None:
            self._memory.handles(more_bytes)

    def _report(self) -> None:
        """Report the buffered bytes to the port's memory."""
        if self._memory is not None:
            held_bytes = self.buffered_bytes
            self._is_buffering = held_bytes > 0
            self._memory.buffers(self, held_bytes)

    def _regulate_reading(self) -> None:
        # Only at a server's end: a client that stops reading because it cannot write could wait
        # forever for a server that does the same.
        reading = self._may_write and self._handling_bytes <= MAX_HANDLING_BYTES
        if reading == self._reading or self._role is Role.CLIENT:
            return
        if self._closing or self.is_closed:
            return
        transport = cast(asyncio.Transport, self._transport)
        self._reading = reading
        if reading:
            self._begun_ns = 0  # an incomplete command had to wait here
            transport.resume_reading()
            self._handle_events()  # read before the pause
        else:
            transport.pause_reading()


def address_text(peername: object) -> str:
    """Return ``host:port`` of a socket address, ``[host]:port`` for IPv6, ``?`` if unknown."""
    if not isinstance(peername, tuple):
        return "?"
    host, port = peername[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _remark(text: str) -> str:
    # It may quote the request, and end up in another user's log or terminal.
    text = text[:_MAX_REMARK_CHARS]
    if not text.isprintable():
        text = "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
    return text[:_MAX_REMARK_CHARS]


def _unsupported(request: RemotingCommand) -> RemotingCommand:
    return request.response(
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {request.code} not supported"
    )
