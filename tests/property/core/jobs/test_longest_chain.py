"""The longest chain first: chains in memory and spilled, against naive models.

Keys may be held, opened, cut and read again, and the policy may change at any time.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from proxy.core.jobs.chains import REACTIVATION_BURST, Job, JobState
from proxy.core.jobs.hand_out import HandOut
from proxy.core.jobs.jobs import Jobs
from proxy.core.jobs.longest_first import LongestFirst
from proxy.core.jobs.window import Budget, FlowWindow
from tests.support.examples import examples

KEYS = [b"a", b"b", b"c", b"d", None]
#: A ready job is polled before this many others for each job that was ready when it became ready.
EVERY = REACTIVATION_BURST + 1


@settings(
    max_examples=examples(60), stateful_step_count=50, deadline=None, report_multiple_bugs=False
)
class LongestChainMachine(RuleBasedStateMachine):
    @initialize(window=st.sampled_from([4, 12, 1000]), policy=st.sampled_from(HandOut))
    def start(self, window: int, policy: HandOut) -> None:
        self.jobs = Jobs(0, window=FlowWindow(window, Budget(1 << 30)), max_jobs_per_key=2)
        self.chains = self.jobs.chains
        self.unfinished: dict[bytes, list[int]] = {}  # offsets, in memory or not
        self.running: list[Job] = []
        self.held: set[bytes] = set()
        self.turns = 0  # polls in a row that may have gone to the longest chain
        self.waiting: dict[Job, tuple[int, int]] = {}  # others ready then, polls since
        self.policy = HandOut.OLDEST
        self.by(policy)

    # ---- events ---------------------------------------------------------------------------------

    @rule(policy=st.sampled_from(HandOut))
    def by(self, policy: HandOut) -> None:
        self.policy = policy
        self.jobs.hand_out_by(policy)
        self.look()

    @rule(keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=12))
    def read(self, keys: list[bytes | None]) -> None:
        room = self.jobs.residency.room(demand=True)
        for key in keys[:room]:
            offset = self.jobs.position
            if key is not None:
                self.unfinished.setdefault(key, []).append(offset)
            if not self.jobs.residency.spill(key, offset):
                self.jobs.admit(Job(offset, key, held_bytes=1))
        self.read_again()

    @rule(gone=st.integers(0, 3))
    def read_again(self, gone: int = 0) -> None:
        """Read spilled jobs again; retention has deleted the first *gone* of them."""
        for refill in self.jobs.residency.take_refills():
            for offset in refill.offsets[:gone]:
                self.unfinished[refill.key].remove(offset)
            here = [Job(offset, refill.key, held_bytes=1) for offset in refill.offsets[gone:]]
            assert self.jobs.refilled(refill, here)
        self.look()

    @rule(times=st.integers(1, 12))
    def poll(self, times: int) -> None:
        for _ in range(times):
            longest = max((self.length(job) for job in self.waiting), default=0)
            job = self.chains.poll()
            assert (job is None) is (not self.waiting), "a ready job is polled"
            if job is None:
                return
            self._polled(job, longest)

    def _polled(self, job: Job, longest: int) -> None:
        del self.waiting[job]
        self.waiting = {each: (others, polls + 1) for each, (others, polls) in self.waiting.items()}
        self.running.append(job)
        if self.policy is HandOut.LONGEST_CHAIN and longest > 1 and self.length(job) < longest:
            self.turns += 1
        else:
            self.turns = 0
        assert self.turns <= 2, "after one turn of each queue the longest chain goes first"

    @precondition(lambda self: self.running)
    @rule(data=st.data(), times=st.integers(1, 6))
    def finish(self, data: st.DataObject, times: int) -> None:
        for _ in range(min(times, len(self.running))):
            job = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
            if job.key is not None:
                assert self.unfinished[job.key].pop(0) == job.offset
            self.jobs.finish(job)
        self.read_again()

    @rule(key=st.sampled_from(KEYS[:2]))
    def hold_or_release(self, key: bytes) -> None:
        """Hold a key, as while it is parked: its first job, if ready, is the caller's."""
        if key in self.held:
            self.held.discard(key)
            self.chains.release(key)
        else:
            self.held.add(key)
            ready = [job for job in self.waiting if job.key == key]
            self.chains.hold(key)
            self.running += ready
        self.look()

    # ---- the model ------------------------------------------------------------------------------

    def length(self, job: Job) -> int:
        return 1 if job.key is None else len(self.unfinished[job.key])

    def look(self) -> None:
        ready = list(self.chains.ready_jobs())
        self.waiting = {job: self.waiting.get(job, (len(ready), 0)) for job in ready}

    @invariant()
    def each_ready_job_is_polled_within_its_bound(self) -> None:
        for others, polls in getattr(self, "waiting", {}).values():
            assert polls <= EVERY * others

    @invariant()
    def the_longest_ready_chain_is_known(self) -> None:
        if not hasattr(self, "jobs"):
            return
        ready = list(self.chains.ready_jobs())
        assert self.chains.ready == len(ready)
        lengths = [length for job in ready if (length := self.length(job)) > 1]
        if self.policy is HandOut.OLDEST:
            lengths = []
        assert self.chains.longest == max(lengths, default=0)
        for at_least, count in Counter(lengths).items():
            more = sum(length >= at_least for length in lengths)
            assert self.chains.ready_from(at_least, most=99) == more >= count

    @invariant()
    def at_most_one_job_of_a_key_is_ready_or_running(self) -> None:
        for key in getattr(self, "unfinished", {}):
            states = [job.state for job in self.chains.jobs(key)]
            assert set(states[1:]) <= {JobState.CHAINED}


TestLongestChain = LongestChainMachine.TestCase


@settings(max_examples=examples(100), deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["put", "remove", "pop"]), st.integers(0, 5), st.integers(0, 4)),
        max_size=60,
    )
)
def test_members_leave_by_length_and_then_in_the_order_in_which_they_reached_it(
    events: list[tuple[str, int, int]],
) -> None:
    index: LongestFirst[int] = LongestFirst()
    naive: list[tuple[int, int]] = []  # member and length, in the order of their last changes
    for event, member, length in events:
        if event == "put" and (member, length) not in naive:
            naive = [each for each in naive if each[0] != member]
            naive += [(member, length)] if length > 1 else []
            index.put(member, length)
        elif event == "remove":
            naive = [each for each in naive if each[0] != member]
            index.remove(member)
        elif event == "pop":
            first = max(naive, key=lambda each: each[1], default=None)
            assert index.pop() == (None if first is None else first[0])
            naive = [each for each in naive if each != first]
        assert len(index) == len(naive)
        assert index.longest == max((each[1] for each in naive), default=0)
        for most in (1, 3, 99):
            count = index.count_from(length, most=most)
            assert min(count, most) == min(sum(each[1] >= length for each in naive), most)
