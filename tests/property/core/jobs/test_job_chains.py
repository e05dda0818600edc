"""The chains against a naive model: a plain list for each key, and two lists of ready jobs."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from proxy.core.jobs.chains import REACTIVATION_BURST, Job, JobChains, JobState
from testkit import pipelines
from testkit.messages import keyed
from tests.support.examples import examples

KEYS = [None, b"", b"a", b"b", b"c"]


def main_bound(ahead: int) -> int:
    """Return the most polls until a job of the main queue with *ahead* jobs before it: each may
    wait for a burst of reactivated ones.
    """
    return (ahead + 1) * (REACTIVATION_BURST + 1)


def reactivation_bound(ahead: int) -> int:
    """Return the same for a reactivated job: one of the main queue precedes each burst."""
    jobs = ahead + 1
    return jobs + -(-jobs // REACTIVATION_BURST)


@settings(
    max_examples=examples(60), stateful_step_count=40, deadline=None, report_multiple_bugs=False
)
class ChainsMachine(RuleBasedStateMachine):
    """Every polled job came from the front of one of two queues, in the promised turns."""

    def __init__(self) -> None:
        super().__init__()
        self.chains = JobChains()
        self.unfinished: dict[bytes, list[Job]] = {}  # by offset; only the first is not chained
        self.main: list[Job] = []
        self.reactivated: list[Job] = []
        self.running: list[Job] = []
        self.polls = 0
        self.since_main = 0  # reactivated jobs polled since one of the main queue
        self.due: dict[Job, int] = {}  # the latest poll for each ready job
        self.submitted = 0

    @rule(keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=12))
    def submit(self, keys: list[bytes | None]) -> None:
        for key in keys:
            job = Job(self.submitted, key)
            self.submitted += 1
            waits = key is not None and bool(self.unfinished.get(key))
            assert self.chains.submit(job) is not waits
            if key is not None:
                self.unfinished.setdefault(key, []).append(job)
            if not waits:
                self.due[job] = self.polls + main_bound(len(self.main))
                self.main.append(job)

    @rule(times=st.integers(1, 12))
    def poll(self, times: int) -> None:
        for _ in range(times):
            job = self.chains.poll()
            if not self.main and not self.reactivated:
                assert job is None
                return
            assert job is not None
            self._polled(job)

    def _polled(self, job: Job) -> None:
        self.polls += 1
        expect_main = not self.reactivated or (
            bool(self.main) and self.since_main >= REACTIVATION_BURST
        )
        assert job is (self.main if expect_main else self.reactivated).pop(0)
        assert self.polls <= self.due.pop(job), "a ready job waited beyond its bound"
        self.since_main = 0 if expect_main else self.since_main + 1
        self.running.append(job)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), times=st.integers(1, 12))
    def finish(self, data: st.DataObject, times: int) -> None:
        for _ in range(min(times, len(self.running))):
            job = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
            self._finish(job)

    def _finish(self, job: Job) -> None:
        successor = None
        if job.key is not None:
            chain = self.unfinished[job.key]
            assert chain.pop(0) is job, "a job ran before its predecessor had finished"
            successor = chain[0] if chain else None
            if not chain:
                del self.unfinished[job.key]
        assert self.chains.finish(job) is successor
        assert job.successor is None
        if successor is not None:
            self.due[successor] = self.polls + reactivation_bound(len(self.reactivated))
            self.reactivated.append(successor)

    @invariant()
    def at_most_one_job_of_a_key_is_ready_or_running(self) -> None:
        for chain in self.unfinished.values():
            states = [job.state for job in chain]
            assert states[0] in (JobState.READY, JobState.RUNNING)
            assert set(states[1:]) <= {JobState.CHAINED}

    @invariant()
    def the_counts_agree(self) -> None:
        assert self.chains.ready == len(self.main) + len(self.reactivated)
        assert self.chains.keys == self.unfinished.keys()
        for key, jobs in self.unfinished.items():
            assert list(self.chains.jobs(key)) == jobs
            assert self.chains.jobs_of(key) == len(jobs)

    def teardown(self) -> None:
        while (job := self.chains.poll()) is not None or self.running:
            if job is not None:
                self._polled(job)
            self._finish(self.running.pop())
        assert (self.unfinished, len(self.chains.keys), self.chains.ready) == ({}, 0, 0)


TestChains = ChainsMachine.TestCase


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(1, 60), st.integers(1, 60))
def test_with_both_queues_filled_the_main_queue_gets_one_of_burst_plus_one_polls(
    new: int, reactivated: int
) -> None:
    chains = JobChains()
    for number in range(reactivated):
        chains.submit(Job(number, b"%d" % number))
        chains.submit(Job(number, b"%d" % number))
    running = [chains.poll() for _ in range(reactivated)]
    for first in running:
        assert first is not None
        chains.finish(first)
    for number in range(new):
        chains.submit(Job(1000 + number, None))
    from_main = []
    while all(chains.queues):
        job = chains.poll()
        assert job is not None
        from_main.append(job.key is None)
    turns = [index for index, is_main in enumerate(from_main) if is_main]
    gaps = {later - earlier for earlier, later in pairwise(turns)}
    assert gaps <= {REACTIVATION_BURST + 1}
    assert len(from_main) <= REACTIVATION_BURST or turns[0] <= REACTIVATION_BURST


@settings(max_examples=examples(50), deadline=None)
@given(new=st.integers(1, 40), chained=st.integers(1, 40))
def test_claim_6_with_both_queues_filled_the_main_queue_gets_one_of_burst_plus_one_polls(
    new: int, chained: int
) -> None:
    here = pipelines.pipeline(messages=[keyed(n, f"k{n % chained}") for n in range(2 * chained)])
    here.settle(acked=[each.lease_id for each in pipelines.lease(here)], now_ns=0)
    here.on_messages([keyed(1000 + n, f"new-{n}") for n in range(new)], next_offset=1000 + new)
    is_new = [offset >= 1000 for offset in pipelines.offsets(pipelines.lease(here))]
    assert (len(is_new), sum(is_new)) == (new + chained, new)
    both = min(chained // REACTIVATION_BURST, new) * (REACTIVATION_BURST + 1)
    turn = [False] * REACTIVATION_BURST + [True]
    assert is_new[:both] == turn * (both // len(turn))
