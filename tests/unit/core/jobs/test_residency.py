"""Jobs that leave memory while room is short, and jobs that return first."""

from __future__ import annotations

from proxy.core.jobs.chains import Job
from proxy.core.jobs.jobs import Jobs
from proxy.core.jobs.refills import Refill
from proxy.core.jobs.window import Budget, FlowWindow


def read(*keys: bytes, places: int = 4, spill_all: bool = False) -> Jobs:
    """Return a queue with one message of each of *keys*, and a window of *places* places."""
    jobs = Jobs(0, window=FlowWindow(places, Budget(1000)), max_jobs_per_key=1, spill_all=spill_all)
    for offset, key in enumerate(keys):
        if not jobs.residency.spill(key, offset):
            jobs.admit(Job(offset, key, held_bytes=1))
    return jobs


def test_without_pressure_all_that_is_read_stays_in_memory() -> None:
    jobs = read(b"a", b"b", b"c", places=8)

    assert (jobs.spilled, jobs.residency.taken, jobs.residency.left) == (0, 3, 5)


def test_beyond_half_of_the_window_a_message_behind_others_of_its_key_is_spilled() -> None:
    jobs = read(b"a", b"b", b"a")

    assert (jobs.spilled, jobs.residency.taken) == (1, 2)
    assert jobs.residency.take_refills() == [], "the first one of its key is in memory"


def test_a_spilled_message_is_read_again_when_the_job_ahead_finishes() -> None:
    jobs = read(b"a", b"b", b"a")
    first = jobs.chains.poll()
    assert first is not None

    jobs.finish(first)

    assert jobs.residency.refills == [Refill(b"a", (2,))]
    assert jobs.residency.take_refills() == [Refill(b"a", (2,))]
    assert jobs.residency.refills == [], "reported once"
    assert (jobs.residency.being_read, jobs.residency.taken) == (1, 2)


def test_where_all_is_spilled_only_wanted_keys_are_read_again() -> None:
    jobs = read(b"a", b"b", b"a", spill_all=True)
    assert (jobs.spilled, jobs.residency.refills) == (3, [])

    assert jobs.residency.wanted is not None
    jobs.residency.wanted.add(b"b")
    jobs.residency.refill(b"b")

    assert jobs.residency.take_refills() == [Refill(b"b", (1,))]


def test_a_key_that_is_put_back_keeps_its_offsets_alone() -> None:
    jobs = read(b"a", spill_all=True)
    assert jobs.residency.wanted is not None
    jobs.residency.wanted.add(b"a")
    jobs.residency.refill(b"a")
    (refill,) = jobs.residency.take_refills()
    assert jobs.refilled(refill, [Job(0, b"a", held_bytes=1)])
    assert jobs.spilled == 0

    jobs.residency.wanted.discard(b"a")
    jobs.residency.put_back(b"a")

    assert (jobs.spilled, jobs.unfinished, jobs.window.jobs) == (1, 1, 0)
    assert not jobs.refilled(refill, []), "nothing is wanted any more"
