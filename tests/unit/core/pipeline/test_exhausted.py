"""Fate of a job that is given up, by strategy."""

from __future__ import annotations

import pytest

from proxy.core.jobs.chains import Job
from proxy.core.jobs.jobs import Jobs
from proxy.core.jobs.tracked_dict import TrackedDict
from proxy.core.jobs.window import Budget, FlowWindow
from proxy.core.keys.ids import Epoch
from proxy.core.keys.retry_policy import OnExhausted, RetryPolicy
from proxy.core.leases.failures import Failures
from proxy.core.leases.lease_book import LeaseBook
from proxy.core.parking.parking import Parking
from proxy.core.parking.redrives import Redrives
from proxy.core.pipeline.effects import Effects
from proxy.core.pipeline.exhausted import DeadLetters
from proxy.core.records.parked_key import ParkedKey


def jobs_of(*keys: bytes | None, spill_all: bool = False) -> Jobs:
    jobs = Jobs(0, window=FlowWindow(8, Budget(1000)), max_jobs_per_key=2, spill_all=spill_all)
    for offset, key in enumerate(keys):
        if not jobs.residency.spill(key, offset):
            jobs.admit(Job(offset, key, held_bytes=1))
    return jobs


def book(on_exhausted: OnExhausted) -> LeaseBook:
    failures = Failures(RetryPolicy((1,), 1, on_exhausted), {})
    return LeaseBook(Budget(9), Budget(9), failures)


def parking(jobs: Jobs, *, by: OnExhausted = OnExhausted.PARK, **parked: ParkedKey) -> Parking:
    listed = TrackedDict({key.encode(): each for key, each in parked.items()})
    return Parking(jobs, book(by), listed, Epoch(7))


def first(jobs: Jobs) -> Job:
    job = jobs.chains.poll()
    assert job is not None
    return job


def test_a_dead_letter_is_under_way_until_it_is_stored() -> None:
    letters, effects, job = DeadLetters(), Effects(), Job(3, b"a")

    letters.give_up(job, effects)
    assert (effects.dead_letters, letters.under_way) == ([job], {3})
    letters.stored(job)
    assert not letters.under_way
    with pytest.raises(KeyError):
        letters.stored(job)


def test_where_keys_are_parked_the_key_of_a_given_up_job_is_held_and_not_recorded_yet() -> None:
    jobs, effects = jobs_of(b"a", b"a"), Effects()
    keys = parking(jobs)

    keys.give_up(first(jobs), effects)

    assert (effects.parking, effects.dead_letters) == (True, [])
    assert (list(keys.held), list(keys.unrecorded), keys.recorded) == ([b"a"], [b"a"], set())
    assert set(jobs.chains.held_keys) == {b"a"}
    assert keys.to_copy(b"a", jobs=9, body_bytes=99) == [], "no record lists it"
    keys.is_recorded([b"a"])
    assert keys.keys_to_copy() == [b"a"]
    assert [job.offset for job in keys.to_copy(b"a", jobs=9, body_bytes=99)] == [0, 1]


def test_without_a_key_or_by_another_policy_it_is_dead_lettered() -> None:
    for jobs, by in (
        (jobs_of(None), OnExhausted.PARK),
        (jobs_of(b"a"), OnExhausted.DEAD_LETTER),
    ):
        keys, effects = parking(jobs, by=by), Effects()
        job = first(jobs)
        keys.give_up(job, effects)

        assert (effects.dead_letters, keys.is_given_up(job)) == ([job], True)
        assert not keys.held


def test_a_key_that_leaves_is_held_until_the_records_say_so() -> None:
    jobs = jobs_of()
    keys = parking(jobs, a=ParkedKey(0, 1))
    jobs.admit(Job(0, b"a", held_bytes=1))
    assert not jobs.chains.ready

    keys.leaves([b"a"])
    assert (keys.leaving, list(keys.held), jobs.chains.ready) == ({b"a"}, [], 0)
    assert not keys.park(b"a"), "it is held still"
    keys.left([b"a"])
    assert (keys.leaving, jobs.chains.ready) == (set(), 1)


def redrives(**parked: ParkedKey) -> Redrives:
    listed = TrackedDict({key.encode(): each for key, each in parked.items()})
    jobs = jobs_of(*listed, spill_all=True)
    return Redrives(jobs, book(OnExhausted.PARK), listed, Epoch(7))


def test_of_a_redrive_that_fails_nothing_is_copied_twice() -> None:
    driven, effects = redrives(a=ParkedKey(0, 1, redriven=True)), Effects()
    assert driven.keys == {b"a"}

    driven.give_up(Job(0, b"a"), effects)

    assert (effects.stopped, effects.dead_letters) == ([b"a"], [])
    assert driven.to_stop() == [b"a"]
    driven.stopped(b"a")
    assert (driven.keys, driven.to_stop()) == (set(), [])


def test_a_redrive_that_stops_waits_for_the_lease_of_a_client() -> None:
    driven = redrives(a=ParkedKey(0, 1, redriven=True))
    driven.stop(b"a")
    driven.stopped(b"a")
    driven.stop_later(b"a")

    assert (set(driven.stopping), driven.to_stop()) == ({b"a"}, [])
    assert b"a" in driven.watched
    driven.freed(b"a")
    assert driven.to_stop() == [b"a"]


def test_the_slowest_redrive_sets_the_pace() -> None:
    driven = redrives(a=ParkedKey(0, 1), b=ParkedKey(0, 1))
    driven.begin(b"a", ParkedKey(0, 1), rate=10, by="ada")
    driven.begin(b"b", ParkedKey(0, 1), rate=2, by="ada")
    assert driven.pace_ns == 500_000_000

    driven.handed_out(1_000)
    assert (driven.timed, driven.next_ns) == (True, 500_001_000)
    assert not driven.may_go_on(500_000_999)
    driven.on_time(500_001_000)
    assert (driven.timed, driven.next_ns, driven.may_go_on(500_001_000)) == (False, None, True)
    driven.forget([b"b"])
    assert driven.pace_ns == 100_000_000
