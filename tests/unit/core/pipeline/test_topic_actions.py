"""Actions before a delivery: contents of pulls, ends and failures of jobs."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from broker_core.names import QueueName, Topic
from broker_core.remoting.compression import SYS_COMPRESSED, ZLIB
from broker_core.remoting.message import StoredMessage
from proxy.core.group.group_buffer import GroupBuffer, PullWish
from proxy.core.jobs.chains import Job
from proxy.core.keys.ids import Epoch
from proxy.core.keys.topic_rules import TopicRules
from proxy.core.leases.lease_book import BESIDE_BYTES
from proxy.core.leases.verdicts import FailedAction, Filtered, Outcome
from proxy.core.parking.parked_copy import ORIGIN_EPOCH, ORIGIN_OFFSET
from proxy.core.parking.parking_pipeline import ParkingPipeline
from proxy.core.parking.twin_pipeline import TwinPipeline
from proxy.core.pipeline.actions import BYTES_OF_WORK, MAX_WORK
from proxy.core.pipeline.effects import Effects
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.lane.topic_rules import rules_of
from proxy.settings.groups import TopicSettings
from testkit.messages import message
from testkit.pipelines import (
    FOR_EVER_NS,
    HOLDER,
    MS,
    Budgets,
    lease,
    offsets,
    pipeline,
    queue,
)

WANTED = {"filter": {"where": "body.wanted"}}
NO_BODY = {"filter": {"where": "key == 'a' || key == 'b'"}}
NUMBER = {"transform": {"to": "body.n"}}


def acting(*actions: dict[str, Any], **topic: Any) -> TopicRules:
    return rules_of(
        TopicSettings.model_validate(
            {"name": "orders", "order_key": "KEY", "actions": list(actions), **topic}
        )
    )


def sent(offset: int, key: str = "a", *, wanted: object = True, **others: str) -> StoredMessage:
    body = orjson.dumps({"n": offset, "wanted": wanted})
    return message(offset, body=body, key=key, **others)


def arguments(rules: TopicRules, *, of: QueueName | None = None) -> dict[str, Any]:
    """Return the arguments of a pipeline that can park keys, or of its twin."""
    budgets = Budgets()
    return {
        "queue": of or queue(),
        "epoch": Epoch(1),
        "period": 1,
        "rules": rules,
        "start_offset": 0,
        "committed": 0,
        "trusted_until_ns": FOR_EVER_NS,
        "memory": budgets.memory,
        "leases_of_group": budgets.leases,
    }


def acted(of: QueuePipeline) -> Effects:
    effects = of.take_unreported()
    assert effects is not None
    assert of.take_unreported() is None, "reported once"
    return effects


def test_a_filtered_message_finishes_and_its_key_continues() -> None:
    here = pipeline(acting(WANTED), messages=[sent(n, wanted=n == 2) for n in range(3)])
    assert offsets(lease(here)) == [2]
    effects = acted(here)
    assert effects.finished == [(0, Outcome.FILTERED), (1, Outcome.FILTERED)]
    assert effects.filtered_by == {n: Filtered("action 1", n) for n in (0, 1)}
    assert (here.committable, effects.failed_actions) == (2, [])


def test_a_client_gets_the_body_that_was_made_and_the_job_keeps_its_own() -> None:
    budgets = Budgets()
    here = pipeline(acting(NUMBER), messages=[sent(12)], budgets=budgets)
    before = budgets.memory.used
    (each,) = lease(here)
    assert each.body == b"12"
    assert each.job.message is not None
    assert orjson.loads(each.job.message.body) == {"n": 12, "wanted": True}
    assert budgets.memory.used == before + 2
    here.settle(released=[each.lease_id], now_ns=0)
    assert (budgets.memory.used, here.take_unreported()) == (before, None)
    (again,) = lease(here)
    assert again.body == b"12"
    here.settle(acked=[again.lease_id], now_ns=0)
    assert budgets.memory.used == 0


def test_a_queue_that_is_lost_with_made_bodies_in_hand_gives_their_memory_back() -> None:
    budgets = Budgets()
    here = pipeline(acting(NUMBER), messages=[sent(1), sent(2, "b")], budgets=budgets)
    lease(here)
    here.close()
    assert (budgets.memory.used, budgets.leases.used) == (0, 0)


def test_an_answer_is_as_long_as_the_bodies_that_were_made() -> None:
    """The stored bodies do not count."""
    here = pipeline(acting(NUMBER), messages=[sent(n, f"k{n}") for n in range(9)])
    four = 4 * (BESIDE_BYTES + len("1") + len("KEYS=k0;") + len("k0"))
    assert len(here.lease(max_jobs=100, max_bytes=four, now_ns=0, holder=HOLDER)) == 4


def test_a_failed_action_is_a_failed_hand_out() -> None:
    rules = acting(WANTED, retry_intervals_ms=[10, 20], max_deliveries=3, on_exhausted="block")
    here = pipeline(rules, messages=[sent(0, wanted=1), sent(1)])
    reason = "action 1 (filter) gave a number, neither true nor false"
    assert lease(here) == []
    assert acted(here).failed_actions == [FailedAction(0, 0, b"a", 1, reason)]
    assert (here.leases.attempts, here.next_due_ns(0)) == ({0: 1}, 10 * MS)
    assert here.on_time(now_ns=10 * MS) == Effects()
    assert lease(here, now_ns=10 * MS) == [], "its key waits with it"
    assert acted(here).failed_actions == [FailedAction(0, 0, b"a", 2, reason)]
    assert (here.next_due_ns(10 * MS), here.committable) == (30 * MS, 0)


@pytest.mark.parametrize("actions", [(), (NO_BODY,)], ids=["none", "a filter without the body"])
def test_a_body_that_cannot_be_inflated_is_a_failed_hand_out(actions: tuple[Any, ...]) -> None:
    """Its key waits, as after any failure; a filter may still drop the message."""
    rules = acting(*actions, retry_intervals_ms=[10], max_deliveries=2, on_exhausted="dead_letter")
    broken = message(0, body=b"no zlib", key="a", sys_flag=SYS_COMPRESSED | ZLIB)
    here = pipeline(rules, messages=[broken, sent(1), sent(2, "b")])
    assert offsets(lease(here)) == [2]
    (failed,) = acted(here).failed_actions
    assert (failed.offset, failed.key, here.leases.attempts) == (0, b"a", {0: 1})
    assert failed.reason.startswith("the body is flagged as compressed by zlib, but cannot be")
    here.on_time(now_ns=10 * MS)
    assert lease(here, now_ns=10 * MS) == []
    (job,) = acted(here).dead_letters
    assert (job.offset, job.reason) == (0, failed.reason)
    here.dead_lettered(job)
    assert offsets(lease(here, now_ns=10 * MS)) == [1]


@pytest.mark.parametrize("policy", ["dead_letter", "park"])
def test_on_exhausted_counts_for_failed_actions(policy: str) -> None:
    rules = acting(WANTED, max_deliveries=2, on_exhausted=policy, retry_intervals_ms=[10])
    here = ParkingPipeline(**arguments(rules))
    here.on_messages([sent(0, wanted=None), sent(1)], next_offset=2)
    for now_ns in (0, 10 * MS):
        here.on_time(now_ns=now_ns)
        assert lease(here, now_ns=now_ns) == []
        effects = acted(here)
    if policy == "park":
        assert effects.parking
        reason = here.parked[b"a"].reason
        assert lease(here, now_ns=20 * MS) == []
    else:
        (job,) = effects.dead_letters
        assert here.dead_lettered(job).finished == [(0, Outcome.DEAD_LETTERED)]
        assert offsets(lease(here, now_ns=10 * MS)) == [1]
        reason = job.reason
    assert reason == "action 1 (filter) gave null, neither true nor false"


def test_an_action_fails_after_its_client_has_failed() -> None:
    """Both count as deliveries of the message, and a redelivery is transformed again."""
    fails_twice = {"filter": {"where": "body.wanted || body.n"}}
    here = pipeline(acting(fails_twice), messages=[sent(0)])
    (each,) = lease(here)
    here.on_time(now_ns=each.deadline_ns)
    here.change_rules(acting(fails_twice, {"filter": {"where": "body.gone"}}))
    assert lease(here, now_ns=each.deadline_ns) == []
    (failure,) = acted(here).failed_actions
    assert (failure.attempt, failure.reason) == (
        2,
        "action 2 (filter) gave null, neither true nor false",
    )


# ---- runs ---------------------------------------------------------------------------------------


def test_a_run_ends_before_a_message_that_an_action_stops() -> None:
    messages = [sent(0), sent(1), sent(2, wanted=False), sent(3), sent(4, wanted=None), sent(5)]
    here = pipeline(acting(WANTED, NUMBER), messages=messages)

    def run_of(now_ns: int = 0) -> list[int]:
        firsts = lease(here, now_ns=now_ns)
        leases = here.lengthen(firsts, max_run=9, max_jobs=9, max_bytes=9999)
        assert [each.body for each in leases] == [b"%d" % each.job.offset for each in leases]
        here.settle(acked=[each.lease_id for each in leases], now_ns=now_ns)
        return offsets(leases)

    assert run_of() == [0, 1]
    assert run_of() == [3]
    assert [outcome for _, outcome in acted(here).finished] == [Outcome.FILTERED]
    assert run_of() == []
    assert acted(here).failed_actions[0].offset == 4
    assert here.committable == 4


# ---- parked keys --------------------------------------------------------------------------------


def test_parked_messages_pass_the_actions_when_they_are_redriven() -> None:
    rules = acting(WANTED, {"transform": {"to": "[offset, queue]"}}, max_deliveries=1)
    here = ParkingPipeline(**arguments(rules))
    here.on_messages([sent(10)], next_offset=11)
    here.parking.park(b"a")
    here.parking.is_recorded([b"a"])
    (job,) = here.to_copy(b"a", jobs=9, body_bytes=9999)
    here.copied([job])
    twin = TwinPipeline(
        twin_of=here, must_read=4, **arguments(rules, of=queue(topic=Topic("%PARK%1")))
    )
    here.open_twin(twin)
    assert twin.has_rules(rules), "it has no tags of its own, but they are not others"
    copies = [
        sent(n, wanted=wanted, **{ORIGIN_OFFSET: str(10 + n), ORIGIN_EPOCH: "1"})
        for n, wanted in enumerate([True, False, True, None])
    ]
    twin.on_messages(copies, next_offset=4)
    (refill,) = twin.redrive(b"a").refills
    twin.refilled(refill, copies)
    (first,) = lease(twin)
    assert first.body == b'[10,"broker-a_0"]', "where the message itself stands"
    twin.settle(acked=[first.lease_id], now_ns=0)
    (third,) = lease(twin)
    assert third.body == b'[12,"broker-a_0"]'
    assert acted(twin).filtered_by == {1: Filtered("action 1", 11)}
    twin.settle(acked=[third.lease_id], now_ns=0)
    assert lease(twin) == []
    effects = acted(twin)
    assert (effects.stopped, effects.failed_actions[0].origin) == ([b"a"], 13)
    assert (list(twin.redrives.keys), twin.committable) == ([], 3), "it waits where it stands"


# ---- work limit of one pull ---------------------------------------------------------------------


def wish(**others: Any) -> PullWish:
    return PullWish(HOLDER, None, **{"max_jobs": 1000, "max_bytes": 1 << 30, **others})


def buffer_of(*pipelines: QueuePipeline) -> GroupBuffer:
    buffer = GroupBuffer(Budgets().leases)
    for each in pipelines:
        buffer.add(each)
    return buffer


def test_one_pull_stops_at_its_work_limit_and_the_next_continues() -> None:
    backlog = [sent(n, f"k{n}", wanted=n >= 600) for n in range(601)]
    here = pipeline(acting(WANTED), messages=backlog)
    buffer = buffer_of(here)
    for looked in (MAX_WORK, MAX_WORK, 600 - 2 * MAX_WORK):
        batches = buffer.lease(wish(), now_ns=0)
        ((of, effects),) = buffer.take_unreported()
        assert (of, len(effects.finished)) == (here, looked)
    assert [offsets(batch.leases) for batch in batches] == [[600]]
    assert buffer.take_unreported() == []


def test_passed_messages_count_as_work_and_long_bodies_count_more() -> None:
    long = "x" * (9 * BYTES_OF_WORK)
    messages = [sent(n, f"k{n}", wanted=long) for n in range(400)]
    here = pipeline(acting({"filter": {"where": "type(body.n) == 'number' && `true`"}}))
    here.on_messages(messages, next_offset=400)
    (batch,) = buffer_of(here).lease(wish(), now_ns=0)
    assert len(batch.leases) == -(-MAX_WORK // 10)


def test_a_queue_whose_filter_drops_everything_costs_others_no_turn() -> None:
    dropping = pipeline(acting(WANTED), of=queue(0))
    dropping.on_messages([sent(n, f"k{n}", wanted=False) for n in range(5000)], next_offset=5000)
    other_topic = pipeline(acting(), of=queue(0, topic=Topic("refunds")))
    other_topic.on_messages([sent(n, f"k{n}") for n in range(50)], next_offset=50)
    other_queue = pipeline(acting(WANTED), of=queue(1))
    other_queue.on_messages([sent(n, f"k{n}") for n in range(50)], next_offset=50)
    buffer = buffer_of(dropping, other_queue, other_topic)
    given: list[int] = []
    for _ in range(6):
        batches = buffer.lease(wish(max_jobs=10), now_ns=0)
        given.append(sum(len(batch.leases) for batch in batches))
        for of, _effects in buffer.take_unreported():
            buffer.refresh(of)
    assert given.count(0) <= 3, given


# ---- filters while reading ----------------------------------------------------------------------


@pytest.mark.parametrize(("setting", "kept"), [("drop", [0, 2]), ("pass", [0, 1, 2, 3])])
def test_shadow_traffic_ends_when_it_is_read(setting: str, kept: list[int]) -> None:
    here = pipeline(acting(pressure_traffic=setting))
    flags = ["false", "true", "", "TRUE"]
    messages = [sent(n, f"k{n}", isPressureTraffic=flag) for n, flag in enumerate(flags)]
    effects = here.on_messages(messages, next_offset=4)
    assert offsets(lease(here)) == kept
    dropped = {n: Filtered("shadow traffic", n) for n in range(4) if n not in kept}
    assert effects.filtered_by == dropped
    assert here.rules.filters == (["shadow traffic"] if dropped else [])


def test_topics_drop_shadow_traffic_unless_told_otherwise() -> None:
    """As in DDMQ: consumers that do not expect load tests must not take them for real."""
    assert rules_of(TopicSettings(name="orders")).drops_shadow_traffic


def test_a_job_without_its_message_is_an_error_of_ours() -> None:
    here = pipeline(acting(WANTED))
    here.jobs.admit(Job(0, b"a"))
    with pytest.raises(RuntimeError, match="without its message"):
        lease(here)
