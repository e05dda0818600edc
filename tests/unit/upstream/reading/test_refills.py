"""Spilled messages are read again, in few reads, until they are read, deleted, or not owned any
more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from broker_core.client import PullResult, PullStatus
from broker_core.errors import RemotingError
from broker_core.remoting.message import StoredMessage
from proxy.core.jobs.refills import Refill
from proxy.core.jobs.window import Budget
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.core.records.record import Anchor
from proxy.net.wakeup import Signal
from proxy.upstream.reading import refills
from proxy.upstream.reading.refills import Refills
from testkit.eventually import eventually
from testkit.messages import keyed, message
from testkit.pipelines import Budgets, pipeline


class Desk:
    """A broker with the messages *there*, and the lane that receives them."""

    name = "billing"

    def __init__(
        self,
        there: range,
        *,
        before: Callable[[], None] = lambda: None,
        known: bool = True,
        memory: Budget | None = None,
    ) -> None:
        """*known*: a message is in memory, so the size of records is known."""
        self.there, self.before = there, before
        self.asked: list[tuple[int, int]] = []  # offset, how many
        self.given: list[tuple[Refill, list[int]]] = []
        self.settled = Signal()
        context = SimpleNamespace(client=self, settled=self.settled)
        self.refills = Refills(context)  # type: ignore[arg-type]
        self.pipeline = pipeline(
            messages=[keyed(0, "z")] if known else (), budgets=Budgets(memory or Budget(1 << 40))
        )

    async def pull(self, _queue: Any, *, offset: int, max_messages: int, **_: Any) -> PullResult:
        self.asked.append((offset, max_messages))
        self.before()
        if offset < self.there.start:
            status, messages, following = PullStatus.OFFSET_ILLEGAL, [], self.there.start
        else:
            found = range(offset, min(offset + max_messages, self.there.stop))
            status = PullStatus.FOUND if found else PullStatus.NO_NEW
            messages, following = [keyed(n, "k") for n in found], max(offset, found.stop)
        return PullResult(
            status=status,
            messages=messages,
            next_offset=following,
            min_offset=self.there.start,
            max_offset=self.there.stop,
        )

    def refilled(
        self, _pipeline: QueuePipeline, refill: Refill, messages: list[StoredMessage]
    ) -> None:
        self.given.append((refill, [message.queue_offset for message in messages]))

    def want(self, *wanted: Refill) -> None:
        for refill in wanted:
            self.refills.read(self, self.pipeline, refill)  # type: ignore[arg-type]

    async def read(self, *wanted: Refill) -> None:
        self.want(*wanted)
        await eventually(lambda: not self.refills.tasks())


async def test_near_offsets_of_several_keys_are_read_together_and_far_ones_apart() -> None:
    desk = Desk(range(2000))
    one, other = Refill(b"a", (3, 5, 9)), Refill(b"b", (4, 1000))
    await desk.read(one, other)
    assert desk.asked == [(3, 7), (1000, 1)]
    assert desk.given == [(one, [3, 5, 9]), (other, [4, 1000])]


async def test_few_messages_are_read_while_their_size_is_unknown() -> None:
    """They may have a megabyte each."""
    desk = Desk(range(2000), known=False)
    late = Refill(b"z", (0,))
    await desk.read(*(Refill(b"%d" % n, tuple(range(n, 1024, 16))) for n in range(1, 9)), late)
    before = [refill.key for refill, _ in desk.given].index(b"z")
    assert before == 4, "256 messages, then those that were wanted later"


async def test_messages_deleted_meanwhile_are_left_out() -> None:
    desk = Desk(range(8, 20))
    refill = Refill(b"a", (2, 3, 9))
    await desk.read(refill)
    assert desk.given == [(refill, [9])]


async def test_a_broker_that_fails_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refills, "FIRST_BACK_OFF_S", 0.001)
    failures = [RemotingError("away"), RemotingError("away")]

    def fail() -> None:
        if failures:
            raise failures.pop()

    desk = Desk(range(20), before=fail)
    refill = Refill(b"a", (3,))
    await desk.read(refill)
    assert (desk.asked, desk.given) == ([(3, 1)] * 3, [(refill, [3])])


async def test_what_the_broker_does_not_show_yet_is_not_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As after a restart of a master, until replicas have confirmed it."""
    monkeypatch.setattr(refills, "FIRST_BACK_OFF_S", 0.001)

    def show_one_more() -> None:
        desk.there = range(desk.there.stop + 1)

    desk = Desk(range(4), before=show_one_more)
    refill = Refill(b"a", (3, 6))
    await desk.read(refill)
    assert desk.asked == [(3, 4), (6, 1), (6, 1)]
    assert desk.given == [(refill, [3, 6])]


async def test_reading_ends_with_the_ownership_of_the_queue() -> None:
    def fail() -> None:
        desk.pipeline.close()
        raise RemotingError("away")

    desk = Desk(range(20), before=fail)
    await desk.read(Refill(b"a", (3,)), Refill(b"b", (4,)))
    assert desk.asked == [(3, 2)]


class _Recreated(Desk):
    """A broker without lives, whose topic was created again with these messages."""

    async def pull(self, queue: Any, **asked: Any) -> PullResult:
        result = await super().pull(queue, **asked)
        if asked["offset"] > self.there.stop:
            result = replace(
                result, status=PullStatus.OFFSET_ILLEGAL, next_offset=self.there.stop, messages=[]
            )
        newer = [message(each.queue_offset, place=1_000_000) for each in result.messages]
        if len(self.asked) == 3:
            self.pipeline.close()
        return replace(result, messages=newer)


@pytest.mark.parametrize("there", [range(20), range(3)])
async def test_messages_of_the_next_life_are_not_taken_for_spilled_ones(
    there: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were stored behind the last message that was read. The queue's reader checks it."""
    monkeypatch.setattr(refills, "FIRST_BACK_OFF_S", 0.001)
    desk = _Recreated(there)
    desk.pipeline.anchored(Anchor(9, 9000))
    await desk.read(Refill(b"a", (4, 8)))
    assert len(desk.asked) == 3
    assert desk.given == []
    assert desk.pipeline.life_in_doubt


async def test_spilled_messages_ahead_of_the_last_one_that_was_read_are_of_the_same_life() -> None:
    desk = Desk(range(20))
    desk.pipeline.anchored(Anchor(9, 9000))
    refill = Refill(b"a", (4, 9))
    await desk.read(refill)
    assert desk.given == [(refill, [4, 9])]
    assert not desk.pipeline.life_in_doubt


async def test_refills_requested_during_a_read_come_next() -> None:
    late = Refill(b"b", (7,))

    def want_more() -> None:
        if len(desk.asked) == 1:
            desk.refills.read(desk, desk.pipeline, late)  # type: ignore[arg-type]

    desk = Desk(range(20), before=want_more)
    first = Refill(b"a", (3,))
    await desk.read(first)
    assert desk.given == [(first, [3]), (late, [7])]


class _HalfDeleted(Desk):
    """A broker that has deleted a file of its log, but not corrected its queue yet."""

    async def pull(self, queue: Any, **asked: Any) -> PullResult:
        result = await super().pull(queue, **asked)
        left = [each for each in result.messages if each.queue_offset >= 5]
        return replace(result, messages=left)


async def test_deleted_messages_are_reported_with_their_offsets() -> None:
    """P3."""
    desk = _HalfDeleted(range(2000))
    wanted = Refill(b"a", (3, 4, 9))
    with capture_logs() as logs:
        await desk.read(wanted)
    assert desk.given == [(wanted, [9])]
    (told,) = logs
    assert (told["lost"], told["first_offset"], told["last_offset"]) == (2, 3, 4)
    assert told["event"] == "spilled messages were deleted before their turn came"


async def test_with_full_memory_a_queue_with_messages_to_offer_waits() -> None:
    desk = Desk(range(20))
    memory = desk.pipeline.jobs.window.memory
    memory.resize(memory.used)
    desk.want(refill := Refill(b"k", (9,)))
    await asyncio.sleep(5)
    assert desk.asked == [], "nothing is left, and the queue offers its first message"
    memory.resize(memory.limit + 1)
    desk.settled.fire()
    await eventually(lambda: desk.given == [(refill, [9])])


async def test_with_full_memory_a_queue_without_messages_reads_one_at_a_time() -> None:
    desk = Desk(range(20), known=False, memory=Budget(1000, used=1000))
    first, second = Refill(b"k", (3,)), Refill(b"l", (4,))
    desk.want(first, second)
    await eventually(lambda: desk.given == [(first, [3]), (second, [4])])
    assert desk.asked == [(3, 1), (4, 1)], "one at a time"


async def test_refills_have_reserved_memory_until_they_are_read() -> None:
    seen: list[int] = []
    desk = Desk(range(20), before=lambda: seen.append(desk.pipeline.jobs.window.memory.used))
    before = desk.pipeline.jobs.window.memory.used
    desk.want(Refill(b"k", (3, 4)))
    await eventually(lambda: bool(desk.given))
    assert seen == [3 * before], "as much as two like the one that is there"
    assert desk.pipeline.jobs.window.memory.used == before


async def test_a_bug_with_one_refill_costs_no_other_one() -> None:
    """Neither one of its pass, nor one that waits for the next pass."""

    class Lane(Desk):
        def refilled(self, pipeline: QueuePipeline, refill: Refill, messages: Any) -> None:
            if refill.key == b"bad":
                raise ValueError("a bug")
            super().refilled(pipeline, refill, messages)

    desk = Lane(range(2000), known=False)
    bad, beside = Refill(b"bad", (1,)), Refill(b"a", tuple(range(2, 256)))
    behind = Refill(b"b", tuple(range(300, 400)))
    with capture_logs() as logs:
        await desk.read(bad, beside, behind)
    assert [refill.key for refill, _ in desk.given] == [b"a", b"b"]
    (told,) = [each for each in logs if each["log_level"] == "error"]
    assert (told["first_offset"], told["reason"]) == (1, "a bug")


async def test_after_a_bug_in_a_pass_its_refills_are_read_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Pass(refills.RefillPass):
        def was_read(self, messages: Any, next_offset: int) -> Any:
            if any(message.queue_offset == 5 for message in messages):
                raise ValueError("a bad record")
            return super().was_read(messages, next_offset)

    monkeypatch.setattr(refills, "RefillPass", Pass)
    desk = Desk(range(2000))
    near, bad, far = Refill(b"a", (3,)), Refill(b"bad", (5,)), Refill(b"b", (1000,))
    with capture_logs() as logs:
        await desk.read(near, bad, far)
    assert desk.given == [(near, [3]), (far, [1000])]
    (told,) = [each for each in logs if each["log_level"] == "error"]
    assert (told["first_offset"], told["reason"]) == (5, "a bad record")
    assert desk.pipeline.jobs.window.memory.used == desk.pipeline.jobs.window.job_bytes


async def test_a_bug_of_the_relief_of_memory_drops_no_refill() -> None:
    """The keys that wait for it would stop for ever."""

    class Faulty(Budget):
        def relieve(self) -> None:
            raise ValueError("a bug with another queue")

    memory = Faulty(10_000)
    desk = Desk(range(20), memory=memory)
    memory.take(memory.limit)
    refill = Refill(b"a", (3,))
    desk.want(refill)
    await asyncio.sleep(5)
    assert (desk.given, len(desk.refills.tasks())) == ([], 1)
    memory.give_back(memory.limit)
    desk.settled.fire()
    await eventually(lambda: desk.given == [(refill, [3])])
