"""The scripted proxy of a case: offers messages, repeats lost answers, and fails on request."""

from __future__ import annotations

import asyncio
import json
import struct
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from thrift.Thrift import TApplicationException

from testkit.scripted_proxy import HangUp, Raw, Request, ScriptedProxy
from tests.conformance.clients.cases import FaultStep, Put
from thrift_idl import consumer, producer

GROUP = "g"

#: Topic, queue with suffix, lease id; lease ids restart in each queue.
LeaseName = tuple[str, str, int]


@dataclass
class Ready:
    """One message that waits for a pull, with data of its answer."""

    message: consumer.Message
    topic: str
    queue: str
    lease_ms: int
    home: str | None


def wire_message(put: Put, *, lease: int) -> consumer.Message:
    """Return the wire message for *put*."""
    order_text = None if put.unordered else put.order_key if put.order_key is not None else put.key
    order_key = None if order_text is None else order_text.encode()
    if put.order_key_hex is not None:
        order_key = bytes.fromhex(put.order_key_hex)
    text = put.body if isinstance(put.body, str) else json.dumps(put.body or {})
    value = b"x" * put.body_bytes if put.body_bytes else text.encode()
    message = consumer.Message(
        key=put.key,
        value=value,
        tag=put.tag,
        offset=lease - 1 if put.offset is None else put.offset,
        properties=put.properties,
        leaseId=lease,
        attempt=put.attempt,
        bornAtMs=put.born_at_ms,
        orderKey=order_key,
        messageId=put.message_id or f"M{lease}",
    )
    for name in put.without:
        setattr(message, name, None)
    return message


@dataclass
class CaseProxy(ScriptedProxy):
    """A proxy that calls *saw* for every request, before its answer."""

    name: str = "a"
    saw: Callable[[Request], None] = lambda _request: None
    homes: dict[LeaseName, str] = field(default_factory=dict)  # the reported address
    answers: list[consumer.PullResponse] = field(default_factory=list)
    _ready: deque[Ready] = field(default_factory=deque)
    _answers: dict[str, consumer.PullResponse] = field(default_factory=dict)

    async def __aenter__(self) -> CaseProxy:
        await super().__aenter__()
        self.port = int(self.address.rpartition(":")[2])  # the same after a restart
        return self

    async def make_ready(self, each: list[Ready]) -> None:
        """Offer messages to the next pulls."""
        async with self._changed:
            self._ready.extend(each)
            self._changed.notify_all()

    async def _pull(self, request: Request) -> consumer.PullResponse:
        """Repeat the answer for a known id; else return available messages, up to the limit."""
        self.saw(request)
        return await self._plain_pull(request)

    async def _plain_pull(self, request: Request) -> consumer.PullResponse:
        asked = request.argument
        known = self._answers.get(asked.requestId)
        if known is not None:
            self._note(known)
            return known
        linger_s = max(asked.maxLingerTime or 0, 20) / 1000
        async with self._changed:
            try:
                async with asyncio.timeout(linger_s):
                    await self._changed.wait_for(lambda: bool(self._ready))
            except TimeoutError:
                return consumer.PullResponse(context=consumer.Context(), messages=[])
            count = min(len(self._ready), asked.maxBatchSize or 8)
            answer = _answer([self._ready.popleft() for _ in range(count)])
        if asked.requestId:
            self._answers[asked.requestId] = answer
        self._note(answer)
        return answer

    def _note(self, answer: consumer.PullResponse) -> None:
        self.answers.append(answer)
        for part in (answer, *(answer.more or ())):
            for message in part.messages:
                name = (part.context.topic, part.context.qid, message.leaseId)
                self.homes[name] = part.home or answer.home or ""

    async def _settle(self, request: Request) -> consumer.AckAnswer:
        self.saw(request)
        return self._settled(request)

    def _settled(self, request: Request) -> consumer.AckAnswer:
        gone = [
            consumer.LeaseRef(context=batch.context, leaseId=lease)
            for batch in request.argument.acks
            for lease in (
                *(batch.acked or ()),
                *(nack.leaseId for nack in batch.nacked or ()),
                *(batch.released or ()),
            )
            if lease in self.not_held
        ]
        return consumer.AckAnswer(notHeld=gone)

    async def _extend(self, request: Request) -> consumer.AckAnswer:
        self.saw(request)
        return await super()._extend(request)

    async def _sendSync(self, request: Request) -> producer.Result:  # noqa: N802
        self.saw(request)
        return await super()._sendSync(request)

    async def _sendBatchSync(self, request: Request) -> producer.Result:  # noqa: N802
        self.saw(request)
        return await super()._sendBatchSync(request)

    async def _sendDelaySync(self, request: Request) -> producer.DelayResult:  # noqa: N802
        self.saw(request)
        return producer.DelayResult(code=18, msg="delays are not supported by this broker")

    # ---- faults -----------------------------------------------------------------------------

    def fail(self, step: FaultStep) -> None:
        """Make the next calls fail in this way."""

        async def script(request: Request) -> Any:
            self.saw(request)
            return await self._fail(step, request)

        self.script(step.of, *[script] * step.times)

    async def _plain(self, request: Request) -> Any:
        plain: Callable[[Request], Awaitable[Any]] = getattr(self, f"_{request.method}")
        saw, self.saw = self.saw, lambda _request: None  # already recorded
        try:
            return await plain(request)
        finally:
            self.saw = saw

    async def _fail(self, step: FaultStep, request: Request) -> Any:
        match step.fault:
            case "lose_request":
                raise HangUp
            case "lose_answer":
                await self._plain(request)
                raise HangUp
            case "late":
                answer = await self._plain(request)
                await asyncio.sleep(step.ms / 1000)
                return answer
            case "silent":
                await asyncio.sleep(3600)
            case "refuse":
                raise consumer.PullException(code=step.code, message=step.text)
            case "fault":
                raise TApplicationException(TApplicationException.INTERNAL_ERROR, step.text)
            case "unknown_method":
                raise TApplicationException(TApplicationException.UNKNOWN_METHOD, step.text)
            case "empty":
                return consumer.PullResponse(context=consumer.Context(), messages=[])
            case "not_held":
                refs = [r for r in _references(request) if r.leaseId in step.leases]
                return consumer.AckAnswer(notHeld=refs)
            case "result":
                return _result(step, request.method)
        return RAW[step.fault]


#: Invalid answers. The last two are whole frames with a valid header and a wrong name or number.
RAW = {
    "garbage": Raw(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"),
    "bad_length": Raw(struct.pack(">i", -7) + b"0123456789"),
    "huge_length": Raw(struct.pack(">i", 34_000_000) + b"\x82" * 1_000),
    "truncated": Raw(struct.pack(">i", 500) + b"\x82\x41\x01\x04pull", then_hang_up=True),
    "nothing": Raw(struct.pack(">i", 40) + b"\xff" * 40),
    "wrong_method": Raw(struct.pack(">i", 9) + b"\x82\x41\x01\x04push\x00"),
    "wrong_number": Raw(struct.pack(">i", 12) + b"\x82\x41\xff\xff\xff\x07\x04pull\x00"),
}


def _answer(ready: list[Ready]) -> consumer.PullResponse:
    """Return one batch per queue, in the order of their first messages."""
    parts: dict[tuple[str, str], consumer.PullResponse] = {}
    for each in ready:
        part = parts.get((each.topic, each.queue))
        if part is None:
            context = consumer.Context(groupId=GROUP, topic=each.topic, qid=each.queue)
            part = consumer.PullResponse(
                context=context, messages=[], leaseMs=each.lease_ms, home=each.home
            )
            parts[each.topic, each.queue] = part
        part.messages.append(each.message)
    first, *more = parts.values()
    for part in more:  # absent: as in the outer answer
        part.leaseMs = None if part.leaseMs == first.leaseMs else part.leaseMs
        part.home = None if part.home == first.home else part.home
    return consumer.PullResponse(
        context=first.context,
        messages=first.messages,
        leaseMs=first.leaseMs,
        home=first.home,
        more=more or None,
    )


def _references(request: Request) -> list[consumer.LeaseRef]:
    if request.method == "extend":
        return list(request.argument.leases)
    return [
        consumer.LeaseRef(context=batch.context, leaseId=lease)
        for batch in request.argument.acks or ()
        for lease in (*(batch.acked or ()), *(batch.released or ()))
    ]


def _result(step: FaultStep, method: str) -> producer.Result | producer.DelayResult:
    """Return the result of *method*; *results* are the codes of a batch's messages."""
    if method == "sendDelaySync":
        return producer.DelayResult(code=step.code, msg=step.text)
    messages = [
        producer.MessageResult(code=code, msg=None if code == 0 else f"{step.text} ({code})")
        for code in step.results
    ]
    return producer.Result(code=step.code, msg=step.text, messages=messages or None)
