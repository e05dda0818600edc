"""The proxy's own consumer of a topic: leasing, ends of attempts, limits."""

from __future__ import annotations

import asyncio

from broker_core.clock import now_ns
from proxy.delivery.deliverer import TargetDown, failed
from testkit.eventually import eventually
from testkit.messages import keyed, message
from tests.unit.delivery.deliveries import delivering

MS = 1_000_000


async def test_a_message_is_handed_to_the_deliverer_with_all_that_it_has() -> None:
    async with delivering() as it:
        names = {"trace": "t-1", "UNIQ_KEY": "id-7"}
        stored = message(7, body=b"body", key="k", tag="paid", **names)
        it.own(stored, start=7)
        await eventually(lambda: it.target.offsets == [7])
        (seen,) = it.target.seen
        assert (seen.group, seen.topic, seen.qid) == ("billing", "orders", "broker-a_0#1")
        assert (seen.queue, seen.offset) == ("broker-a_0", 7)
        assert (seen.key, seen.tag, seen.body, seen.order_key) == ("k", "paid", b"body", b"k")
        assert (seen.properties, seen.message_id, seen.attempt) == ({"trace": "t-1"}, "id-7", 1)
        assert 0 < seen.deadline_ns - now_ns() <= 30_000 * MS
        it.target.answer(7)
        await eventually(lambda: it.counts.delivered == 1)
        assert it.lane.leases_of_group.used == 0


async def test_as_many_as_it_may_are_under_way_and_never_two_of_a_key() -> None:
    async with delivering(concurrency=3) as it:
        it.own(*(keyed(n, key) for n, key in enumerate("aabbccdd")))
        await eventually(lambda: it.target.offsets == [0, 2, 4])
        assert it.lane.leases_of_group.used == 3  # no lease waits for an attempt
        it.target.answer(2)
        await eventually(lambda: it.target.offsets == [0, 2, 4, 3])
        it.target.answer(3)
        await eventually(lambda: it.target.offsets == [0, 2, 4, 3, 6])


async def test_a_failed_message_comes_again_before_its_key_goes_on() -> None:
    async with delivering() as it:
        it.own(keyed(0, "k"), keyed(1, "k"), keyed(2, "l"))
        await eventually(lambda: it.target.offsets == [0, 2])
        it.target.answer(0, failed("the target said no"))
        await eventually(lambda: it.target.offsets == [0, 2, 0])
        assert it.target.seen[-1].attempt == 2
        it.target.answer(0)
        await eventually(lambda: it.target.offsets == [0, 2, 0, 1])
        assert (it.counts.delivered, it.counts.failed) == (1, 1)


async def test_an_exception_is_a_failure_with_its_words() -> None:
    async with delivering(max_deliveries=1, on_exhausted="dead_letter") as it:
        it.own(keyed(0, "k"))
        await eventually(lambda: it.target.offsets == [0])
        it.target.answer(0, KeyError("no such field"))
        await eventually(lambda: len(it.listener.dead_letters) == 1)
        assert it.listener.dead_letters[0].reason == "KeyError: 'no such field'"


async def test_a_rejected_message_is_given_up_at_once() -> None:
    async with delivering(on_exhausted="dead_letter") as it:
        it.own(keyed(0, "k"))
        await eventually(lambda: it.target.offsets == [0])
        it.target.answer(0, failed("has no address", reject=True))
        await eventually(lambda: len(it.listener.dead_letters) == 1)
        assert it.listener.dead_letters[0].reason == "has no address"


async def test_an_attempt_without_an_answer_is_cut_off_and_has_failed() -> None:
    async with delivering(timeout_s=0.05, max_deliveries=1, on_exhausted="dead_letter") as it:
        it.own(keyed(0, "k"))
        await eventually(lambda: len(it.listener.dead_letters) == 1)
        assert it.target.cut == [0]
        assert it.listener.dead_letters[0].reason == "no answer within 0.05 s"


async def test_a_lease_runs_on_while_the_deliverer_works() -> None:
    async with delivering(visibility_timeout_s=0.6) as it:
        it.own(keyed(0, "k"))
        await eventually(lambda: len(it.notes.of("extend")) >= 3)
        assert it.notes.of("expire") == []
        it.target.answer(0)
        await eventually(lambda: it.counts.delivered == 1)
        assert it.target.offsets == [0]


async def test_an_attempt_whose_lease_cannot_run_on_is_cut_off_before_it_ends() -> None:
    """After a drain, the next owner may have the message once the lease is over."""
    async with delivering(visibility_timeout_s=1.0) as it:
        owned = it.own(keyed(0, "k"))
        await eventually(lambda: it.target.offsets == [0])
        owned.drain()
        owned.refuse_extensions()
        await eventually(lambda: it.target.cut == [0])
        await eventually(lambda: it.lane.leases_of_group.used == 0)
        assert it.notes.of("expire") == []
        assert [each["outcome"] for each in it.notes.of("ack_ok")] == ["defer"]
        assert it.counts.cut == 1


async def test_an_attempt_whose_queue_was_lost_is_cut_off() -> None:
    async with delivering(visibility_timeout_s=0.2) as it:
        owned = it.own(keyed(0, "k"))
        await eventually(lambda: it.target.offsets == [0])
        it.lane.remove(owned)
        await eventually(lambda: it.target.cut == [0])
        await eventually(lambda: it.delivery.under_way == 0)
        assert it.notes.of("ack_ok") == []


async def test_a_target_that_is_down_costs_no_message_an_attempt_and_is_tried_by_one() -> None:
    async with delivering(concurrency=4, max_deliveries=2) as it:
        it.own(*(keyed(n, f"k{n}") for n in range(6)))
        await eventually(lambda: it.target.offsets == [0, 1, 2, 3])
        for offset in range(4):
            it.target.answer(offset, TargetDown("connection refused"))
        await eventually(lambda: it.counts.unreached == 4)
        assert it.delivery.pause.reason == "connection refused"
        for tries in (5, 6, 7):
            await eventually(lambda tries=tries: len(it.target.seen) == tries)
            assert len(it.target.open) == 1
            it.target.answer(it.target.seen[-1].offset, TargetDown("connection refused"))
        await eventually(lambda: len(it.target.seen) == 8)
        it.target.answer(it.target.seen[-1].offset)
        await eventually(lambda: len(it.target.open) == 4)
        assert {each.attempt for each in it.target.seen} == {1}
        assert it.delivery.pause.down_since_ns is None
        ends = [each for each in it.notes.of("handle_end") if each["outcome"] == "defer"]
        assert {each["reason"] for each in ends} == {"connection refused"}
        assert it.listener.dead_letters == []


async def test_while_it_has_room_and_nothing_is_ready_it_counts_as_a_pull_that_waits() -> None:
    async with delivering(concurrency=1) as it:
        assert it.lane.presence.waiting_pulls == 1
        owned = it.own(keyed(0, "k"))
        await eventually(lambda: it.target.offsets == [0])
        assert it.lane.presence.waiting_pulls == 0
        it.target.answer(0)
        await eventually(lambda: it.lane.presence.waiting_pulls == 1)
        it.feed(owned, keyed(1, "k"))
        await eventually(lambda: it.target.offsets == [0, 1])
        begun, ended = it.notes.of("pull_wait"), it.notes.of("pull_end")
        assert len(begun) == len(ended) == 2
        assert begun[0]["topics"] == ["orders"]


async def test_stopped_it_takes_nothing_more_and_ends_what_it_has() -> None:
    async with delivering(concurrency=1) as it:
        it.own(keyed(0, "k"), keyed(1, "k"))
        await eventually(lambda: it.target.offsets == [0])
        closing = asyncio.ensure_future(it.delivery.close(wait=True))  # noqa: TID251
        await eventually(lambda: it.lane.presence.waiting_pulls == 0)
        assert not it.target.closed
        it.target.answer(0)
        await closing
        assert (it.target.offsets, it.counts.delivered, it.target.closed) == ([0], 1, True)


async def test_attempts_are_in_the_history_like_those_of_any_client() -> None:
    async with delivering() as it:
        it.own(keyed(0, "k"))
        await eventually(lambda: it.target.offsets == [0])
        it.target.answer(0, failed("no"))
        await eventually(lambda: it.target.offsets == [0, 0])
        it.target.answer(0)
        await eventually(lambda: it.counts.delivered == 1)
        seen = [
            (name, fields["offset"], fields["attempt"], fields.get("outcome"))
            for name, fields in it.notes.events
            if name.startswith("handle")
        ]
        assert seen == [
            ("handle_start", 0, 1, None),
            ("handle_end", 0, 1, "retry"),
            ("handle_start", 0, 2, None),
            ("handle_end", 0, 2, "ok"),
        ]
        assert {each["consumer"] for each in it.notes.of("deliver")} == {"proxy us@1#1"}
        assert [each.get("reason") for each in it.notes.of("ack_ok")] == ["no", None]


class OneAtATime:
    """A pace that a test controls."""

    def __init__(self) -> None:
        self.tokens = 0
        self.again_ns = 0
        self.taken = 0  # and not given back
        self.most = 0  # at a time

    def take(self, wanted: int, now_ns: int) -> int:
        if now_ns >= self.again_ns:
            self.tokens = 1
        taken = min(wanted, self.tokens)
        self.tokens -= taken
        self.taken += taken
        self.most = max(self.most, taken)
        if taken:
            self.again_ns = now_ns + 100 * MS
        return taken

    def give_back(self, unused: int) -> None:
        self.tokens += unused
        self.taken -= unused

    def wait_ns(self, now_ns: int) -> int:
        return 0 if self.tokens else max(0, self.again_ns - now_ns)

    def is_slow(self, now_ns: int) -> bool:
        return False


async def test_the_targets_pace_is_kept_and_nothing_waits_in_hand() -> None:
    pace = OneAtATime()
    async with delivering(pace=pace) as it:
        it.own(*(keyed(n, f"k{n}") for n in range(3)))
        for number in range(3):
            await eventually(lambda number=number: number in it.target.open)
            assert it.lane.leases_of_group.used == len(it.target.open)
            assert len(it.target.seen) == pace.taken
            it.target.answer(number)
        assert pace.most == 1
