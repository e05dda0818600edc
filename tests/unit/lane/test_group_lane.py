"""The shell around a group's buffer: timers, counts, histories, and notifications."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from broker_core.clock import now_ns
from broker_core.names import Topic
from proxy.core.group.group_buffer import Batch, GroupBuffer, PullWish
from proxy.core.jobs.chains import Job
from proxy.core.jobs.window import Budget
from proxy.core.keys.ids import LeaseId
from proxy.core.leases.lease_book import Holder
from proxy.core.leases.verdicts import Nack
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.lane.counts import TopicCounts
from proxy.lane.topic_rules import rules_of
from testkit.eventually import eventually
from testkit.lanes import GROUP, Listener, Notes, group_settings, make_lane
from testkit.messages import keyed, message
from testkit.pipelines import Budgets, pipeline, queue

MS = 1_000_000
ORDERS = Topic("orders")
QID = "broker-a_0#1"
PLACE = {"group": GROUP, "topic": "orders", "queue": "broker-a_0"}


class Bench:
    """A lane with one queue of *messages*, or the queues that a test adds."""

    def __init__(self, *, batch_wait_ms: int = 0, **settings: Any) -> None:
        self.listener, self.notes, self.memory = Listener(), Notes(), Budget(1 << 40)
        self.open_connections = {1, 2, 3}
        self.lane = make_lane(
            group_settings(**settings),
            memory=self.memory,
            history=self.notes,
            listener=self.listener,
            open_connections=self.open_connections,
            batch_wait_ms=batch_wait_ms,
        )

    def own(self, queue_id: int = 0, *messages: Any, **times: int) -> QueuePipeline:
        budgets = Budgets(self.memory, self.lane.leases_of_group)
        wanted = rules_of(self.lane.settings.topics[0])
        owned = pipeline(wanted, of=queue(queue_id), budgets=budgets, **times)
        self.lane.add(owned)
        if messages:
            self.read(owned, *messages)
        return owned

    def read(self, owned: QueuePipeline, *messages: Any) -> None:
        self.lane.on_messages(owned, messages, next_offset=messages[-1].queue_offset + 1)

    def lease(self, jobs: int = 99, *, connection: int = 1) -> list[Batch]:
        wish = PullWish(Holder(connection, f"client-{connection}"), None, jobs, 1 << 40)
        return self.lane.lease(wish, now_ns=now_ns())

    def settle(self, *, qid: str = QID, connection: int = 1, **verdicts: Any) -> list[int]:
        by_offset = partial(self.lane.settle_by_offset, connection=connection)
        settle = (
            self.lane.settle if verdicts.keys() & {"acked", "nacked", "released"} else by_offset
        )
        return [*settle("orders", qid, **verdicts)]

    @property
    def counts(self) -> TopicCounts:
        return self.lane.counts[ORDERS]


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.lane.close()


def ids(*numbers: int) -> list[LeaseId]:
    return [LeaseId(number) for number in numbers]


# ---- starving clients ---------------------------------------------------------------------------


async def test_a_queue_with_messages_for_the_next_client_does_not_starve(
    bench: Bench,
) -> None:
    owned = bench.own(0)
    wish = PullWish(Holder(1, "c"), None, 1, 1)
    assert not bench.lane.starves(owned)
    bench.lane.pull_waits(wish)
    assert bench.lane.starves(owned)
    bench.lane.pull_ends(wish, now_ns=now_ns())
    assert bench.lane.starves(owned)  # it is about to pull again

    bench.read(owned, keyed(0, "k"), keyed(1, "k"))
    assert not bench.lane.starves(owned)
    bench.lease(1)
    assert owned.ready == 0
    assert bench.lane.starves(owned)  # the remaining messages wait for their key
    bench.settle(acked=ids(1))
    assert not bench.lane.starves(owned)
    bench.lane.pull_waits(wish)
    assert bench.lane.starves(owned)  # few messages are ready, and a pull still waits


# ---- counts and histories -----------------------------------------------------------------------


async def test_every_event_is_counted_for_its_topic(bench: Bench) -> None:
    owned = bench.own(0, *(keyed(offset, str(offset)) for offset in range(6)))
    assert bench.settle(acked=ids(1)) == [1]
    bench.lease()
    verdicts = {"acked": ids(1), "nacked": [Nack(LeaseId(2))], "released": ids(3)}
    assert bench.settle(**verdicts) == []
    assert bench.settle(success=[3], failed=[4]) == []
    bench.lane.dead_lettered(owned, _rejected(bench, owned, lease_id=6))
    assert bench.counts == TopicCounts(
        delivered=6,
        acked=2,
        nacked=3,
        released=1,
        fenced=1,
        dead_lettered=Counter(rejected=1),
    )


def _rejected(bench: Bench, owned: QueuePipeline, *, lease_id: int) -> Job:
    bench.settle(nacked=[Nack(LeaseId(lease_id), reject=True)])
    (job,) = bench.listener.dead_letters
    return job


async def test_filtered_and_keyless_messages_are_counted() -> None:
    bench = Bench(tags="paid")
    bench.own(0, keyed(0, "k", tag="open"), message(1, tag="paid"), keyed(2, "k", tag="paid"))
    assert (bench.counts.filtered, bench.counts.missing_keys) == (1, {"by_queue": 1})
    bench.lane.close()


async def test_messages_without_the_order_key_are_counted_until_one_has_it() -> None:
    bench = Bench(tags="paid")
    owned = bench.own(0, message(0, tag="paid"), message(1, tag="open"), message(2, tag="paid"))
    assert bench.counts.keyless_in_a_row == 2, "the filtered one does not count"
    bench.read(owned, message(3, tag="paid"))
    assert bench.counts.keyless_in_a_row == 3
    bench.read(owned, message(4, tag="paid"), keyed(5, "k", tag="paid"))
    assert bench.counts.keyless_in_a_row == 0
    bench.read(owned, message(6, tag="paid"))
    bench.read(owned, keyed(7, "k", tag="paid"))
    assert bench.counts.keyless_in_a_row == 0
    bench.lane.close()


async def test_messages_under_other_settings_do_not_count_against_new_ones() -> None:
    bench = Bench(tags="paid", order_key="$.id")
    bench.own(0, *(message(n, tag="paid") for n in range(3)), message(3, tag="open"))
    assert (bench.counts.keyless_in_a_row, bench.counts.filtered_in_a_row) == (3, 1)
    bench.lane.apply(group_settings(tags="paid", order_key="$.id", max_deliveries=3))
    assert (bench.counts.keyless_in_a_row, bench.counts.filtered_in_a_row) == (3, 1)
    bench.lane.apply(group_settings(tags="paid", order_key="KEY"))
    assert (bench.counts.keyless_in_a_row, bench.counts.filtered_in_a_row) == (0, 1)
    bench.lane.apply(group_settings(tags="paid || open", order_key="KEY"))
    assert (bench.counts.keyless_in_a_row, bench.counts.filtered_in_a_row) == (0, 0)
    assert (bench.counts.filtered, bench.counts.missing_keys) == (1, {"by_queue": 3})
    bench.lane.close()


async def test_the_life_of_a_lease_is_in_the_history(bench: Bench) -> None:
    owned = bench.own(0, keyed(0, "k"), keyed(1, "k"), keyed(2, "l"))
    bench.lease()
    bench.settle(acked=ids(1, 9), nacked=[Nack(LeaseId(2), retry_after_ms=7)])
    bench.lease()
    assert bench.lane.extend("orders", QID, ids(3, 4), ms=10) == [4]
    bench.settle(released=ids(3))
    here = {**PLACE, "epoch": owned.epoch}
    first, second, third = bench.notes.of("deliver")
    assert first == {
        **here,
        "offset": 0,
        "msg": first["msg"],
        "order": "k",
        "attempt": 1,
        "lease": 1,
        "consumer": "client-1",
        "req": None,
        "run": None,
        "at_ns": first["at_ns"],
    }
    assert 0 < first["at_ns"] <= second["at_ns"]
    assert (second["offset"], third["offset"], third["lease"]) == (2, 1, 3)
    failed = bench.notes.of("ack_ok")[1]
    assert first["at_ns"] <= failed.pop("at_ns") <= third["at_ns"]
    assert bench.notes.of("ack_ok") == [
        {**here, "lease": 1, "offset": 0, "outcome": "ok"},
        {
            **here,
            "lease": 2,
            "offset": 2,
            "outcome": "retry",
            "after_ms": 7,
            "reason": "failed by its client",
        },
        {**here, "lease": 3, "offset": 1, "outcome": "defer"},
    ]
    assert bench.notes.of("ack_fenced") == [{**here, "lease": 9}]
    (finish,) = bench.notes.of("finish")
    decided_ns = finish.pop("at_ns")
    assert finish == {**here, "offset": 0, "outcome": "ok"}
    assert first["at_ns"] <= decided_ns <= third["at_ns"]
    (extension,) = bench.notes.of("extend")
    assert third["at_ns"] <= extension.pop("at_ns") <= now_ns()
    assert extension == {**here, "lease": 3, "ms": 10}


async def test_the_jobs_in_memory_are_in_the_history_at_intervals() -> None:
    bench = Bench(max_jobs_in_memory=4)
    owned = bench.own(0, keyed(0, "a"))
    bench.read(owned, keyed(1, "b"))
    here = {**PLACE, "epoch": owned.epoch}
    assert bench.notes.of("window") == [{**here, "jobs": 1, "limit": 4}]
    bench.read(owned, *(keyed(offset, str(offset)) for offset in range(2, 6)))
    assert (owned.position, bench.notes.of("window")[1:]) == (4, []), "no more than fit"
    owned.change_rules(replace(owned.rules, max_jobs=3))
    bench.read(owned, keyed(4, "e"))
    assert bench.notes.of("window")[1:] == [{**here, "jobs": 4, "limit": 3}], "at once"
    bench.lane.close()


async def test_a_stored_ownership_record_is_in_the_history(bench: Bench) -> None:
    owned = bench.own(0, keyed(0, "a"))
    bench.lane.recorded(owned, at=7, made_ns=5)
    here = {**PLACE, "epoch": owned.epoch}
    assert bench.notes.of("record") == [{**here, "at": 7, "made_ns": 5}]


async def test_a_waiting_pull_is_in_the_history(bench: Bench) -> None:
    consumes = ("consumes", {"group": GROUP, "topics": ["orders"]})
    wish = PullWish(Holder(1, "c"), frozenset({ORDERS}), 1, 1)
    bench.lane.pull_waits(wish)
    assert bench.lane.presence.waiting_pulls == 1
    bench.lane.pull_ends(wish, now_ns=now_ns())
    assert bench.lane.presence.waiting_pulls == 0
    fields = {"group": GROUP, "topics": ["orders"], "consumer": "c"}
    assert bench.notes.events == [consumes, ("pull_wait", fields), ("pull_end", fields)]


async def test_a_finish_is_written_before_the_delivery_that_it_allows(bench: Bench) -> None:
    bench.own(0, keyed(0, "k"), keyed(1, "k"))
    bench.lease()
    bench.notes.events.clear()
    bench.settle(acked=ids(1))
    bench.lease()
    assert [event for event, _ in bench.notes.events] == ["ack_ok", "finish", "deliver"]


async def test_a_verdict_on_a_period_that_is_not_ours_is_fenced_and_written(bench: Bench) -> None:
    bench.own(0, keyed(0, "k"))
    bench.lease()
    for qid in ("broker-a_0#2", "broker-a_5#1", "nonsense"):
        verdicts = {"acked": ids(1), "nacked": [Nack(LeaseId(2))], "released": ids(3)}
        assert bench.settle(qid=qid, **verdicts) == [1, 2, 3]
        assert bench.settle(qid=qid, success=[4], failed=[5]) == [4, 5]
        assert bench.lane.extend("orders", qid, ids(1), ms=10) == [1]
    assert bench.counts.fenced == 15
    assert bench.notes.of("ack_fenced")[0] == {**PLACE, "lease": 1}
    assert bench.lane.settle("other", QID, acked=ids(7)) == [7]
    assert list(bench.lane.counts) == ["orders"]  # clients cannot create labels


async def test_acks_by_offset_know_which_connections_are_open(bench: Bench) -> None:
    bench.own(0, keyed(0, "k"))
    bench.lease(connection=1)
    assert bench.settle(success=[0], connection=2) == [0]
    bench.open_connections.remove(1)
    assert bench.settle(success=[0], connection=2) == []


# ---- the timer ----------------------------------------------------------------------------------


async def test_the_timer_ends_leases_and_offers_their_jobs_again() -> None:
    bench = Bench(visibility_timeout_s=0.05)
    bench.own(0, keyed(0, "k"))
    (batch,) = bench.lease()
    await eventually(lambda: bench.counts.expired == 1)
    assert bench.notes.of("expire")[0]["lease"] == 1
    assert bench.settle(acked=ids(1)) == [1]
    (again,) = bench.lease()
    assert (again.leases[0].job, again.leases[0].lease_id) == (batch.leases[0].job, 2)
    bench.lane.close()


async def test_the_timer_fires_at_the_earliest_due_time_of_any_queue() -> None:
    bench = Bench(visibility_timeout_s=60.0)
    late, soon = bench.own(0, keyed(0, "k")), bench.own(1, keyed(0, "k"))
    bench.lease(1)
    bench.lease(1)
    bench.lane.presence.waits(None, 1)
    assert (late.statistics().leased, soon.statistics().leased) == (1, 1)
    bench.settle(qid="broker-a_1#1", nacked=[Nack(LeaseId(1), retry_after_ms=30)])
    assert not bench.lane.buffer.has_ready
    await eventually(lambda: bench.listener.told["ready"] == 1)
    assert soon.statistics().ready == 1
    bench.lane.close()


async def test_the_timer_leaves_queues_at_rest_alone() -> None:
    """Periodic work looks at queues that changed lately: a retry of one must not count for all."""
    bench = Bench(visibility_timeout_s=60.0)
    busy, *at_rest = [bench.own(number, keyed(0, "k")) for number in range(20)]
    for each in at_rest:
        bench.lane.recent.forget(each)
    (batch,) = bench.lease(1)
    assert batch.pipeline is busy
    for attempt in range(1, 4):
        bench.settle(nacked=[Nack(LeaseId(attempt), retry_after_ms=30)])
        await eventually(lambda: busy.statistics().ready == 1)
        busy.lease(max_jobs=1, max_bytes=1, now_ns=now_ns(), holder=Holder(1, "client-1"))
    assert [each for each in at_rest if each in bench.lane.recent] == []
    bench.lane.close()


async def test_each_of_many_queues_is_due_at_its_own_time() -> None:
    bench = Bench(visibility_timeout_s=60.0)
    owned = [bench.own(number, keyed(0, "k")) for number in range(20)]
    for _ in owned:
        bench.lease(1)
    delays_ms = [30 + 20 * (number * 7 % 20) for number in range(20)]
    for number, delay_ms in enumerate(delays_ms):
        bench.settle(qid=f"broker-a_{number}#1", nacked=[Nack(LeaseId(1), retry_after_ms=delay_ms)])
    bench.lane.remove(owned[0])
    began_ns = now_ns()
    for delay_ms, number in sorted(zip(delays_ms[1:], range(1, 20), strict=True)):
        await eventually(lambda number=number: owned[number].ready == 1)
        assert now_ns() - began_ns >= (delay_ms - 5) * MS
        due = {each for each in range(1, 20) if owned[each].ready}
        assert due == {each for each in range(1, 20) if delays_ms[each] <= delay_ms}
    bench.lane.close()


@pytest.mark.parametrize("stalled", [False, True])
async def test_a_bug_with_one_queue_does_not_stop_the_timer_of_others(stalled: bool) -> None:
    left, bugs = [KeyError("a bug")], list[object]()

    class Buggy(Listener):
        def on_settled(self) -> None:
            if leased.is_set() and left:
                raise left.pop()

    leased = asyncio.Event()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: bugs.append(context))
    lane = make_lane(group_settings(visibility_timeout_s=1.0), listener=Buggy())
    owned = [pipeline(rules_of(lane.settings.topics[0]), of=queue(number)) for number in range(3)]
    for each in owned:
        lane.add(each)
        lane.on_messages(each, [keyed(0, "k")], next_offset=1)
    leased_ns = now_ns()
    for _ in owned:
        lane.lease(PullWish(Holder(1, "c"), None, 99, 1 << 40), now_ns=leased_ns)
    assert [len(each.leases) for each in owned] == [1, 1, 1]
    leased.set()
    if stalled:
        lane.settle("orders", QID, acked=ids(1), at_ns=leased_ns + 5000 * MS)
        assert [len(each.leases) for each in owned] == [0, 0, 0]
    await eventually(lambda: [len(each.leases) for each in owned] == [0, 0, 0])
    assert (left, bugs) == ([], [])
    lane.close()


async def test_a_queue_held_back_by_a_take_over_wakes_waiting_pulls_when_its_time_comes() -> None:
    bench = Bench()
    bench.lane.presence.waits(None, 1)
    bench.own(0, keyed(0, "k"), hold_until_ns=now_ns() + 50 * MS)
    assert bench.lease() == []
    before = bench.listener.told["ready"]
    await eventually(lambda: bench.listener.told["ready"] > before)
    assert len(bench.lease()) == 1
    bench.lane.close()


async def test_a_closed_lane_has_no_timer() -> None:
    bench = Bench(visibility_timeout_s=0.05)
    bench.own(0, keyed(0, "k"))
    bench.lease()
    bench.lane.close()
    await asyncio.sleep(0.2)
    assert bench.counts.expired == 0
    bench.lane.close()


# ---- notifications ------------------------------------------------------------------------------


async def test_ready_jobs_are_notified_only_while_a_pull_waits(bench: Bench) -> None:
    owned = bench.own(0, keyed(0, "k"))
    assert bench.listener.told["ready"] == 0
    bench.lane.presence.waits(None, 1)
    bench.read(owned, keyed(1, "l"))
    assert bench.listener.told["ready"] == 1


async def test_readers_are_notified_whenever_a_lease_ends_or_memory_is_freed(bench: Bench) -> None:
    owned = bench.own(0, *(keyed(offset, str(offset)) for offset in range(5)))
    told = bench.listener.told
    (batch,) = bench.lease()
    assert told["settled"] == 1, "somebody is there: paused queues may be read on"
    told["settled"] = 0
    bench.settle(acked=ids(1))
    bench.settle(nacked=[Nack(LeaseId(2))])
    bench.settle(released=ids(3))
    bench.lane.return_unsent([batch])
    assert told["settled"] == 4
    bench.settle(acked=ids(1))  # fenced: no lease ended
    assert told["settled"] == 4
    bench.lane.remove(owned)
    assert told["settled"] == 5


async def test_unsent_leases_return_uncounted_and_ended_ones_stay_ended(
    bench: Bench,
) -> None:
    bench.own(0, keyed(0, "k"), keyed(1, "l"))
    (batch,) = bench.lease()
    bench.settle(acked=ids(1))
    bench.lane.return_unsent([batch])
    assert [(each["lease"], each["offset"]) for each in bench.notes.of("unsent")] == [(2, 1)]
    assert bench.counts.expired == 0
    (again,) = bench.lease()
    assert [(lease.job.offset, lease.job.attempts) for lease in again.leases] == [(1, 1)]


async def test_no_lease_of_a_lost_queue_returns(bench: Bench) -> None:
    owned = bench.own(0, keyed(0, "k"), keyed(1, "k"))
    batches = bench.lease()
    job = _rejected(bench, owned, lease_id=1)
    bench.lane.remove(owned)
    bench.lane.return_unsent(batches)
    bench.lane.dead_lettered(owned, job)
    assert (bench.counts.dead_lettered, bench.lane.leases_of_group.used) == ({}, 0)
    assert bench.settle(acked=ids(1)) == [1]
    assert bench.memory.used == 0


async def test_a_client_makes_its_group_take_part(bench: Bench) -> None:
    bench.lane.seen()
    bench.lane.presence.show([], shows_all=True)
    bench.lane.seen()
    assert bench.listener.told["wanted"] == 1


async def test_a_group_is_wanted_while_it_has_or_recently_had_clients(bench: Bench) -> None:
    lane = bench.lane
    assert not lane.presence.wanted(leave_after_s=60)
    lane.seen()
    assert lane.presence.wanted(leave_after_s=60)
    assert not lane.presence.wanted(leave_after_s=0)
    lane.presence.forget_clients()
    assert not lane.presence.wanted(leave_after_s=60)
    lane.presence.waits(None, 1)
    assert lane.presence.wanted(leave_after_s=0)
    lane.presence.waits(None, -1)
    bench.own(0, keyed(0, "k"))
    bench.lease()
    assert lane.presence.wanted(leave_after_s=0)
    bench.settle(acked=ids(1))
    assert not lane.presence.wanted(leave_after_s=0)


async def test_trust_never_moves_back_and_its_return_is_notified(bench: Bench) -> None:
    owned = bench.own(0, keyed(0, "k"), trusted_until_ns=now_ns() - 1)
    bench.lane.presence.waits(None, 1)
    later = now_ns() + 1000 * MS
    bench.lane.renewed(owned, later)
    assert bench.listener.told["ready"] == 1
    bench.lane.renewed(owned, later - 1)
    assert owned.trusted_until_ns == later
    assert bench.listener.told["ready"] == 1


async def test_statistics_are_one_record_a_queue(bench: Bench) -> None:
    bench.own(0, keyed(0, "k"), keyed(1, "k"))
    bench.own(1)
    await asyncio.sleep(0)
    assert [(each.queue.queue_id, each.unfinished) for each in bench.lane.statistics()] == [
        (0, 2),
        (1, 0),
    ]


# ---- the delivery policy ------------------------------------------------------------------------


async def test_the_delivery_policy_follows_the_settings_of_the_running_group(bench: Bench) -> None:
    """For queues that are owned, and for those that are acquired later."""
    messages = [keyed(offset, key) for offset, key in enumerate("abcccbb")]
    bench.own(0, *messages)
    assert _first_key(bench) == b"a"
    settings = bench.lane.settings.model_copy(update={"hand_out": "longest_chain"})
    bench.lane.apply(settings)
    assert _first_key(bench) == b"b"
    bench.own(1, *(keyed(offset, key) for offset, key in enumerate("xyyyyy")))
    assert [_first_key(bench), _first_key(bench)] == [b"c", b"y"]
    bench.lane.apply(settings.model_copy(update={"hand_out": "oldest"}))
    assert _first_key(bench) == b"x"


async def test_a_group_begins_with_the_delivery_policy_of_its_settings() -> None:
    made = Bench(hand_out="longest_chain")
    made.own(0, *(keyed(offset, key) for offset, key in enumerate("abb")))
    assert _first_key(made) == b"b"
    made.lane.close()


def _first_key(bench: Bench) -> bytes | None:
    (batch,) = bench.lease(1)
    return batch.leases[0].job.key


# ---- waits for further messages -----------------------------------------------------------------


async def test_under_load_pulls_with_free_places_wait_for_more_messages_but_not_for_acks() -> None:
    bench = Bench(batch_wait_ms=20)
    owned = bench.own(0)
    bench.lane.pull_waits(PullWish(Holder(1, "c"), None, 32, 1 << 20))

    offsets = iter(range(10_000))
    bench.read(owned, *(keyed(next(offsets), f"k{n}") for n in range(16)))
    assert bench.listener.told["ready"] == 1, "few messages came so far"
    assert sum(len(each.leases) for each in bench.lease()) == 16

    bench.read(owned, keyed(next(offsets), "k20"))
    assert bench.listener.told["ready"] == 1
    assert bench.counts.batch_waits == {"answer": 1}
    bench.read(owned, keyed(next(offsets), "k21"))
    assert bench.counts.batch_waits == {"answer": 1}, "the wait goes on"
    await eventually(lambda: bench.listener.told["ready"] == 2)

    bench.read(owned, keyed(next(offsets), "k22"))
    assert bench.listener.told["ready"] == 2
    bench.settle(acked=ids(1))
    assert bench.listener.told["ready"] == 3


async def test_pulls_with_a_single_place_do_not_wait_for_more_messages() -> None:
    bench = Bench(batch_wait_ms=20)
    owned = bench.own(0)
    for _ in range(2):
        bench.lane.pull_waits(PullWish(Holder(1, "c"), None, 1, 1 << 20))
    for offset in range(100):
        bench.read(owned, keyed(offset, f"k{offset}"))
        bench.lease(1)
    assert bench.listener.told["ready"] == 100
    assert not bench.counts.batch_waits


async def test_a_bug_with_one_queue_stops_no_timer_of_another_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its leases would end late, and the keys behind them wait."""
    bench = Bench(visibility_timeout_s=1)
    bad, good = bench.own(0, message(0)), bench.own(1, message(0, queue_id=1))
    assert [len(bench.lease()), len(bench.lease())] == [1, 1]
    fails = True
    on_time = QueuePipeline.on_time

    def faulty(self: QueuePipeline, *, now_ns: int) -> Any:
        if self is bad and fails:
            raise ValueError("a bug")
        return on_time(self, now_ns=now_ns)

    monkeypatch.setattr(QueuePipeline, "on_time", faulty)
    await asyncio.sleep(1.5)
    assert [len(each.leases) for each in (bad, good)] == [1, 0]
    fails = False
    await asyncio.sleep(1.5)
    assert not bad.leases
    bench.lane.close()


def test_queues_keep_the_rules_of_unchanged_topics_however_many_topics_there_are(
    bench: Bench,
) -> None:
    """Other rules cause a record in the history, and the keys that are not in memory are read
    again.
    """
    owned = bench.own()
    rules, noted = owned.rules, len(bench.notes.of("rules"))
    (topic,) = bench.lane.settings.topics
    for number in range(2_000):
        rules_of(topic.model_copy(update={"max_jobs_in_memory": 10_000 + number}))
    bench.lane.apply(bench.lane.settings.model_copy(update={"hand_out": "longest_chain"}))
    assert owned.rules is rules
    assert len(bench.notes.of("rules")) == noted
    changed = topic.model_copy(update={"max_jobs_in_memory": 9_999})
    bench.lane.apply(bench.lane.settings.model_copy(update={"topics": (changed,)}))
    assert owned.rules.max_jobs == 9_999


def test_the_queues_of_a_removed_topic_leave_without_a_look_at_the_others(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A removed topic of n queues took n² steps."""
    gone = [bench.own(number) for number in range(3)]
    kept = pipeline(of=queue(0, topic=Topic("kept")))
    bench.lane.add(kept)
    (topic,) = bench.lane.settings.topics
    remaining = topic.model_copy(update={"name": "kept"})
    bench.lane.apply(bench.lane.settings.model_copy(update={"topics": (remaining,)}))
    with monkeypatch.context() as patched:
        patched.setattr(GroupBuffer, "__iter__", lambda _: pytest.fail("all queues are looked at"))
        for number, each in enumerate(gone):
            assert (ORDERS in bench.lane.counts) is (number < len(gone))
            bench.lane.remove(each)
    assert ORDERS not in bench.lane.counts
    bench.lane.remove(gone[0])  # again: nothing happens
    assert list(bench.lane.buffer) == [kept]
