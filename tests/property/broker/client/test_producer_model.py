"""The producer over brokers that hold requests back, lose answers, refuse and reorder.

A list of all sends predicts the contents of the logs and the results of the callers.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core.client import SendReceipt, producer
from broker_core.client.producer import Outbound, Outcome, Producer
from broker_core.errors import BrokerError, ConnectionLost, NotSent, RemotingError
from broker_core.names import QueueName, Topic
from broker_core.remoting.message import OutgoingMessage
from broker_core.tasks import cancel_and_wait, spawn
from tests.support.examples import examples

TOPIC = Topic("orders")

#: A broker's reaction to a request: store it; store it and lose the answer; refuse it for a while,
#: or for good.
FATES = st.sampled_from(["ok", "ok", "ok", "lost", "busy", "illegal"])
KEYS = st.one_of(st.none(), st.integers(0, 3))
STEPS = st.one_of(
    st.tuples(st.just("send"), st.lists(KEYS, min_size=1, max_size=4)),
    st.tuples(st.just("answer"), st.tuples(st.integers(0, 99), FATES)),
    st.tuples(st.just("give up"), st.integers(0, 99)),
    st.tuples(st.just("route"), st.integers(2, 5)),
)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer, "FIRST_PAUSE_S", 0)
    monkeypatch.setattr(producer, "MAX_PAUSE_S", 0)


@dataclass(slots=True, eq=False)
class Request:
    queue: QueueName
    bodies: list[bytes]
    answer: asyncio.Future[list[SendReceipt]]


@dataclass(slots=True)
class Brokers:
    """Two brokers in place of a BrokerClient; requests wait until a step answers them."""

    queue_count: int = 4
    waiting: list[Request] = field(default_factory=list)
    log: dict[QueueName, list[bytes]] = field(default_factory=lambda: defaultdict(list))

    async def writable_queues(self, topic: Topic) -> list[QueueName]:
        await asyncio.sleep(0)
        half = self.queue_count // 2
        return [QueueName(topic, "a", n) for n in range(half)] + [
            QueueName(topic, "b", n) for n in range(self.queue_count - half)
        ]

    async def send(self, queue: QueueName, message: OutgoingMessage, **_: Any) -> SendReceipt:
        return (await self.send_batch(queue, [message]))[0]

    async def send_batch(
        self, queue: QueueName, messages: Sequence[OutgoingMessage], **_: Any
    ) -> list[SendReceipt]:
        bodies = [each.body for each in messages]
        request = Request(queue, bodies, asyncio.get_running_loop().create_future())
        self.waiting.append(request)
        try:
            return await request.answer
        finally:
            if request in self.waiting:  # its sender gave up
                self.waiting.remove(request)

    def settle(self, request: Request, fate: str) -> None:
        self.waiting.remove(request)
        queue, log = request.queue, self.log[request.queue]
        first = len(log)
        if fate in ("ok", "lost"):
            log += request.bodies
        if fate == "ok":
            request.answer.set_result(
                [
                    SendReceipt(queue=queue, offset=first + n, message_id="", offset_message_id="")
                    for n in range(len(request.bodies))
                ]
            )
        elif fate == "lost":
            request.answer.set_exception(ConnectionLost("the answer was lost"))
        else:
            code = 2 if fate == "busy" else 13
            request.answer.set_exception(BrokerError(code, fate))


@dataclass(slots=True, eq=False)
class Call:
    keys: list[int | None]
    bodies: list[bytes]
    task: asyncio.Task[list[Outcome]]


class Play:
    def __init__(self) -> None:
        self.brokers = Brokers()
        self.producer = Producer(self.brokers)  # type: ignore[arg-type]
        self.calls: list[Call] = []
        self._numbers = count()

    async def run(self, steps: list[tuple[str, Any]]) -> None:
        for step, about in steps:
            await self._do(step, about)
            await self._settled()
            self._check_on_the_way()
        while self.brokers.waiting:
            self.brokers.settle(self.brokers.waiting[0], "ok")
            await self._settled()
        self._check_the_end()

    async def _do(self, step: str, about: Any) -> None:
        if step == "send":
            bodies = [b"%d" % next(self._numbers) for _ in about]
            messages = [
                Outbound(OutgoingMessage(TOPIC, body), key)
                for body, key in zip(bodies, about, strict=True)
            ]
            sending = self.producer.send_batch(messages, timeout_s=3600)
            self.calls.append(Call(about, bodies, spawn(sending, name="send")))
        elif step == "answer" and self.brokers.waiting:
            number, fate = about
            self.brokers.settle(self.brokers.waiting[number % len(self.brokers.waiting)], fate)
        elif step == "give up" and self.calls:
            await cancel_and_wait(self.calls[about % len(self.calls)].task)
        elif step == "route":
            self.brokers.queue_count = about

    async def _settled(self) -> None:
        for _ in range(30):  # more passes of the loop than any chain of wake-ups takes
            await asyncio.sleep(0)

    def _check_on_the_way(self) -> None:
        """Check that each key has one call on the wire, and others wait for an earlier one."""
        on_the_wire = {body for request in self.brokers.waiting for body in request.bodies}
        sending: set[int] = set()
        before: set[int] = set()
        for call in self.calls:
            if call.task.done():
                continue
            keys = {key for key in call.keys if key is not None}
            going = {
                key for key, body in zip(call.keys, call.bodies, strict=True) if body in on_the_wire
            }
            assert not going & sending
            assert going or keys & before
            sending |= {key for key in going if key is not None}
            before |= keys

    def _check_the_end(self) -> None:
        assert all(call.task.done() for call in self.calls)
        assert self.producer.is_idle
        stored = {body for log in self.brokers.log.values() for body in log}
        queue_of: dict[bytes, set[QueueName]] = defaultdict(set)
        for queue, log in self.brokers.log.items():
            for body in log:
                queue_of[body].add(queue)
        for call in self.calls:
            for key, body, outcome in zip(call.keys, call.bodies, _outcomes(call), strict=True):
                if isinstance(outcome, SendReceipt):
                    assert self.brokers.log[outcome.queue][outcome.offset] == body
                elif isinstance(outcome, NotSent):
                    assert body not in stored
                # A retry of a keyed message never moves.
                assert key is None or len(queue_of[body]) <= 1
        self._check_order()

    def _check_order(self) -> None:
        """Check that a key's messages are in each queue in the order of the calls."""
        for log in self.brokers.log.values():
            first_seen = dict.fromkeys(log)
            for key in range(4):
                own = [
                    body
                    for call in self.calls
                    for each, body in zip(call.keys, call.bodies, strict=True)
                    if each == key and body in first_seen
                ]
                assert own == [body for body in first_seen if body in set(own)]


def _outcomes(call: Call) -> Sequence[Outcome | None]:
    return [None] * len(call.keys) if call.task.cancelled() else call.task.result()


@settings(max_examples=examples(250), deadline=None)
@given(st.lists(STEPS, max_size=40))
def test_keys_keep_their_order_whatever_brokers_do(steps: list[tuple[str, Any]]) -> None:
    asyncio.run(Play().run(steps))


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(FATES, max_size=8), st.integers(1, 5))
def test_those_behind_a_failure_are_not_sent(fates: list[str], behind: int) -> None:
    """Of concurrent sends of one key all are stored up to the first failure, and none after it."""

    async def play() -> None:
        brokers = Brokers()
        one = Producer(brokers)  # type: ignore[arg-type]
        calls = [
            spawn(one.send_batch([Outbound(OutgoingMessage(TOPIC, b"%d" % n), 7)]), name="send")
            for n in range(behind + 1)
        ]
        script = iter(fates)
        while not all(call.done() for call in calls):
            if brokers.waiting:
                brokers.settle(brokers.waiting[0], next(script, "ok"))
            await asyncio.sleep(0)
        failed = [isinstance(call.result()[0], RemotingError) for call in calls]
        assert failed == sorted(failed)
        assert all(
            isinstance(call.result()[0], NotSent) for call in calls[failed.count(False) + 1 :]
        )

    asyncio.run(play())
