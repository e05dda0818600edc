from __future__ import annotations

import pytest

from proxy.core.jobs.chains import REACTIVATION_BURST, Job, JobChains, JobState
from proxy.errors import JobStateError


def submitted(chains: JobChains, *keys: bytes | None) -> list[Job]:
    jobs = [Job(offset, key) for offset, key in enumerate(keys)]
    for job in jobs:
        chains.submit(job)
    return jobs


def poll(chains: JobChains) -> Job:
    job = chains.poll()
    assert job is not None
    return job


def test_the_second_job_of_a_key_waits_until_the_first_has_finished() -> None:
    chains = JobChains()
    first, second = Job(0, b"k"), Job(1, b"k")
    assert (chains.submit(first), chains.submit(second)) == (True, False)
    assert (chains.poll(), chains.poll()) == (first, None)
    assert chains.finish(first) is second
    assert chains.poll() is second


def test_keys_do_not_wait_for_each_other() -> None:
    chains = JobChains()
    jobs = submitted(chains, b"a", b"b", b"c")
    assert [chains.poll() for _ in jobs] == jobs


def test_unordered_jobs_never_wait_and_are_no_key() -> None:
    chains = JobChains()
    jobs = submitted(chains, None, None)
    assert (chains.ready, len(chains.keys)) == (2, 0)
    assert [chains.poll() for _ in jobs] == jobs
    assert chains.finish(jobs[0]) is None


def test_empty_bytes_are_a_key_like_any_other() -> None:
    chains = JobChains()
    submitted(chains, b"", b"")
    assert (chains.ready, len(chains.keys)) == (1, 1)


def test_keys_are_compared_in_full() -> None:
    """257 keys have 257 chains, although any 8-bit hash of them collides."""
    chains = JobChains()
    submitted(chains, *(b"key-%d" % number for number in range(257)))
    assert (chains.ready, len(chains.keys)) == (257, 257)


def test_a_key_without_unfinished_jobs_is_forgotten() -> None:
    chains = JobChains()
    submitted(chains, b"k", b"k")
    chains.finish(poll(chains))
    assert len(chains.keys) == 1
    chains.finish(poll(chains))
    assert not chains.keys
    assert chains.submit(Job(2, b"k"))


def test_a_finished_job_holds_no_other() -> None:
    """A reference to an old job must not keep its whole chain in memory."""
    chains = JobChains()
    first, _ = submitted(chains, b"k", b"k")
    chains.finish(poll(chains))
    assert first.successor is None


def test_a_reactivated_job_goes_before_new_ones_but_has_no_monopoly() -> None:
    chains = JobChains()
    busy = submitted(chains, *[b"busy"] * (2 * REACTIVATION_BURST + 2))
    chains.finish(poll(chains))
    new = [Job(100, b"x"), Job(101, b"y")]
    for job in new:
        chains.submit(job)
    order = []
    for _ in range(2 * REACTIVATION_BURST + 2):
        order.append(poll(chains))
        chains.finish(order[-1])
    first, second = busy[1 : 1 + REACTIVATION_BURST], busy[1 + REACTIVATION_BURST :]
    assert order == [*first, new[0], *second[:REACTIVATION_BURST], new[1]]


def test_a_job_moves_through_its_states_once() -> None:
    chains = JobChains()
    job, waiting = submitted(chains, b"k", b"k")
    with pytest.raises(JobStateError, match="FINISHED is reached only from RUNNING"):
        chains.finish(job)
    with pytest.raises(JobStateError):
        chains.submit(waiting)
    assert poll(chains) is job
    chains.finish(job)
    with pytest.raises(JobStateError):
        chains.finish(job)
    assert (job.state, waiting.state) == (JobState.FINISHED, JobState.READY)


def test_a_long_chain_is_dropped_without_recursion() -> None:
    chains = JobChains()
    submitted(chains, *[b"k"] * 200_000)
    del chains
