from __future__ import annotations

from typing import Any

import pytest

from broker_core.names import Topic
from proxy.core.group.group_buffer import Batch, GroupBuffer, PullWish
from proxy.core.jobs.window import Budget
from proxy.core.keys.ids import Epoch
from proxy.core.leases.lease_book import BESIDE_BYTES
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.core.records.paused_key import EVERYTHING, PausedKey
from proxy.core.records.record import Snapshot
from testkit.messages import TOPIC, keyed, message
from testkit.pipelines import HOLDER, Budgets, offsets, pipeline, queue, rules

OTHER = Topic("payments")
#: Bytes of a message of ``filled``: its body, its property KEYS and its order key.
EACH = BESIDE_BYTES + 3 + len("KEYS=k0;") + 2


def wish(*topics: Topic, jobs: int = 100, max_bytes: int = 1 << 30, many: bool = False) -> PullWish:
    return PullWish(HOLDER, frozenset(topics) if topics else None, jobs, max_bytes, many)


def filled(
    *queues: tuple[Topic, int], jobs: int = 4, limit: int = 1000, **others: Any
) -> tuple[GroupBuffer, list[QueuePipeline]]:
    """Return a buffer of queues with *jobs* ready jobs of three bytes each."""
    leases = Budget(limit)
    buffer = GroupBuffer(leases)
    pipelines = [
        pipeline(
            rules(**others),
            of=queue(number, topic=topic),
            budgets=Budgets(leases=leases),
            messages=[keyed(offset, f"k{offset}") for offset in range(jobs)],
        )
        for topic, number in queues
    ]
    for each in pipelines:
        buffer.add(each)
    return buffer, pipelines


def served(batches: list[Batch]) -> list[tuple[str, int]]:
    return [(str(batch.pipeline.queue), len(batch.leases)) for batch in batches]


def test_a_batch_comes_from_one_queue_and_queues_take_turns() -> None:
    buffer, _ = filled((TOPIC, 0), (TOPIC, 1), (TOPIC, 2))
    answers = [served(buffer.lease(wish(jobs=2), now_ns=0)) for _ in range(7)]
    assert answers == [
        *([(f"orders/broker-a_{number}", 2)] for number in (0, 1, 2, 0, 1, 2)),
        [],
    ]


class _Counted(frozenset[Topic]):
    """Topics that count how often one is looked for among them."""

    looks = 0

    def __contains__(self, topic: object) -> bool:
        _Counted.looks += 1
        return super().__contains__(topic)


def test_a_pull_of_one_topic_looks_at_no_other() -> None:
    """A proxy that delivers thousands of topics itself pulls each of them."""
    buffer, _ = filled(*((Topic(f"t{number}"), 0) for number in range(50)))
    wanted = _Counted([Topic("t49")])
    _Counted.looks = 0
    assert served(buffer.lease(wish()._replace(topics=wanted), now_ns=0)) == [("t49/broker-a_0", 4)]
    assert buffer.lease(wish()._replace(topics=wanted), now_ns=0) == []
    assert _Counted.looks <= 2


def test_a_client_that_takes_several_queues_gets_one_batch_of_each() -> None:
    buffer, _ = filled((TOPIC, 0), (TOPIC, 1), (OTHER, 0))
    batches = buffer.lease(wish(jobs=9, many=True), now_ns=0)
    assert [count for _, count in served(batches)] == [4, 4, 1]


def test_topics_take_turns() -> None:
    buffer, _ = filled((TOPIC, 0), (OTHER, 0))
    answers = [served(buffer.lease(wish(jobs=1), now_ns=0))[0][0] for _ in range(4)]
    assert answers == ["orders/broker-a_0", "payments/broker-a_0"] * 2


def test_a_pull_that_gets_nothing_costs_no_topic_its_turn() -> None:
    """Pulls beyond ``max_leased_jobs`` in between must not starve a topic."""
    buffer, (orders, _payments) = filled((TOPIC, 0), (OTHER, 0), limit=1)
    seen = []
    for _ in range(4):
        (batch,) = buffer.lease(wish(jobs=1), now_ns=0)
        seen.append(batch.pipeline.queue.topic)
        assert buffer.lease(wish(jobs=1), now_ns=0) == []
        batch.pipeline.settle(acked=[batch.leases[0].lease_id], now_ns=0)
        buffer.refresh(batch.pipeline)
    assert seen == [orders.queue.topic, OTHER] * 2


def test_a_pull_gets_only_the_topics_that_it_wants() -> None:
    buffer, _ = filled((TOPIC, 0), (OTHER, 0))
    assert served(buffer.lease(wish(OTHER, many=True), now_ns=0)) == [("payments/broker-a_0", 4)]
    assert buffer.lease(wish(OTHER), now_ns=0) == []
    assert buffer.lease(wish(Topic("nothing")), now_ns=0) == []


def test_the_limits_of_a_pull_a_topic_and_the_group_all_hold() -> None:
    buffer, _ = filled((TOPIC, 0), (TOPIC, 1), jobs=10, limit=6, max_pull_batch=4)
    assert served(buffer.lease(wish(jobs=3), now_ns=0)) == [("orders/broker-a_0", 3)]
    assert served(buffer.lease(wish(many=True), now_ns=0)) == [("orders/broker-a_1", 3)]
    assert buffer.leases.used == buffer.leases.limit == 6
    assert buffer.lease(wish(), now_ns=0) == []


def test_the_limit_of_a_topic_is_one_of_each_queue_in_an_answer() -> None:
    buffer, _ = filled((TOPIC, 0), (TOPIC, 1), jobs=10, max_pull_batch=4)
    answer = served(buffer.lease(wish(many=True), now_ns=0))
    assert answer == [("orders/broker-a_0", 4), ("orders/broker-a_1", 4)]


def test_the_last_job_of_an_answer_may_overshoot_its_bytes_but_none_follows() -> None:
    buffer, _ = filled((TOPIC, 0), (TOPIC, 1))
    assert served(buffer.lease(wish(max_bytes=EACH + 1, many=True), now_ns=0)) == [
        ("orders/broker-a_0", 2)
    ]
    assert served(buffer.lease(wish(max_bytes=4 * EACH + 1, many=True), now_ns=0)) == [
        ("orders/broker-a_1", 4),
        ("orders/broker-a_0", 1),
    ]
    assert buffer.lease(wish(max_bytes=0), now_ns=0) == []


@pytest.mark.parametrize(("keys", "run"), [("abcdef", 1), ("a", 9)])
def test_properties_and_order_keys_count_in_an_answer_over_all_its_queues(
    keys: str, run: int
) -> None:
    """Each body has one byte; the key, a property and the order key, adds 1,000."""
    buffer, _ = filled()
    for number in (0, 1):
        long = [f"{each}{'k' * 499}" for each in (keys * 6)[:6]]
        sent = [message(offset, body=b"x", key=key) for offset, key in enumerate(long)]
        buffer.add(pipeline(of=queue(number), messages=sent))
    asked = wish(max_bytes=4_000, many=True)._replace(max_run=run)
    batches = buffer.lease(asked, now_ns=0)
    leases = [lease for batch in batches for lease in batch.leases]
    assert len(leases) == 4
    assert all(1_000 < lease.wire_bytes < 1_200 for lease in leases)


def test_a_queue_whose_trust_lapsed_holds_up_no_other() -> None:
    buffer, (other,) = filled((TOPIC, 1))
    messages = [keyed(offset, f"k{offset}") for offset in range(4)]
    lapsed = pipeline(of=queue(0), trusted_until_ns=10, messages=messages)
    buffer.add(lapsed)
    (batch,) = buffer.lease(wish(), now_ns=10)
    assert batch.pipeline is other
    lapsed.trust_until(20)
    buffer.refresh(lapsed)
    assert offsets(buffer.lease(wish(), now_ns=10)[0].leases) == [0, 1, 2, 3]


def test_a_queue_comes_back_to_its_turns_when_jobs_become_ready() -> None:
    buffer, (only,) = filled((TOPIC, 0), jobs=1)
    (batch,) = buffer.lease(wish(), now_ns=0)
    assert (buffer.ready_topics(), buffer.has_ready) == ([], False)
    only.settle(released=[batch.leases[0].lease_id], now_ns=0)
    buffer.refresh(only)
    assert (buffer.ready_topics(), buffer.has_ready) == ([TOPIC], True)


def test_a_queue_that_is_lost_is_gone_with_all_that_it_held() -> None:
    buffer, (lost, kept) = filled((TOPIC, 0), (TOPIC, 1))
    buffer.lease(wish(jobs=2), now_ns=0)
    buffer.remove(lost)
    buffer.refresh(lost)
    assert (buffer.find(lost.queue), buffer.find(kept.queue)) == (None, kept)
    assert (list(buffer), len(buffer), buffer.leases.used) == ([kept], 1, 0)
    assert served(buffer.lease(wish(many=True), now_ns=0)) == [("orders/broker-a_1", 4)]


def test_a_late_goodbye_does_not_drop_the_next_period_of_a_queue() -> None:
    buffer, (old,) = filled((TOPIC, 0))
    buffer.remove(old)
    new = pipeline()
    buffer.add(new)
    buffer.remove(old)
    assert buffer.find(old.queue) is new


def test_a_queue_has_one_pipeline() -> None:
    buffer, (_only,) = filled((TOPIC, 0))
    with pytest.raises(ValueError, match="orders/broker-a_0 already has a pipeline"):
        buffer.add(pipeline())


def test_a_group_is_paused_while_one_of_its_queues_here_is_as_a_whole() -> None:
    buffer, (first, second) = filled((TOPIC, 0), (TOPIC, 1))
    ann, ben = PausedKey(1, "ann"), PausedKey(2, "ben")
    first.pause(b"k0", ann)
    assert buffer.paused_whole is None
    assert first.pause(EVERYTHING, ann)
    assert not first.pause(EVERYTHING, ben), "it is ann's"
    second.pause(EVERYTHING, ben)
    assert buffer.paused_whole == ann

    first.resume(b"k0")
    assert buffer.paused_whole == ann
    assert first.resume(EVERYTHING) == ann
    assert first.resume(EVERYTHING) is None
    assert buffer.paused_whole == ben
    buffer.remove(second)
    assert buffer.paused_whole is None
    second.pause(EVERYTHING, ann)
    assert buffer.paused_whole is None, "its new owner's pause does not count"


def test_a_queue_that_comes_paused_says_so_of_its_group() -> None:
    ann = PausedKey(1, "ann")
    buffer, _ = filled((TOPIC, 0))
    records = Snapshot(Epoch(1), 0, 0, paused={EVERYTHING: ann})
    buffer.add(pipeline(rules(), of=queue(1, topic=TOPIC), resume=records))
    assert buffer.paused_whole == ann
