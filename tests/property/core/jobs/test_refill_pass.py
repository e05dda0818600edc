"""One pass over spilled messages: each refill gets its own once and early, in few requests."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.core.jobs.refills import MAX_MESSAGES, Refill, RefillPass, how_many
from testkit.messages import keyed

_KEYS = st.lists(st.sets(st.integers(0, 600), min_size=1, max_size=30), min_size=1, max_size=8)


def _refills(wanted: list[set[int]]) -> list[Refill]:
    """Return a refill for each set, without the offsets of earlier ones."""
    taken: set[int] = set()
    refills = []
    for number, offsets in enumerate(wanted):
        if own := offsets - taken:
            refills.append(Refill(b"%d" % number, tuple(sorted(own))))
            taken |= own
    return refills


@given(
    _KEYS,
    st.sets(st.integers(0, 600)),
    st.integers(1, 1 << 20),
    st.lists(st.integers(1, MAX_MESSAGES), min_size=1),
)
def test_each_refill_gets_its_existing_messages_once_and_as_soon_as_possible(
    wanted: list[set[int]], gone: set[int], record_bytes: int, answers: list[int]
) -> None:
    refills = _refills(wanted)
    under_way, complete, reads = RefillPass(refills), [], 0
    while (due := under_way.next_read(record_bytes)) is not None:
        offset, most = due
        assert 1 <= most <= MAX_MESSAGES
        end = offset + min(most, answers[reads % len(answers)])  # a broker may return fewer
        there = [keyed(n, "k") for n in range(offset, end) if n not in gone]
        reads += 1
        now = under_way.was_read(there, end)
        assert all(refill.offsets[-1] < end for refill, _ in now)
        complete += now
        still = {refill.key for refill in refills} - {refill.key for refill, _ in complete}
        assert all(refill.offsets[-1] >= end for refill in refills if refill.key in still)
    assert sorted(refill.key for refill, _ in complete) == sorted(each.key for each in refills)
    for refill, messages in complete:
        assert [m.queue_offset for m in messages] == [o for o in refill.offsets if o not in gone]


@given(_KEYS, st.sets(st.integers(0, 600)), st.integers(1, 1 << 20))
def test_each_refill_ends_before_its_first_damaged_message_and_others_are_complete(
    wanted: list[set[int]], damaged: set[int], record_bytes: int
) -> None:
    refills = _refills(wanted)
    under_way, complete = RefillPass(refills), []
    while (due := under_way.next_read(record_bytes)) is not None:
        offset, most = due
        end = next((n for n in range(offset, offset + most) if n in damaged), offset + most)
        if end > offset:
            complete += under_way.was_read([keyed(n, "k") for n in range(offset, end)], end)
            continue
        behind = next(n for n in range(offset, 700) if n not in damaged)
        for first, messages, at in under_way.met_damage(behind):
            assert at in damaged
            assert at == min(
                damaged.intersection(*[r.offsets for r in refills if r.key == first.key])
            )
            complete.append((first, messages))
    assert sorted(refill.key for refill, _ in complete) == sorted(each.key for each in refills)
    for refill, messages in complete:
        assert [m.queue_offset for m in messages] == list(refill.offsets)
        assert damaged.isdisjoint(refill.offsets)


@given(st.integers(2, 100), st.integers(1, 40))
def test_chains_of_small_records_that_interleave_are_read_in_few_requests(
    keys: int, each: int
) -> None:
    refills = [Refill(b"%d" % key, tuple(range(key, keys * each, keys))) for key in range(keys)]
    few = refills[: max(1, keys // 8)]  # messages between them are read through
    under_way, reads = RefillPass(few), 0
    while (due := under_way.next_read(200)) is not None:
        under_way.was_read([], sum(due))
        reads += 1
    assert reads <= keys * each // (MAX_MESSAGES - keys) + 1


def test_unwanted_large_records_are_not_read() -> None:
    under_way = RefillPass([Refill(b"a", (0, 2, 50))])
    reads = []
    while (due := under_way.next_read(1 << 20)) is not None:
        reads.append(due)
        under_way.was_read([], sum(due))
    assert reads == [(0, 1), (2, 1), (50, 1)]


@given(st.lists(st.integers(1, 64), min_size=1, max_size=200), st.integers(1, 1 << 22))
def test_a_pass_has_at_least_one_refill_and_limits_the_bytes_of_large_records(
    sizes: list[int], record_bytes: int
) -> None:
    wanted = [Refill(b"%d" % n, tuple(range(size))) for n, size in enumerate(sizes)]
    taken = how_many(wanted, record_bytes)
    assert 1 <= taken <= len(wanted)
    offsets = sum(sizes[:taken])
    assert taken == 1 or offsets <= 2048
    assert taken == 1 or offsets * record_bytes <= 16 << 20
    assert taken == len(wanted) or (
        offsets + sizes[taken] > 2048 or (offsets + sizes[taken]) * record_bytes > 16 << 20
    )
