"""A queue pipeline next to its naive model, over the ownership periods of one queue."""

from __future__ import annotations

from dataclasses import replace

from proxy.core.jobs.chains import Job
from proxy.core.jobs.hand_out import HandOut
from proxy.core.jobs.refills import Refill
from proxy.core.keys.ids import Epoch
from proxy.core.keys.topic_rules import TopicRules
from proxy.core.leases.lease_book import Holder, Lease
from proxy.core.leases.verdicts import Outcome
from proxy.core.ownership.recording import Recording
from proxy.core.pipeline.effects import Effects
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.core.records.codec import decode, encode
from proxy.core.records.record import Own, Snapshot
from proxy.core.records.replay import LastOwner, replay
from testkit.pipelines import Budgets, lease, offsets, pipeline, queue, rules
from tests.property.core.pipeline.naive_facts import MS, Facts, Sent
from tests.property.core.pipeline.naive_job import NaiveJob
from tests.property.core.pipeline.naive_queue import NaiveQueue

TRUST_NS = 60 * MS


def _rules_of(known: Facts) -> TopicRules:
    return rules(
        known.order_key,
        missing_key=known.missing_key,
        tags=known.tags,
        visibility_ns=known.visibility_ns,
        retry=known.retry,
        max_jobs=known.max_jobs,
        max_jobs_per_key=known.max_jobs_per_key,
    )


class Modelled:
    """One queue: its pipeline in this period, and the model."""

    def __init__(self, number: int, known: Facts, budgets: Budgets) -> None:
        self.name = queue(number)
        self.budgets = budgets
        self.naive = NaiveQueue(known)
        self.rules = _rules_of(known)
        self.end = 0  # the offset of the next message sent
        self.taken = 0  # used places of the window, when last checked
        self.epoch = 0
        self.committed = 0
        self.records: list[bytes] = []  # contents of the ownership topic
        self.recorded: dict[int, Outcome] = {}  # finished by then
        self.policy = HandOut.OLDEST
        self.leases: list[Lease] = []
        self.copies: list[tuple[QueuePipeline, Job]] = []  # dead letters under way
        self.refills: list[tuple[QueuePipeline, Refill]] = []  # reads under way
        self.begin(now_ns=0, hold_ns=0, resume=None)

    def begin(self, *, now_ns: int, hold_ns: int, resume: Snapshot | None) -> None:
        """Begin a new period and close the pipeline of the old one."""
        finished = dict(self.naive.finished)
        known = {o: end for o, end in finished.items() if o < self.committed}
        if resume is not None:
            known |= self.recorded
        start = max(self.committed, resume.base if resume else 0)
        self.epoch += 1
        self.recorded_lease_ns = self.rules.visibility_ns
        self._go_by_recorded_lease()
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
        self.pipeline.hand_out_by(self.policy)
        last = None
        if resume is None:
            self.records = []
        else:
            last = self.last_owner()
        self.recording = Recording(self.pipeline, last)
        self.pipeline.epoch = Epoch(len(self.records))
        lease_ms = self.recorded_lease_ns // MS
        self.records.append(encode(Own("us", 1, lease_ms, 1, self.epoch)))
        self.old_leases, self.leases = self.leases, []
        self.naive.begin(start, resume=resume, finished=known)
        self.saw(self.pipeline.on_time(now_ns=now_ns))

    def send(self, sent: Sent) -> None:
        """Append a message to the log."""
        self.naive.log[sent.offset] = sent
        self.end_at(sent.offset + 1)

    def end_at(self, offset: int) -> None:
        """Let the log end at *offset* or later."""
        self.end = max(self.end, offset)

    def note_taken(self) -> None:
        """Check the used places of the window."""
        self.taken = self.pipeline.jobs.residency.taken

    def change_rules(self, known: Facts) -> None:
        """Change all rules except the order key."""
        before = self.naive.facts
        known = replace(known, order_key=before.order_key, missing_key=before.missing_key)
        self.naive.go_by(known)
        self.rules = _rules_of(known)
        self._go_by_recorded_lease()
        self.saw(self.pipeline.change_rules(self.rules))

    def hand_out_by(self, policy: HandOut) -> None:
        """Change the delivery policy, which must not affect the order of keys."""
        self.policy = policy
        self.pipeline.hand_out_by(policy)

    def _go_by_recorded_lease(self) -> None:
        """Check that no lease is longer than recorded."""
        lease_ns = min(self.rules.visibility_ns, self.recorded_lease_ns)
        self.naive.go_by(replace(self.naive.facts, visibility_ns=lease_ns))

    def last_owner(self) -> LastOwner | None:
        """Return the last owner according to the ownership topic."""
        return replay((offset, decode(body)) for offset, body in enumerate(self.records))

    @property
    def record(self) -> Snapshot | None:
        """Return the state that the next owner resumes."""
        last = self.last_owner()
        return None if last is None else last.snapshot

    def write_down(self, *, now_ns: int, whole: bool) -> None:
        """Record the changes; all records together must add up to the model's state."""
        at = len(self.records)
        has_news = self.recording.has_news(now_ns)
        due = self.recording.due(now_ns, whole=whole)
        assert due or not whole
        assert has_news or whole or not due
        if due:
            self.records += [encode(record) for record in due]
            self.recording.written(due, at=at)
        self.recorded_lease_ns = max(self.recorded_lease_ns, self.rules.visibility_ns)
        self._go_by_recorded_lease()
        last = self.last_owner()
        assert last is not None
        assert last.own.longest_lease_ms == self.recorded_lease_ns // MS
        self.recorded = dict(self.naive.finished)
        if (record := self.record) is not None:
            self._tells_all(record, self.naive.snapshot(self.pipeline.epoch))

    def _tells_all(self, record: Snapshot, naive: Snapshot) -> None:
        spilled = {offset for chain in record.spilled.values() for offset in chain}
        assert (record.base, record.read) == (naive.base, naive.read)
        assert sorted({*record.unfinished, *spilled}) == list(naive.unfinished)
        assert len(spilled) + len(record.unfinished) == len(naive.unfinished)
        unfinished = set(naive.unfinished)
        attempts = {offset: n for offset, n in record.attempts.items() if offset in unfinished}
        assert attempts == naive.attempts
        here = self.pipeline.snapshot()
        assert (record.unfinished, record.spilled) == (here.unfinished, here.spilled)

    def may_hand_out(self, now_ns: int) -> bool:
        here = self.pipeline
        return not here.draining and self.hold_until_ns <= now_ns < here.trusted_until_ns

    def saw(self, effects: Effects) -> None:
        self.copies += [(self.pipeline, job) for job in effects.dead_letters]
        self.refills += [(self.pipeline, refill) for refill in effects.refills]

    def refill(self, index: int, *, gone: int = 0) -> None:
        """Answer a read of spilled messages; retention deleted the first *gone* of them."""
        owner, refill = self.refills.pop(index)
        found = [self.naive.log[offset].stored() for offset in refill.offsets[gone:]]
        effects = owner.refilled(refill, found)
        if owner is not self.pipeline:
            assert effects == Effects(), "nothing of an old period leaks into the new one"
            return
        for offset in refill.offsets[:gone]:
            assert (offset, Outcome.DELETED) in effects.finished
            self.naive.deleted(offset)
        self.saw(effects)

    @property
    def elsewhere(self) -> set[int]:
        """Offsets of unfinished jobs that are not in memory."""
        return {
            offset
            for _, chain in self.pipeline.jobs.spilled_chains
            for offset in chain.offsets[chain.loaded :]
        }

    @property
    def unloaded(self) -> set[int]:
        """Offsets of jobs without their messages."""
        return set(self.pipeline.jobs.residency.unloaded.offsets)

    def ready(self) -> list[NaiveJob]:
        """Jobs that a pull should get. Not heads of chains that are being read again, nor spilled
        ones until all that an earlier owner had in memory is read and there is room, nor unloaded
        ones.
        """
        later = {
            offset for owner, refill in self.refills if owner is self.pipeline
            for offset in refill.offsets
        }  # fmt: skip
        if self.naive.position < self.naive.read_to:
            later |= self.elsewhere
        jobs = self.pipeline.jobs
        down, ready = jobs.residency.unloaded, {job.sent.offset for job in self.naive.ready()}
        assert self.unloaded & ready <= down.coming, "it is not being read"
        assert not down.due or jobs.residency.left <= down.spare, (
            "a message waits for room, and there is some"
        )
        later |= self.unloaded
        for key in jobs.residency.starved:
            assert jobs.residency.left <= 0, "a key waits for room, and there is some"
            if (chain := jobs.spilled_chains.of(key)) is not None:
                later.update(chain.offsets)
        return [job for job in self.naive.ready() if job.sent.offset not in later]

    def pull(
        self, jobs: int, *, now_ns: int, connection: int, max_run: int = 1, places: int = 0
    ) -> list[Lease]:
        """Lease and compare: every ready job is delivered, up to *jobs*, and up to *places* more
        behind them in runs.
        """
        ready = self.ready() if self.may_hand_out(now_ns) else []
        used_up = [job for job in self.naive.to_give_up() if job in ready]
        heads = lease(self.pipeline, jobs, now_ns=now_ns, holder=Holder(connection))
        assert len(heads) == min(jobs, len(ready) - len(used_up))
        self._gave_up(used_up, all_of_them=len(heads) < jobs)
        runs = self.naive.runs(
            offsets(heads), max_run=max_run, places=places, elsewhere=self.elsewhere
        )
        leases = self.pipeline.lengthen(heads, max_run=max_run, max_jobs=places, max_bytes=1 << 60)
        assert offsets(leases) == [offset for run in runs for offset in run]
        first = set(offsets(heads))
        ahead: Lease | None = None
        for each in leases:
            in_run = each.job.offset not in first
            self.naive.hand_out(each, now_ns=now_ns, ahead=ahead if in_run else None)
            ahead = each
        self.leases += leases
        return leases

    def _gave_up(self, used_up: list[NaiveJob], *, all_of_them: bool) -> None:
        """Check jobs given up ahead of delivered ones, or *all_of_them*."""
        effects = self.pipeline.take_unreported() or Effects()
        offsets_given_up = [job.offset for job in effects.dead_letters]
        assert set(offsets_given_up) <= {job.sent.offset for job in used_up}
        assert not all_of_them or len(offsets_given_up) == len(used_up)
        self.naive.give_up(offsets_given_up).assert_is(effects)
        self.saw(effects)

    def was_not_sent(self, last: int, *, waits: bool) -> None:
        unsent = self.leases[-last:]
        for each in unsent:
            job = self.naive.by_lease(each.lease_id)
            if waits:
                each.not_sent()
                if job is not None:
                    job.was_not_sent()
            elif job is not None:
                self.naive.hand_back(job)
        if not waits:
            self.pipeline.return_unsent(unsent)

    def commit(self) -> None:
        offset = self.pipeline.committable
        assert offset >= self.committed, "claim 4: never falls"
        self.committed = self.pipeline.committed = offset
