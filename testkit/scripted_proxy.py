"""A scripted proxy: a Thrift server of its own, without a broker or order."""

from __future__ import annotations

import asyncio
import ssl
import struct
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Self

from thrift.protocol.TCompactProtocol import TCompactProtocolAccelerated
from thrift.Thrift import TApplicationException, TMessageType
from thrift.transport.TTransport import TMemoryBuffer

from testkit.listening import end_listening
from thrift_idl import consumer, consumer_service, producer, producer_service


def _now_s() -> float:
    return time.monotonic()  # looked up on each call, since a simulated loop replaces it


class HangUp(Exception):
    """Raised by a script: close the connection without an answer."""


@dataclass
class Raw:
    """Returned by a script: send these bytes instead of an answer."""

    data: bytes
    then_hang_up: bool = False


@dataclass
class Request:
    """One received call."""

    method: str
    argument: Any
    connection: int
    number: int = 0
    at_s: float = field(default_factory=_now_s)
    #: Address of the proxy that received it.
    proxy: str = ""
    #: Whether it was answered: neither refused, nor lost on purpose.
    answered: bool = False

    @property
    def verdicts(self) -> list[tuple[int, str]]:
        """Return lease ids with ``ok``, ``retry``, ``reject`` or ``defer``."""
        found = []
        for batch in self.argument.acks or ():
            found += [(lease, "ok") for lease in batch.acked or ()]
            found += [(n.leaseId, "reject" if n.reject else "retry") for n in batch.nacked or ()]
            found += [(lease, "defer") for lease in batch.released or ()]
        return found


@dataclass
class ScriptedProxy:
    """Delivers the messages given to ``put`` and records every request.

    ``scripts`` override a method's answers. A script takes the Request and returns the answer's
    struct or Raw, or raises HangUp, PullException or TApplicationException; it answers one call,
    and calls without a script get the plain answer. *port*: 0 for any; *tls*: the context of a
    TLS-only server.
    """

    port: int = 0
    tls: ssl.SSLContext | None = None

    lease_ms: int = 1_000
    tell_home: bool = True
    requests: list[Request] = field(default_factory=list)
    scripts: dict[str, deque[Callable[[Request], Awaitable[Any]]]] = field(default_factory=dict)
    not_held: set[int] = field(default_factory=set)
    stored: list[producer.Message] = field(default_factory=list)
    #: Batches of ``sendEncoded``.
    encoded: list[producer.EncodedBatch] = field(default_factory=list)
    address: str = ""
    waiting_pulls: int = 0
    _messages: deque[consumer.Message] = field(default_factory=deque)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    _last_lease: int = 0
    _server: asyncio.Server | None = None
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)
    _serving: set[asyncio.Task[Any]] = field(default_factory=set)
    _connections: int = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self.tls)
        self.address = "{}:{}".format(*self._server.sockets[0].getsockname())
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        assert self._server is not None
        await end_listening(self._server)
        self.hang_up()
        for task in self._serving:
            task.cancel()
        if self._serving:
            await asyncio.wait(self._serving)
        await asyncio.sleep(0)  # the aborted connections close

    @property
    def open_connections(self) -> int:
        """The number of open connections."""
        return len(self._writers)

    @property
    def accepted(self) -> int:
        """The number of accepted connections so far."""
        return self._connections

    def lease_for(self, ms: int) -> None:
        """Lease messages for *ms* milliseconds from now on."""
        self.lease_ms = ms

    def lose(self, *leases: int) -> None:
        """Report *leases* as not held from now on."""
        self.not_held |= set(leases)

    def hide_home(self) -> None:
        """Omit the home from answers from now on."""
        self.tell_home = False

    async def plainly(self, request: Request) -> Any:
        """Return the answer to a call without a script; usable as a script."""
        if request.method == "sendEncoded":
            return self._store_encoded(request)
        return await getattr(self, f"_{request.method}")(request)

    def hang_up(self) -> None:
        """Close every open connection."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def put(self, *keys: str | None, body: bytes = b"{}") -> None:
        """Make a message of each key ready; lease ids count from 1 in this order."""
        async with self._changed:
            for key in keys:
                self._last_lease += 1
                number = self._last_lease
                self._messages.append(
                    consumer.Message(
                        key=key,
                        value=body,
                        offset=number - 1,
                        leaseId=number,
                        attempt=1,
                        bornAtMs=1_700_000_000_000,
                        orderKey=None if key is None else key.encode(),
                        messageId=f"M{number}",
                    )
                )
            self._changed.notify_all()

    def script(self, method: str, *answers: Callable[[Request], Awaitable[Any]]) -> None:
        """Answer the next calls of *method* by these scripts, one each."""
        self.scripts.setdefault(method, deque()).extend(answers)

    def of(self, method: str) -> list[Request]:
        """Return the requests of one method so far."""
        return [request for request in self.requests if request.method == method]

    @property
    def verdicts(self) -> list[tuple[int, str]]:
        """Return all verdicts so far, in order of arrival."""
        both = [request for request in self.requests if request.method in ("pull", "settle")]
        return [verdict for request in both for verdict in request.verdicts]

    async def until(self, condition: Callable[[], bool], timeout_s: float = 30.0) -> None:
        """Wait until *condition* holds; it is checked after every request."""
        async with asyncio.timeout(timeout_s), self._changed:
            await self._changed.wait_for(condition)

    def batch(self, *leases: consumer.Message, home: str | None = None) -> consumer.PullResponse:
        """Return an answer with these messages; *home* replaces this proxy's own address."""
        return consumer.PullResponse(
            context=consumer.Context(groupId="g", topic="orders", qid="broker-a_0#1"),
            messages=list(leases),
            leaseMs=self.lease_ms,
            home=(home or self.address) if self.tell_home else None,
        )

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        connection = self._connections
        self._writers.add(writer)
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            while True:
                (length,) = struct.unpack(">i", await reader.readexactly(4))
                frame = await reader.readexactly(length)
                answer = await self._answer(frame, connection)
                if isinstance(answer, Raw):
                    writer.write(answer.data)
                    if answer.then_hang_up:
                        writer.close()
                        await writer.wait_closed()
                        return
                    continue
                writer.write(struct.pack(">i", len(answer)) + answer)
        except (asyncio.IncompleteReadError, ConnectionError, HangUp, asyncio.CancelledError):
            pass
        finally:
            self._serving.discard(task)
            self._writers.discard(writer)
            writer.transport.abort()

    async def _answer(self, frame: bytes, connection: int) -> bytes | Raw:
        protocol = TCompactProtocolAccelerated(TMemoryBuffer(frame), fallback=False)
        method, _, sequence_id = protocol.readMessageBegin()
        of_producers = hasattr(producer_service, f"{method}_args")
        service = producer_service if of_producers else consumer_service
        arguments = getattr(service, f"{method}_args")()
        arguments.read(protocol)
        argument = next(getattr(arguments, name) for name in arguments.__slots__)
        request = Request(method, argument, connection, sequence_id, proxy=self.address)
        async with self._changed:
            self.requests.append(request)
            self._changed.notify_all()
        result = getattr(service, f"{method}_result")()
        kind = TMessageType.REPLY
        scripted = self.scripts.get(method)
        try:
            answer = scripted.popleft() if scripted else self.plainly
            result.success = await answer(request)
            if isinstance(result.success, Raw):
                return result.success
            request.answered = True
        except consumer.PullException as error:
            result = type(result)(error=error)
        except TApplicationException as error:
            result, kind = error.with_traceback(None), TMessageType.EXCEPTION
        buffer = TMemoryBuffer()
        protocol = TCompactProtocolAccelerated(buffer, fallback=False)
        protocol.writeMessageBegin(method, kind, sequence_id)
        result.write(protocol)
        return bytes(buffer.getvalue())

    # ---- plain answers --------------------------------------------------------------------------

    async def _pull(self, request: Request) -> consumer.PullResponse:
        linger_s = request.argument.maxLingerTime / 1000
        async with self._changed:
            self.waiting_pulls += 1
            self._changed.notify_all()
            try:
                async with asyncio.timeout(linger_s):
                    await self._changed.wait_for(lambda: bool(self._messages))
            except TimeoutError:
                return consumer.PullResponse(context=consumer.Context(), messages=[])
            finally:
                self.waiting_pulls -= 1
            count = min(len(self._messages), request.argument.maxBatchSize)
            return self.batch(*(self._messages.popleft() for _ in range(count)))

    async def _settle(self, request: Request) -> consumer.AckAnswer:
        return consumer.AckAnswer(
            notHeld=[
                consumer.LeaseRef(context=batch.context, leaseId=lease)
                for batch in request.argument.acks
                for lease in batch.acked or ()
                if lease in self.not_held
            ]
        )

    async def _extend(self, request: Request) -> consumer.AckAnswer:
        return consumer.AckAnswer(
            notHeld=[ref for ref in request.argument.leases if ref.leaseId in self.not_held]
        )

    async def _sendSync(self, request: Request) -> producer.Result:  # noqa: N802
        self.stored.append(request.argument)
        return producer.Result(code=0, msg="OK")

    def _store_encoded(self, request: Request) -> producer.EncodedResult:
        self.encoded.append(request.argument)
        return producer.EncodedResult(code=0)

    async def _sendBatchSync(self, request: Request) -> producer.Result:  # noqa: N802
        self.stored += request.argument
        return producer.Result(code=0, msg="OK")
