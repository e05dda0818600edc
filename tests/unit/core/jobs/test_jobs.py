from __future__ import annotations

import pytest

from proxy.core.jobs.chains import Job
from proxy.core.jobs.jobs import Jobs
from proxy.core.jobs.refills import Refill
from proxy.core.jobs.spilled_chains import packed
from proxy.core.jobs.window import Budget, FlowWindow
from proxy.core.keys.ids import Epoch
from proxy.core.records.record import Snapshot


def read(jobs: Jobs, offset: int, key: bytes, *, held_bytes: int = 1) -> None:
    if not jobs.residency.spill(key, offset):
        jobs.admit(Job(offset, key, held_bytes=held_bytes))


def jobs_of(*keys: bytes, resume: Snapshot | None = None) -> Jobs:
    """Return a window of 8 jobs, half of it without demand; two jobs of a key stay in memory."""
    made = Jobs(0, window=FlowWindow(8, Budget(1000)), max_jobs_per_key=2, resume=resume)
    for offset, key in enumerate(keys, made.position):
        read(made, offset, key)
    return made


def finish_next(jobs: Jobs) -> int:
    job = jobs.chains.poll()
    assert job is not None
    jobs.finish(job)
    return job.offset


def test_nothing_is_spilled_without_demand() -> None:
    jobs = jobs_of(*[b"a"] * 4)
    assert (jobs.residency.room(demand=False), jobs.spilled) == (0, 0)


def test_for_clients_that_wait_long_chains_are_spilled_and_come_back_in_order() -> None:
    jobs = jobs_of(*[b"a"] * 4, b"b")
    assert jobs.residency.room(demand=True) == 5, "two of a and the one of b are left"
    assert (jobs.spilled, jobs.unfinished, jobs.committable) == (2, 5, 0)
    done, refills = [], []
    while jobs.unfinished:
        done.append(finish_next(jobs))
        for refill in jobs.residency.take_refills():
            refills.append(refill.offsets)
            jobs.refilled(refill, [Job(each, b"a", held_bytes=1) for each in refill.offsets])
    assert (done, refills) == ([0, 1, 2, 3, 4], [(2,), (3,)])
    assert (jobs.committable, jobs.window.memory.used) == (5, 0)


@pytest.mark.parametrize("chained", [4, 9])
def test_a_key_too_long_for_a_record_stays_in_memory(chained: int) -> None:
    jobs = jobs_of(*[b"a" * 100_000] * chained)
    jobs.residency.room(demand=True)
    assert jobs.spilled == 0


def test_chains_that_are_being_read_are_not_shortened() -> None:
    jobs = jobs_of(*[b"a"] * 6)
    jobs.residency.room(demand=True)
    finish_next(jobs)  # the next ones are being read
    for offset in range(6, 12):
        read(jobs, offset, b"b")
    before = jobs.spilled
    assert jobs.residency.room(demand=False) == 0
    jobs.residency.room(demand=True)
    assert jobs.spilled >= before
    assert [refill.offsets[0] for refill in jobs.residency.take_refills()] == [2]


def test_messages_that_an_earlier_owner_had_in_memory_keep_their_place_in_a_spilled_chain() -> None:
    before = Snapshot(Epoch(1), 1, 9, (1, 5), spilled={b"a": packed((3, 7))})
    jobs = jobs_of(resume=before)
    assert (jobs.position, jobs.knows(3), jobs.knows(5)) == (1, True, False)
    read(jobs, 1, b"a")
    assert jobs.residency.take_refills() == [], "earlier jobs may not be read yet"
    read(jobs, 5, b"a")
    jobs.advance(9)
    assert finish_next(jobs) == 1
    (refill,) = jobs.residency.take_refills()
    assert refill == Refill(b"a", (3,))
    assert jobs.snapshot(Epoch(2), {}, {}).spilled == {b"a": packed((3, 5, 7))}


def test_state_below_a_reset_is_not_resumed() -> None:
    before = Snapshot(Epoch(1), 1, 9, spilled={b"a": packed((3, 7)), b"b": packed((2,))})
    jobs = Jobs(5, window=FlowWindow(8, Budget(99)), max_jobs_per_key=2, resume=before)
    assert (jobs.spilled, len(jobs.by_key), jobs.committable) == (1, 1, 7)


def hot(memory: int) -> Jobs:
    """Return 2,000 jobs of one key, half of the window; the settings let two stay in memory."""
    jobs = Jobs(0, window=FlowWindow(4_000, Budget(memory)), max_jobs_per_key=2)
    for offset in range(2_000):
        read(jobs, offset, b"a", held_bytes=100)
    return jobs


def test_the_only_long_chain_keeps_more_and_is_read_again_many_at_a_time() -> None:
    jobs = hot(1 << 40)
    assert jobs.residency.room(demand=True) == 4_000 - 512
    assert jobs.spilled == 2_000 - 512
    for _ in range(256):
        assert not jobs.residency.take_refills()
        job = jobs.chains.poll()
        assert job is not None
        jobs.finish_all([job])
    assert jobs.residency.take_refills() == [Refill(b"a", tuple(range(512, 768)))]


def test_with_little_memory_left_it_keeps_the_configured_number() -> None:
    jobs = hot(1 << 40)
    jobs.window.memory.resize(jobs.window.memory.used + 400)
    jobs.residency.room(demand=True)
    assert jobs.spilled == 2_000 - 2


def test_each_unfinished_offset_is_found_in_memory_spilled_and_unread() -> None:
    jobs = jobs_of(*[b"a"] * 4, b"b")
    jobs.residency.room(demand=True)
    assert jobs.spilled == 2
    assert finish_next(jobs) == 0
    keys = [b"a"] * 4 + [b"b", None]
    found = [jobs.is_unfinished(offset, key) for offset, key in enumerate(keys)]
    assert found == [False, True, True, True, True, True], "the last one is not read yet"
