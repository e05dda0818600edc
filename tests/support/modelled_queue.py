"""A queue pipeline and its naive model side by side, over the ownership periods of one queue."""

from __future__ import annotations

from proxy.core.effects import Effects, Outcome
from proxy.core.job_chains import Job
from proxy.core.ownership_record import Snapshot
from proxy.core.pull_buffer import Holder, Lease
from proxy.core.queue_pipeline import QueuePipeline
from tests.support.naive_queue import MS, Facts, NaiveQueue
from tests.support.pipelines import Budgets, lease, pipeline, queue, rules

TRUST_NS = 60 * MS


class Modelled:
    """One queue: its pipeline of this period, and the model beside it."""

    def __init__(self, number: int, known: Facts, budgets: Budgets) -> None:
        self.name = queue(number)
        self.budgets = budgets
        self.naive = NaiveQueue(known)
        self.rules = rules(
            known.order_key,
            missing_key=known.missing_key,
            tags=known.tags,
            visibility_ns=known.visibility_ns,
            retry=known.retry,
        )
        self.end = 0  # the offset of the next message sent
        self.epoch = 0
        self.committed = 0
        self.record: Snapshot | None = None  # what the ownership topic holds
        self.recorded: dict[int, Outcome] = {}  # what was finished by then
        self.leases: list[Lease] = []
        self.copies: list[tuple[QueuePipeline, Job]] = []  # dead letters under way
        self.begin(now_ns=0, hold_ns=0, resume=None)

    def begin(self, *, now_ns: int, hold_ns: int, resume: Snapshot | None) -> None:
        """A new period; the pipeline of the old one is closed."""
        finished = dict(self.naive.finished)
        known = {o: end for o, end in finished.items() if o < self.committed}
        if resume is not None:
            known |= self.recorded
        start = max(self.committed, resume.base if resume else 0)
        self.epoch += 1
        self.hold_until_ns = now_ns + hold_ns
        self.pipeline = pipeline(
            self.rules,
            of=self.name,
            epoch=self.epoch,
            start=start,
            committed=self.committed,
            trusted_until_ns=now_ns + TRUST_NS,
            hold_until_ns=self.hold_until_ns,
            resume=resume,
            budgets=self.budgets,
        )
        self.old_leases, self.leases = self.leases, []
        self.naive.begin(
            start,
            read_to=resume.read if resume else 0,
            finished=known,
            attempts=resume.attempts if resume else {},
        )

    def may_hand_out(self, now_ns: int) -> bool:
        here = self.pipeline
        return not here.draining and self.hold_until_ns <= now_ns < here.trusted_until_ns

    def saw(self, effects: Effects) -> None:
        self.copies += [(self.pipeline, job) for job in effects.dead_letters]

    def pull(self, jobs: int, *, now_ns: int, connection: int) -> list[Lease]:
        """Lease and compare; every ready job is given, as far as *jobs* reaches."""
        ready = len(self.naive.ready()) if self.may_hand_out(now_ns) else 0
        leases = lease(self.pipeline, jobs, now_ns=now_ns, holder=Holder(connection))
        for each in leases:
            self.naive.hand_out(each, now_ns=now_ns)
        assert len(leases) == min(jobs, ready)
        self.leases += leases
        return leases

    def commit(self) -> None:
        offset = self.pipeline.committable
        assert offset >= self.committed, "claim 4: never falls"
        self.committed = self.pipeline.committed = offset
