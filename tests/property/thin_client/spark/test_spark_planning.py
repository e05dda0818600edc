"""Planning of bulk reads: every existing offset is planned once, in order."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from thin_client.spark.admission import Admission, proportional
from thin_client.spark.offsets import (
    Offsets,
    Queue,
    QueueState,
    Slice,
    batch_of,
    ends,
    flat,
    from_json,
    sorted_offsets,
    stream_offset,
    to_json,
)
from thin_client.spark.options import ReadOptions
from thin_client.spark.planning import plan_batch, plan_stream, split

QUEUES: list[Queue] = [
    (topic, f"broker-{each}") for topic in ("a", "b") for each in "a_0 b_1".split()
]
OFFSET = st.integers(0, 20)
SELECTED = {"servers": "proxy", "group": "lake", "subscribe": "a,b"}


@st.composite
def states(draw: st.DrawFn) -> list[QueueState]:
    """Generate some of the queues, each with any range of messages."""
    found = []
    for topic, qid in draw(st.lists(st.sampled_from(QUEUES), unique=True)):
        begin, size = draw(OFFSET), draw(OFFSET)
        found.append(QueueState(topic, qid, begin, begin + size))
    return found


POSITIONS = st.dictionaries(st.sampled_from(QUEUES), OFFSET).map(
    lambda d: sorted_offsets(d.items())
)
SLICES = st.lists(
    st.tuples(st.sampled_from(QUEUES), st.integers(0, 2**62), st.integers(0, 2**40)),
    unique_by=lambda each: each[0],
).map(lambda found: [Slice(*queue, start, start + size) for queue, start, size in found])


def options(**given: str) -> ReadOptions:
    return ReadOptions.parse({**SELECTED, **given}, streaming=True)


def covered(slices: Iterable[Slice]) -> set[tuple[Queue, int]]:
    """Return each offset of the slices; fail if one is in two slices."""
    found = [(each.queue, offset) for each in slices for offset in range(each.start, each.end)]
    assert len(set(found)) == len(found)
    return set(found)


def changed(start: Offsets, end: Offsets) -> set[Queue]:
    return {each.queue for each in batch_of(start, end)}


@given(POSITIONS)
def test_equal_positions_have_one_text_and_come_back(offsets: Offsets) -> None:
    shuffled = {
        topic: dict(reversed(queues.items())) for topic, queues in reversed(offsets.items())
    }
    assert to_json(offsets) == to_json(shuffled)
    if offsets:
        found = from_json(to_json(shuffled), option="startingOffsets", form="", least=0)
        assert json.dumps(found) == json.dumps(offsets)


@given(SLICES, st.integers(1, 40), st.integers(1, 2**40), st.integers(2, 40))
def test_split_keeps_to_a_largest_size(
    whole: list[Slice], min_partitions: int, wish: int, most_parts: int
) -> None:
    longest = max((each.size for each in whole), default=0)
    max_records = max(wish, longest // most_parts, 1)  # not millions of parts
    parts = split(whole, min_partitions, max_records)
    assert all(0 < each.size <= max_records for each in parts)
    total = sum(each.size for each in whole)
    fewest = sum(-(-each.size // max_records) for each in whole)
    assert len(parts) == max(min(min_partitions, total), fewest)
    assert sum(each.size for each in parts) == total


@given(SLICES, st.integers(1, 40))
def test_split_covers_the_same_offsets_in_as_many_even_parts(
    whole: list[Slice], min_partitions: int
) -> None:
    parts = split(whole, min_partitions)

    filled = [each for each in whole if each.size]
    assert parts == sorted(parts)
    assert all(each.size > 0 for each in parts)
    wanted = min(min_partitions, sum(each.size for each in whole))
    assert len(parts) == max(wanted, len(filled))
    if parts:
        # No split into as many slices has a smaller largest slice.
        smaller = max(each.size for each in parts) - 1
        needed = [-(-each.size // smaller) if smaller else each.size + 1 for each in filled]
        assert sum(needed) > len(parts)
    for each in filled:
        mine = [part for part in parts if part.queue == each.queue]
        assert (mine[0].start, mine[-1].end) == (each.start, each.end)
        assert all(a.end == b.start for a, b in pairwise(mine))
        sizes = [part.size for part in mine]
        assert max(sizes) - min(sizes) <= 1


@given(SLICES, st.integers(1, 2**41))
def test_shares_add_up_to_the_limit_and_starve_no_queue(whole: list[Slice], most: int) -> None:
    shares = proportional(most, whole)

    sizes = [each.size for each in whole]
    assert sum(shares) == min(most, sum(sizes))
    assert all(0 <= share <= size for share, size in zip(shares, sizes, strict=True))
    busy = sum(size > 0 for size in sizes)
    if most >= busy:
        assert all(share > 0 for share, size in zip(shares, sizes, strict=True) if size)
        total = max(sum(sizes), 1)
        for share, size in zip(shares, sizes, strict=True):
            exact = min(most, total) * size / total
            assert exact - busy - exact * 1e-9 <= share <= exact + 1 + exact * 1e-9


@given(st.lists(st.integers(1, 30), min_size=1, max_size=6), st.integers(1, 6))
def test_queues_take_turns_where_the_limit_is_below_their_number(
    sizes: list[int], most: int
) -> None:
    waiting = [Slice("a", f"b_{index}", 0, size) for index, size in enumerate(sizes)]
    rounds = 0
    while any(each.size for each in waiting):
        shares = proportional(most, waiting)
        assert sum(shares) == min(most, sum(each.size for each in waiting))
        waiting = [
            replace(each, start=each.start + share)
            for each, share in zip(waiting, shares, strict=True)
        ]
        rounds += 1
        if min(sizes) * most >= len(sizes) == rounds * most:  # a full turn
            assert all(each.start > 0 for each in waiting)
    assert rounds == -(-sum(sizes) // most)


@given(states(), POSITIONS, st.one_of(st.none(), st.integers(1, 50)), st.integers(1, 8))
def test_batch_by_batch_a_stream_reads_what_is_there_once(
    found: list[QueueState], start: Offsets, most: int | None, min_partitions: int
) -> None:
    limit = {} if most is None else {"maxOffsetsPerTrigger": str(most)}
    read = options(**limit)
    admission = Admission(read)
    expected = set()
    before = flat(start)
    for state in found:
        position = before.get(state.queue, state.begin)
        first = state.begin if not state.begin <= position <= state.end else position
        expected |= {(state.queue, offset) for offset in range(first, state.end)}

    seen: set[tuple[Queue, int]] = set()
    offsets = start
    for _ in range(1000):
        target = admission.target(offsets, found, now_s=0.0)
        if target.offsets == offsets:
            break
        plan = plan_stream(
            offsets,
            target.offsets,
            [each for each in found if each.queue in changed(offsets, target.offsets)],
            min_partitions=min_partitions,
        )
        batch = covered(plan.slices)
        assert most is None or len(batch) <= most
        assert not batch & seen
        seen |= batch
        offsets = target.offsets
    assert seen == expected
    there = {state.queue for state in found}
    assert flat(offsets) == {**before, **flat(ends(found))}
    assert all(flat(offsets)[queue] == before[queue] for queue in before.keys() - there)


@given(states(), POSITIONS, POSITIONS)
def test_a_batch_that_is_planned_again_reads_only_what_is_there(
    found: list[QueueState], start: Offsets, end: Offsets
) -> None:
    plan = plan_stream(start, stream_offset(flat(end)), found)

    there = {(state.queue, offset) for state in found for offset in range(state.begin, state.end)}
    planned = covered(plan.slices)
    assert planned <= there
    before, lost = flat(start), {loss.queue for loss in plan.losses}
    for queue, last in flat(end).items():
        wanted = {(queue, offset) for offset in range(before.get(queue, 0), last)}
        assert wanted <= planned or queue in lost or queue not in before


@given(states(), POSITIONS, POSITIONS, st.integers(1, 8))
def test_a_batch_query_reads_what_it_asks_for_as_far_as_it_is_there(
    found: list[QueueState], start: Offsets, end: Offsets, min_partitions: int
) -> None:
    known = {state.queue: state for state in found}
    start = sorted_offsets(item for item in flat(start).items() if item[0] in known)

    plan = plan_batch(start, end, found, min_partitions=min_partitions)

    wanted = {
        (queue, offset)
        for queue, first in flat(start).items()
        for offset in range(first, min(flat(end).get(queue, 0), known[queue].end))
    }
    there = {(state.queue, offset) for state in found for offset in range(state.begin, state.end)}
    assert covered(plan.slices) == wanted & there
    assert {loss.queue for loss in plan.losses} == {queue for queue, _ in wanted - there}


@given(states(), states(), POSITIONS)
def test_available_now_reads_no_further_than_its_snapshot(
    first: list[QueueState], then: list[QueueState], start: Offsets
) -> None:
    admission = Admission(options(maxOffsetsPerTrigger="7", minOffsetsPerTrigger="5"))
    admission.end_at(first)
    caps = {state.queue: state.end for state in first}
    offsets = start
    for _ in range(1000):
        target = admission.target(offsets, then, now_s=0.0).offsets
        if target == offsets:
            break
        for queue, offset in flat(target).items():
            assert offset <= max(caps.get(queue, -1), flat(offsets).get(queue, -1))
        offsets = target
    else:
        raise AssertionError("the query never ends")
