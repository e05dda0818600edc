"""Histograms count values, and the core records the times of messages."""

from __future__ import annotations

import pytest

from proxy.core.jobs.measures import SECONDS, Histogram, Measures
from proxy.core.keys.ids import LeaseId
from proxy.core.leases.verdicts import Nack
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from testkit.messages import keyed, message
from testkit.pipelines import MS, lease, pipeline, rules

S = 1000 * MS


def seen(histogram: Histogram) -> dict[float, int]:
    """Return the number of values by the upper bound of their place, in seconds."""
    bounds = [*SECONDS, float("inf")]
    return {bounds[n]: count for n, count in enumerate(histogram.counts) if count}


def read(owned: QueuePipeline, *keys: str, at_ns: int, first: int = 0) -> None:
    owned.at(at_ns)
    owned.on_messages(
        [keyed(n, key) for n, key in enumerate(keys, first)], next_offset=first + len(keys)
    )


@pytest.mark.parametrize(
    ("values_s", "median_s"),
    [
        ((), None),
        ((0.02,), 0.025),
        ((0.02, 2, 3), 2.5),
        ((2, 2, 3, 4), 2.5),
        ((1, 9999, 9999), None),
    ],
)
def test_the_median_is_known_up_to_its_bound(
    values_s: tuple[float, ...], median_s: float | None
) -> None:
    histogram = Histogram()
    for value_s in values_s:
        histogram.note(int(value_s * S))
    assert histogram.median == (None if median_s is None else int(median_s * S))


def test_a_value_counts_at_the_first_bound_that_is_not_below_it() -> None:
    histogram = Histogram((10, 20))
    for value in (-5, 10, 11, 20, 21):
        histogram.note(value)
    histogram.note(15, 3)
    assert (histogram.counts, histogram.total) == ([2, 5, 1], 10 + 11 + 20 + 21 + 45)
    histogram.note_lowest(4)
    assert (histogram.counts, histogram.total) == ([6, 5, 1], 107 + 40)


@pytest.mark.parametrize(
    ("began_ns", "expected"),
    [
        ([], {}),
        ([S], {2.5: 1}),
        ([S, S, S], {2.5: 3}),
        ([S, 2 * S, S], {2.5: 2, 1.0: 1}),
        ([0, 0], {}),
        ([0, 2 * S], {1.0: 1}),
        ([S, 2 * S] * 10, {2.5: 10, 1.0: 10}),
        ([0, S, 2 * S] * 10, {2.5: 10, 1.0: 10}),
    ],
)
def test_values_with_the_same_start_are_recorded_together(
    began_ns: list[int], expected: dict[float, int]
) -> None:
    histogram = Histogram()
    histogram.note_since(began_ns, 3 * S)
    assert seen(histogram) == expected


def test_single_values_are_counted_like_those_of_batches() -> None:
    kept, batches = Histogram((10, 20)), Histogram((10, 20))
    values = [-5, 0, 10, 11, 20, 21] * 30  # more than are kept, and some that still are
    for value in values:
        kept.note_since([100 - value], 100)
        batches.note(value)
    assert (kept.counts, kept.total) == (batches.counts, batches.total)
    kept.note_since([0], 100)  # unknown
    assert sum(kept.counts) == len(values)


def test_a_message_waits_for_its_key_then_in_the_queue_then_for_its_client() -> None:
    owned, measures = pipeline(), Measures()
    owned.measured_by(measures)
    read(owned, "k", "k", "l", at_ns=S)
    lease(owned, now_ns=3 * S)  # k and l waited 2 s in the queue
    owned.settle(acked=[lease_id_at(owned, 0)], now_ns=6 * S)  # its handler took 3 s
    assert seen(measures.key_wait) == {5.0: 1}  # the other k: 5 s
    lease(owned, now_ns=26 * S)
    assert seen(measures.queue_wait) == {2.5: 2, 30.0: 1}
    assert (seen(measures.handler), measures.handler.total) == ({5.0: 1}, 3 * S)
    assert measures.attempts.counts[0] == 1


def lease_id_at(owned: QueuePipeline, offset: int) -> LeaseId:
    found = owned.leases.at(offset)
    assert found is not None
    return found.lease_id


def test_a_repeated_hand_out_waits_from_when_its_retry_was_due() -> None:
    owned = pipeline(rules(visibility_ns=60 * S))
    read(owned, "k", at_ns=S)
    (first,) = lease(owned, now_ns=S)
    owned.settle(nacked=[Nack(first.lease_id, retry_after_ms=4000)], now_ns=2 * S)
    owned.on_time(now_ns=7 * S)
    (second,) = lease(owned, now_ns=7 * S)  # due at 6 s
    assert seen(owned.observed.measures.queue_wait) == {0.001: 1, 1.0: 1}
    owned.settle(acked=[second.lease_id], now_ns=8 * S)
    assert owned.observed.measures.attempts.counts[1] == 1
    assert seen(owned.observed.measures.handler) == {1.0: 2}


def test_the_rest_of_a_run_waited_for_its_key_alone() -> None:
    owned = pipeline()
    read(owned, "k", "k", "k", at_ns=S)
    firsts = lease(owned, now_ns=2 * S)
    run = owned.lengthen(firsts, max_run=3, max_jobs=9, max_bytes=1 << 20)
    assert [each.granted_ns for each in run] == [2 * S] * 3
    assert seen(owned.observed.measures.queue_wait) == {1.0: 1}
    assert seen(owned.observed.measures.key_wait) == {1.0: 2}
    owned.settle(acked=[each.lease_id for each in run], now_ns=3 * S)
    assert seen(owned.observed.measures.handler) == {1.0: 3}


def test_the_age_of_a_queue_is_that_of_its_first_unfinished_message() -> None:
    owned = pipeline()
    assert owned.statistics().oldest_ms is None
    messages = [message(n, key=key, store_ms=1000 + n) for n, key in enumerate("abc")]
    owned.on_messages(messages, next_offset=3)
    leases = lease(owned)
    owned.settle(acked=[leases[1].lease_id], now_ns=0)
    assert owned.statistics().oldest_ms == 1000
    owned.settle(acked=[leases[0].lease_id], now_ns=0)
    assert owned.statistics().oldest_ms == 1002


def test_the_age_of_a_queue_is_known_where_its_first_message_was_read_again() -> None:
    owned = pipeline(rules(max_jobs=8, max_jobs_per_key=1))
    messages = [message(n, key="k", store_ms=1000 + n) for n in range(8)]
    owned.on_messages(messages, next_offset=8)
    (first,) = lease(owned)
    owned.room(demand=True)  # the window is pressed: the chain is spilled behind its first
    assert owned.jobs.spilled > 0
    effects = owned.settle(acked=[first.lease_id], now_ns=0)
    refills = effects.refills
    if not owned.jobs.chains.ready:
        assert owned.statistics().oldest_ms is None  # unknown, because it is not in memory
    for refill in refills:
        owned.refilled(refill, [messages[offset] for offset in refill.offsets])
    assert owned.statistics().oldest_ms == 1001
