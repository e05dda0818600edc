"""The view of one order key, whether its jobs are in memory or spilled."""

from __future__ import annotations

from proxy.core.jobs.by_key import JobsByKey
from proxy.core.jobs.chains import Job, JobChains
from proxy.core.jobs.spilled_chains import SpilledChains


def seen(*, in_memory: dict[bytes, list[int]], spilled: dict[bytes, list[int]]) -> JobsByKey:
    chains, behind = JobChains(), SpilledChains()
    for key, offsets in in_memory.items():
        for offset in offsets:
            chains.submit(Job(offset, key))
    for key, offsets in spilled.items():
        behind.append(key, offsets)
    return JobsByKey(chains, behind)


def test_a_key_counts_once_though_part_of_it_is_spilled() -> None:
    by_key = seen(in_memory={b"a": [1], b"b": [2]}, spilled={b"a": [3, 4], b"c": [5]})

    assert len(by_key) == 3
    assert sorted(by_key) == [b"a", b"b", b"c"]
    assert b"c" in by_key
    assert b"d" not in by_key


def test_spilled_jobs_follow_those_in_memory() -> None:
    by_key = seen(in_memory={b"a": [1, 2]}, spilled={b"a": [3, 4, 5]})

    head = by_key.head(b"a")
    assert head is not None
    assert [head.offset, *(job.offset for job in by_key.in_memory(b"a"))] == [1, 1, 2]
    assert (by_key.backlog(b"a"), by_key.waiting(b"a"), by_key.unfinished(b"a")) == (5, 3, 5)
    assert by_key.lowest(b"a") == 1
    assert list(by_key.spilled_offsets(b"a")) == [3, 4, 5]


def test_the_first_stored_job_is_one_of_a_key_with_nothing_in_memory() -> None:
    by_key = seen(in_memory={b"a": [1]}, spilled={b"a": [3], b"b": [4, 6]})

    assert by_key.first_stored(b"a") is None
    assert by_key.first_stored(b"b") == by_key.lowest(b"b") == 4


def test_an_unknown_key_has_nothing() -> None:
    by_key = seen(in_memory={}, spilled={})

    assert (len(by_key), by_key.head(b"a"), by_key.lowest(b"a")) == (0, None, None)
    assert (by_key.backlog(b"a"), by_key.unfinished(b"a"), by_key.first_stored(b"a")) == (
        0,
        0,
        None,
    )
