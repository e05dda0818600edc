"""Simulations of order keys: order holds in virtual time, and times equal naive sums."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.keys.order_key import MissingKey
from proxy.tuning import simulator
from proxy.tuning.service_times import ServiceTimes
from proxy.tuning.simulator import Plan, Played, play
from tests.support.examples import examples
from tests.support.samples import Queues, by_key, naive_makespan_ns, sample_of

MS = 1_000_000
SERVICE = ServiceTimes(3, 80, seed=5)

queues_of_keys = st.lists(
    st.lists(st.sampled_from(["a", "b", "c", "d", None]), min_size=1, max_size=40),
    min_size=1,
    max_size=3,
)
plans = st.builds(
    Plan,
    workers=st.integers(1, 8),
    service=st.sampled_from([SERVICE, ServiceTimes(7, 7), ServiceTimes(1, 500, seed=2)]),
    round_trip_ns=st.sampled_from([0, 1, MS, 50 * MS]),
    prefetch=st.sampled_from([None, 0, 1]),
)


def chain_of(queues: Queues, queue: int, offset: int) -> tuple[int, str | None]:
    return queue, queues[queue][offset]


def intervals(played: Played, plan: Plan) -> dict[tuple[int, int], tuple[int, int]]:
    """Return start and end of each message, by its position."""
    assert played.starts is not None
    return {
        (queue, offset): (start, start + plan.service.ns(queue, offset))
        for queue, offset, start in played.starts
    }


@given(queues=queues_of_keys, plan=plans, window=st.sampled_from([4, 16, 20_000]))
@settings(max_examples=examples(200), deadline=None)
def test_each_message_is_handled_once_and_in_the_order_of_its_key(
    queues: Queues, plan: Plan, window: int
) -> None:
    """For any window, so that chains are spilled and read again; with at most the given handlers,
    and each at least one round trip after its predecessor.
    """
    rules = by_key(max_jobs=window, max_jobs_per_key=2)
    played = play(sample_of(queues), "KEY", rules, plan, starts=True)
    took = intervals(played, plan)

    assert len(took) == len(played.starts or ()) == sum(map(len, queues))
    ends: dict[tuple[int, str | None], int] = {}
    for (queue, offset), (start, end) in sorted(took.items()):
        chain = chain_of(queues, queue, offset)
        assert start >= ends.get(chain, -plan.round_trip_ns) + plan.round_trip_ns
        ends[chain] = end
    over: dict[str, int] = {}
    for (queue, offset), (start, end) in sorted(took.items(), key=lambda each: each[1]):
        if (key := queues[queue][offset]) is not None:
            assert start >= over.get(key, 0), "a client handles a key's messages one at a time"
            over[key] = end
    events = sorted([(s, 1) for s, _ in took.values()] + [(e, -1) for _, e in took.values()])
    busy = most = 0
    for _, change in events:
        busy += change
        most = max(most, busy)
    assert most <= plan.workers
    assert max(end for _, end in took.values()) <= played.total_ns
    assert played.work_ns == sum(end - start for start, end in took.values())


@given(queues=queues_of_keys, plan=plans, window=st.sampled_from([4, 20_000]))
@settings(max_examples=examples(50), deadline=None)
def test_a_core_that_measures_plays_the_same(queues: Queues, plan: Plan, window: int) -> None:
    """Simulations disable statistics, which must not influence decisions."""
    rules = by_key(max_jobs=window, max_jobs_per_key=2)
    played = play(sample_of(queues), "KEY", rules, plan, starts=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulator, "measure_nothing", lambda _pipeline: None)
        assert play(sample_of(queues), "KEY", rules, plan, starts=True) == played


@given(queues=queues_of_keys)
@settings(max_examples=examples(100), deadline=None)
def test_with_a_handler_for_everybody_the_longest_chain_is_the_time(queues: Queues) -> None:
    plan = Plan(1_000, SERVICE, round_trip_ns=0)

    assert play(sample_of(queues), "KEY", by_key(), plan).total_ns == naive_makespan_ns(
        queues, SERVICE
    )


@given(queues=queues_of_keys, workers=st.integers(1, 6))
@settings(max_examples=examples(150), deadline=None)
def test_no_handler_is_idle_while_a_key_could_go_on(queues: Queues, workers: int) -> None:
    """Work-conserving, if the client has enough capacity: when a message starts, each one that was
    ready earlier but starts later found all handlers busy, or one busy with its key. So the
    duration is within the bounds of any such schedule.
    """
    plan = Plan(workers, SERVICE, round_trip_ns=0, prefetch=1_000)
    played = play(sample_of(queues), "KEY", by_key(), plan, starts=True)
    took = intervals(played, plan)
    ready_at = {}
    ends: dict[tuple[int, str | None], int] = {}
    for place, (_, end) in sorted(took.items()):
        chain = chain_of(queues, *place)
        ready_at[place] = ends.get(chain, 0)
        ends[chain] = end
    for place, (start, _) in took.items():
        if start > ready_at[place]:
            just_before = start - 1
            busy = [other for other, (s, e) in took.items() if s <= just_before < e]
            key = queues[place[0]][place[1]]
            if key is None or key not in [queues[queue][offset] for queue, offset in busy]:
                assert len(busy) == workers, (place, ready_at[place], start)
    longest = naive_makespan_ns(queues, SERVICE)
    assert max(longest, played.work_ns / workers) <= played.total_ns
    assert played.total_ns <= played.work_ns / workers + longest


@given(queues=queues_of_keys, plan=plans)
@settings(max_examples=examples(50), deadline=None)
def test_the_same_sample_gives_the_same_figures(queues: Queues, plan: Plan) -> None:
    once, again = (play(sample_of(queues), "KEY", by_key(), plan, starts=True) for _ in range(2))

    assert once == again


def test_distinct_keys_take_as_long_as_the_longest_message() -> None:
    keys = [str(number) for number in range(300)]
    played = play(sample_of([keys]), "KEY", by_key(), Plan(300, SERVICE, round_trip_ns=0))

    assert played.total_ns == max(SERVICE.ns(0, offset) for offset in range(300))
    assert (played.longest_chain, max(played.key_waits_ns)) == (1, 0)


@pytest.mark.parametrize("round_trip_ms", [0, 2])
def test_one_key_takes_the_sum_of_its_messages(round_trip_ms: int) -> None:
    """With a round trip between two of them: the verdict, and then the next message."""
    plan = Plan(64, SERVICE, round_trip_ns=round_trip_ms * MS)
    played = play(sample_of([["a"] * 500]), "KEY", by_key(), plan)

    work_ns = sum(SERVICE.ns(0, offset) for offset in range(500))
    assert played.total_ns == work_ns + 499 * round_trip_ms * MS
    assert played.longest_chain == 500
    waits = sorted(played.key_waits_ns)
    last_ns = SERVICE.ns(0, 499)
    half_ns = round_trip_ms * MS // 2  # all are read when the first pull is sent
    assert (waits[0], waits[-1]) == (0, played.total_ns - last_ns + half_ns)


def test_a_long_chain_is_read_past_for_keys_that_stand_behind_it() -> None:
    """As a proxy does after a moment; otherwise three handlers would be idle until near the end,
    and the other keys' ten seconds would follow.
    """
    keys = ["stuck"] * 2000 + [f"k{number}" for number in range(300)]
    plan = Plan(4, ServiceTimes(100, 100), round_trip_ns=0)
    rules = by_key(max_jobs=400, max_jobs_per_key=4)
    played = play(sample_of([keys]), "KEY", rules, plan)

    assert played.total_ns == pytest.approx(2000 * 100 * MS, rel=0.03)


@pytest.mark.parametrize(
    ("missing", "seconds", "dead_lettered"),
    [
        (MissingKey.BY_QUEUE, 10.0, 0),
        (MissingKey.UNORDERED, 1.0, 0),
        (MissingKey.DEAD_LETTER, 0.0, 100),
    ],
)
def test_messages_without_the_key_go_as_the_group_says(
    missing: MissingKey, seconds: float, dead_lettered: int
) -> None:
    plan = Plan(10, ServiceTimes(100, 100), round_trip_ns=0)
    played = play(sample_of([[None] * 100]), "KEY", by_key(missing_key=missing), plan)

    assert (played.total_ns / 1e9, played.dead_lettered) == (seconds, dead_lettered)


def test_the_order_key_of_a_queue_is_the_queue() -> None:
    plan = Plan(64, ServiceTimes(10, 10), round_trip_ns=0)
    queues = [["a", "b", None] * 10, ["a"] * 5]
    played = play(sample_of(queues, "QID", "KEY"), "QID", by_key(), plan)

    assert (played.total_ns, played.longest_chain) == (30 * 10 * MS, 30)


def test_a_key_of_several_queues_has_one_handler_at_a_time() -> None:
    """As in thin clients; for more parallelism per key, send it to one queue."""
    plan = Plan(64, ServiceTimes(10, 10), round_trip_ns=0)
    queues = [["a"] * 20, ["a"] * 20, [None] * 20]
    played = play(sample_of(queues), "KEY", by_key(), plan)

    assert played.total_ns == 40 * 10 * MS
    assert max(played.key_waits_ns) == 39 * 10 * MS
