"""A client connection of the Thrift port: passes calls to methods and writes their answers. No
decisions.

One request at a time, as DDMQ clients expect; further frames wait. A method answers through its
``Reply``, at once or later, so a waiting pull needs no task.

Incomplete requests and unread answers have a time limit, and large requests need free memory
(``load.py``). Requests that arrive in one read and are answered in one write avoid both costs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast

import structlog
from thrift.Thrift import TApplicationException

from broker_core.clock import now_ns
from broker_core.errors import RemotingError
from broker_core.tasks import spawn
from broker_core.time_slices import TimeSlices
from broker_core.tls import certificate_of
from proxy.core.group.token_bucket import TokenBucket
from proxy.core.limits.quotas import Account, OverQuota
from proxy.downstream.port.frames import (
    Call,
    FrameBuffer,
    FrameError,
    Spliced,
    encode_answer,
    encode_failure,
    encode_spliced,
)
from proxy.downstream.port.large_requests import SMALL_BYTES
from proxy.downstream.port.load import Load
from proxy.errors import OrderlaneError, Overloaded
from proxy.net.dead_peers import find_dead_peer
from proxy.net.overdue import Overdue
from proxy.net.tls import common_name
from proxy.observe.logs import NoisyLog
from proxy.settings.proxy_settings import LimitSettings

_log = structlog.get_logger("thrift")

T = TypeVar("T")

#: Bytes of further requests that are read ahead during a request; the rest waits in the client. Of
#: a larger request only the head is kept while memory is short.
_READ_AHEAD = 65536
#: Groups remembered per connection.
_MOST_PULLED = 16
#: Callers remembered per connection.
_MOST_ACCOUNTS = 16
#: Bytes passed to TLS at a time.
_TLS_PIECE = 65536


class Method(Protocol):
    """A method of a service: reads *arguments* and answers through *reply*, now or later."""

    def __call__(self, arguments: Any, reply: Reply, /) -> None:
        """Process one call."""


#: Answers a forbidden call; arguments are None if it was refused before they were decoded.
Refuse = Callable[[Any, "Reply", OrderlaneError], None]


#: Raises NotAllowed, or FrameError for invalid bytes, unless the call has valid credentials.
Authenticate = Callable[[Call, "Connection"], None]


def _fail(_arguments: Any, reply: Reply, error: OrderlaneError) -> None:
    reply.fail(error)


@dataclass(frozen=True, slots=True)
class Entry:
    """A method with its generated ``*_args`` class and its refusals."""

    arguments: Callable[[], Any]
    method: Method
    refuse: Refuse = _fail
    #: Answers when a limit is reached; arguments are None if there was no memory for them. None:
    #: like ``refuse``.
    shed: Refuse | None = None
    #: The method frees memory or keeps leases, so it is also served when memory is short, and above
    #: a rate or a quota.
    frees: bool = False
    #: Checks the credentials of a call that is not decoded yet; None: authentication is disabled.
    authenticate: Authenticate | None = None


class Server(Protocol):
    """The parts of the server that a connection uses."""

    @property
    def methods(self) -> Mapping[str, Entry]:
        """Methods of all services by name."""

    @property
    def limits(self) -> LimitSettings:
        """Limits of the port."""

    @property
    def load(self) -> Load:
        """Memory of all requests and answers of the port."""

    @property
    def time_slices(self) -> TimeSlices:
        """Time slices of the requests of all connections."""

    @property
    def noisy(self) -> NoisyLog:
        """Rate-limited log for events that clients can provoke."""

    @property
    def home_port(self) -> int | None:
        """Port to which clients return; None: the one that they connected to."""

    @property
    def unread(self) -> Overdue[Connection]:
        """Connections with an unsent answer."""

    @property
    def begun(self) -> Overdue[Connection]:
        """Connections with an incomplete request."""

    def admit(self, connection: Connection, /) -> bool:
        """Register a new connection; return False if a limit is reached."""

    def forget(self, connection: Connection, reason: BaseException | None, /) -> None:
        """Unregister a closed connection; *reason* is its transport's, if any."""

    def closed_for(self, connection: Connection, reason: str, /) -> None:
        """Close a connection that sent an invalid request."""

    def decode(self, connection: Connection, entry: Entry, call: Call, /) -> Any:
        """Return the arguments of a large call. Raises OrderlaneError to refuse it."""

    def refusal(
        self, connection: Connection, entry: Entry, /, *, passed_over: bool
    ) -> Overloaded | None:
        """Return the error for a request over a limit; None if it may proceed."""


def awaiting(handler: Callable[[Any, Reply], Coroutine[Any, Any, Any]]) -> Method:
    """Return a method for a coroutine function that returns the result struct."""

    def method(arguments: Any, reply: Reply) -> None:
        async def answer() -> None:
            try:
                reply(await _Metered(handler(arguments, reply), reply))
            except Exception as error:
                reply.fail(error)

        spawn(answer(), name=f"thrift {reply.call.name}")

    return method


class _Metered:
    """Awaits a coroutine and charges each of its steps to the account of *reply*."""

    __slots__ = ("_reply", "_work")

    def __init__(self, work: Coroutine[Any, Any, Any], reply: Reply) -> None:
        self._work = work
        self._reply = reply

    def __await__(self) -> Generator[Any, Any, Any]:
        work, metered = self._work, self._reply.metered
        step: Callable[..., Any] = work.send
        given: Any = None
        try:
            while True:
                try:
                    awaited = metered(step, given)
                except StopIteration as done:
                    return done.value
                try:
                    given = yield awaited
                    step = work.send
                except BaseException as error:  # as a cancellation: the coroutine decides
                    given, step = error.with_traceback(None), work.throw
        finally:
            del given  # an error would refer to this frame


class Reply:
    """The answer to one call. A second answer raises RuntimeError: a bug in the proxy."""

    __slots__ = (
        "_answered",
        "_metered",
        "account",
        "call",
        "connection",
        "interpretation",
        "on_lost",
        "principal",
    )

    def __init__(self, connection: Connection, call: Call) -> None:
        self.connection = connection
        self.call = call
        #: Called once if the connection ends before the whole answer has left the process.
        self.on_lost: Callable[[], None] | None = None
        #: As made by the gate, if it needed one; None otherwise.
        self.interpretation: Any = None
        #: The caller, once it is authenticated; None without authentication.
        self.principal: str | None = None
        #: Charged for the call; None: no account.
        self.account: Account | None = None
        self._metered = False  # its time on the event loop is being measured
        self._answered = False

    @property
    def answered(self) -> bool:
        """Whether the answer was given."""
        return self._answered

    def __call__(self, result: Any, if_lost: Callable[[], None] | None = None) -> None:
        """Answer with the generated ``*_result`` struct, or a struct with blobs to splice in.
        *if_lost*: as for ``call_if_lost``; None: as set before.
        """
        if if_lost is not None:
            self.on_lost = if_lost
        if self.account is not None and not self._metered:
            self.metered(self, result)
        elif isinstance(result, Spliced):
            self._send(encode_spliced(self.call, result))
        else:
            self._send(encode_answer(self.call, result))

    def charge_to(self, account: Account) -> None:
        """Charge the call to *account*, beginning with the bytes of its request."""
        self.account = account
        account.spend(size_bytes=self.connection.request_bytes)

    def metered(self, work: Callable[..., T], *arguments: Any) -> T:
        """Run *work* and charge its time on the event loop, once for nested calls."""
        if self.account is None or self._metered:
            return work(*arguments)
        self._metered = True
        began_ns = now_ns()
        try:
            return work(*arguments)
        finally:
            self._metered = False
            self.account.spend(loop_ns=now_ns() - began_ns)

    def fail(self, error: Exception) -> None:
        """Answer with an internal error; the client sees a TApplicationException."""
        method = self.call.name
        if isinstance(error, OrderlaneError | RemotingError):
            noisy = self.connection.server.noisy
            noisy.warning(f"failed {method}", "request failed", method=method, reason=str(error))
        else:
            _log.error("request failed", method=method, exc_info=error)
        if not self._answered:  # otherwise it failed after its answer: the client no longer waits
            sentence = f"{method} failed in the proxy: {error}"
            kind = TApplicationException.INTERNAL_ERROR
            self._send(encode_failure(self.call, kind, sentence))

    def call_if_lost(self, callback: Callable[[], None] | None) -> None:
        """Set *callback*, replacing any other: it is called once if the connection ends before the
        whole answer has left the process.
        """
        self.on_lost = callback

    def interpret_as(self, interpretation: Any) -> None:
        """Keep the gate's *interpretation* for the service."""
        self.interpretation = interpretation

    def identify(self, principal: str) -> None:
        """Name the authenticated caller."""
        self.principal = principal

    def lost(self) -> None:
        """Notify the callback that the answer was not sent completely."""
        on_lost, self.on_lost = self.on_lost, None
        if on_lost is not None:
            on_lost()

    def _send(self, frame: bytes | list[bytes]) -> None:
        if self._answered:
            raise RuntimeError(f"{self.call.name} was answered twice")
        self._answered = True
        if self.account is not None:
            size = len(frame) if isinstance(frame, bytes) else sum(map(len, frame))
            self.account.spend(size_bytes=size)
        self.connection.answer(self, frame)


class Connection(asyncio.Protocol):
    """One client connection."""

    def __init__(self, server: Server, connection_id: int) -> None:
        self.connection_id = connection_id
        self.address = ""
        self.home = ""
        #: Common name of the client's certificate; None without one.
        self.certificate_name: str | None = None
        self.server = server
        #: Rate limit of its requests; None: unlimited.
        self.bucket: TokenBucket | None = None
        #: Nanoseconds that its address may spend on decoding large requests; None: unlimited.
        self.decoding: TokenBucket | None = None
        self._transport: asyncio.Transport | None = None
        self._tls = False
        self._rest = memoryview(b"")  # unsent part of the answer, with TLS
        self._ending = False  # close once the answer of the current call has left
        self._frames = FrameBuffer(server.limits.max_frame_bytes)
        self._current: Reply | None = None  # until its whole answer has left the process
        self._request_bytes = 0  # of the current request
        self._unsent_bytes = 0  # upper bound for its unsent answer
        self._held_bytes = 0  # request, answer and read-ahead, counted in the server's load
        self._begun = False  # the next request is incomplete
        self._passing_over = False  # skipping that request for lack of memory
        self._in_line = False  # waiting for a time slice to read the next request
        self._writing_paused = False
        self._reading_paused = False
        #: Whether its client may continue at another proxy: its verdicts go to the leases' proxy.
        self.movable = False
        self._accounts: list[Account] = []  # of the callers that used it
        #: Groups of its recent pulls, with the client's own name in each.
        self.pulled: dict[str, str] = {}
        #: Sends an empty answer to the waiting pull; None without one.
        self.give_up: Callable[[], None] | None = None

    @property
    def certificate(self) -> bytes | None:
        """The client's certificate in DER; None without one."""
        return certificate_of(self._transport)

    @property
    def transport(self) -> asyncio.Transport | None:
        """None before the connection is open, and after its end."""
        return self._transport

    def limit_rate(self, bucket: TokenBucket) -> None:
        """Take a token from *bucket* for each request."""
        self.bucket = bucket

    def limit_decoding(self, bucket: TokenBucket) -> None:
        """Take the nanoseconds of decoding a large request from *bucket*."""
        self.decoding = bucket

    def pull_waits(self, give_up: Callable[[], None], *, movable: bool) -> None:
        """Register a waiting pull. *give_up* answers it with nothing; *movable*: see the
        attribute.
        """
        self.movable, self.give_up = movable, give_up

    def pull_answered(self) -> None:
        """Unregister the waiting pull."""
        self.give_up = None

    # ---- callbacks from asyncio -----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the connection."""
        self._transport = cast(asyncio.Transport, transport)
        # pause_writing is called as soon as bytes remain, resume_writing once all have left. TLS
        # counts from 1, so up to 64 KiB and one piece may remain unnoticed; leases of an answer
        # lost there run out. TLS would buffer megabytes at once, so it gets the answer in pieces.
        self._tls = transport.get_extra_info("sslcontext") is not None
        self._transport.set_write_buffer_limits(high=1 if self._tls else 0, low=0)
        self.certificate_name = common_name(transport.get_extra_info("peercert"))
        peer, own = (transport.get_extra_info(name) for name in ("peername", "sockname"))
        self.address = peer[0] if peer else ""
        self.home = _host_port(own[0], self.server.home_port or own[1]) if own else ""
        within_s = self.server.limits.dead_peer_s
        find_dead_peer(transport.get_extra_info("socket"), within_s=within_s)
        if not self.server.admit(self):
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Handle received bytes."""
        self._frames.receive_data(data)
        self._line_up()
        buffered = self._frames.buffered
        if not buffered and self._current is None:
            return  # answered at once
        self._count()
        busy = self._current is not None or self._in_line
        if busy and buffered > _READ_AHEAD and self._transport:
            self._reading_paused = True
            self._transport.pause_reading()

    def pause_writing(self) -> None:
        """Note that part of the answer was not sent yet."""
        self._writing_paused = True
        self.server.unread.begin(self)
        if self._transport is not None:
            self._unsent_bytes = self._transport.get_write_buffer_size() + len(self._rest)
            self._count()

    def resume_writing(self) -> None:
        """Note that all bytes have left the process: an answer's, or those of TLS itself."""
        self._writing_paused = False
        if self._rest:
            self._write_on()
            if self._writing_paused:
                return
        self.server.unread.end(self)
        self._unsent_bytes = 0
        self._count()
        if self._current is None or self._current.answered:
            self._done()
        if self._ending and self._current is None and self._transport is not None:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Connection closed: notify the unsent reply."""
        self._transport, self._rest = None, memoryview(b"")
        self._frames.clear()  # a running method may refer to this connection
        self.server.unread.end(self)
        self.server.begun.end(self)
        self.server.forget(self, exc)
        for account in self._accounts:
            account.disconnect()
        self._accounts.clear()
        reply, self._current = self._current, None
        goes_on = reply is not None and not reply.answered and reply.on_lost is None
        self._release(self._request_bytes if goes_on else 0)
        if reply is not None:
            reply.lost()

    # ---- used by the server ---------------------------------------------------------------------

    @property
    def request_bytes(self) -> int:
        """Length of the current request."""
        return self._request_bytes

    def count_for(self, account: Account) -> OverQuota | None:
        """Count the connection for the caller of a request; return a refusal above its quota."""
        if account in self._accounts:
            return None
        if len(self._accounts) == _MOST_ACCOUNTS:
            self._accounts.pop(0).disconnect()
        over = account.connect()
        if over is None:
            self._accounts.append(account)
        return over

    def pulls(self, group: str, client: str) -> None:
        """Note that the client, named *client*, pulls for *group*."""
        if group not in self.pulled and len(self.pulled) == _MOST_PULLED:
            del self.pulled[next(iter(self.pulled))]
        self.pulled[group] = client

    def answer(self, reply: Reply, frame: bytes | list[bytes]) -> None:
        """Write the answer to the current request, whole or in pieces; continue with the next
        request when it has left.
        """
        transport = self._transport
        if transport is None or transport.is_closing() or self._current is not reply:
            if transport is None:
                self._release(0)  # the method was still running, and ends now
            reply.lost()
            return
        if not reply.call.one_way:
            # Calls pause_writing if bytes remain, closes on an error.
            if self._tls:
                whole = frame if isinstance(frame, bytes) else b"".join(frame)
                self._rest = memoryview(whole)
                self._write_on()
            elif isinstance(frame, bytes):
                transport.write(frame)
            else:
                transport.writelines(frame)
        if not (self._writing_paused or transport.is_closing()):
            self._done()

    def close(self) -> None:
        """Close the connection once the answer of the current call has left: a client whose send
        may be stored would repeat it.
        """
        # TLS that closes does not report that the last bytes have left.
        if self._current is not None or self._writing_paused:
            self._ending = True
        elif self._transport is not None:
            self._transport.close()

    def close_if_idle(self) -> bool:
        """Close the connection if that loses nothing; return False during a call."""
        if self.give_up is not None:
            self.give_up()
        if self._current is not None or self._transport is None:
            return False
        self._transport.close()
        return True

    def abort(self) -> None:
        """Close the connection immediately."""
        if self._transport is not None:
            self._transport.abort()

    def _write_on(self) -> None:
        transport = cast(asyncio.Transport, self._transport)
        while self._rest and not (self._writing_paused or transport.is_closing()):
            piece, self._rest = self._rest[:_TLS_PIECE], self._rest[_TLS_PIECE:]
            transport.write(piece)

    def _count(self) -> None:
        """Report the memory held for this connection to the load."""
        frames = self._frames
        held = max(frames.buffered, frames.announced) + self._unsent_bytes
        if self._current is not None:
            held += self._request_bytes
        self._release(held)

    def _release(self, held_bytes: int) -> None:
        """Reduce the memory held for this connection to *held_bytes* at most."""
        changed = held_bytes - self._held_bytes
        if changed:
            self._held_bytes = held_bytes
            self.server.load.change(changed)

    def _done(self) -> None:
        self._current = None
        if self._held_bytes:
            self._count()
        if self._ending:
            self.close()
        if self._frames.buffered:
            asyncio.get_running_loop().call_soon(self._line_up)
        if self._reading_paused:
            self._go_on_reading()

    def _go_on_reading(self) -> None:
        if self._transport is not None:
            self._reading_paused = False
            self._transport.resume_reading()

    def _line_up(self) -> None:
        if self._current is None and not self._in_line:
            self._in_line = True
            self.server.time_slices.run(self._next_request)

    def _next_request(self) -> None:
        self._in_line = False
        transport, server = self._transport, self.server
        if self._current is not None or transport is None or transport.is_closing():
            return
        try:
            frame = self._frames.next_frame()
            if frame is None:
                self._await_rest()
                return
            if self._begun:
                self._begun = False
                server.begun.end(self)
            call = Call(frame)
            entry = server.methods.get(call.name)
            passed_over, self._passing_over = self._passing_over, False
            arguments = wrong = None
            if entry is not None and not passed_over:
                if len(frame) <= SMALL_BYTES:
                    arguments = call.decode(entry.arguments())
                else:
                    arguments = server.decode(self, entry, call)
        except FrameError as error:
            server.closed_for(self, str(error))
            return
        except OrderlaneError as error:
            wrong = error.with_traceback(None)
        self._request_bytes = call.frame_bytes
        self._current = reply = Reply(self, call)
        if entry is None:
            sentence = f"unknown method {call.name!r}"
            failure = encode_failure(call, TApplicationException.UNKNOWN_METHOD, sentence)
            self.answer(reply, failure)
            return
        try:
            if wrong is not None:
                over = isinstance(wrong, Overloaded) and entry.shed
                (over or entry.refuse)(None, reply, wrong)
                return
            load = server.load
            if load.used > load.limit or self.bucket is not None or passed_over:
                refusal = server.refusal(self, entry, passed_over=passed_over)
                if refusal is not None:
                    (entry.shed or entry.refuse)(arguments, reply, refusal)
                    return
            entry.method(arguments, reply)
        except Exception as error:
            reply.fail(error)

    def _await_rest(self) -> None:
        """Handle an incomplete request: limit its time and its memory."""
        frames, load = self._frames, self.server.load
        if frames.buffered:
            if not self._begun:
                self._begun = True
                self.server.begun.begin(self)
            is_news = frames.announced > max(self._held_bytes, _READ_AHEAD)
            if is_news and load.used - self._held_bytes + frames.announced > load.limit:
                self._passing_over = True
                frames.pass_over()
            self._count()
        if self._reading_paused:
            self._go_on_reading()


def _host_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
