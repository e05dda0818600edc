"""Naive model of a queue pipeline, with plain lists, for its tests.

It has the log, the read position, and a small record for each unfinished message. Every result is
found by a full search.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from typing import Any

from proxy.core.keys.order_key import MissingKey
from proxy.core.keys.retry_policy import OnExhausted
from proxy.core.leases.lease_book import Lease
from proxy.core.leases.verdicts import Nack, Outcome
from proxy.core.records.record import Snapshot
from tests.property.core.pipeline.naive_facts import MS, Facts, Sent
from tests.property.core.pipeline.naive_job import Expected, NaiveJob


@dataclass(slots=True)
class NaiveQueue:
    """One queue over its ownership periods. ``finished`` is the present owner's knowledge."""

    facts: Facts
    log: dict[int, Sent] = field(default_factory=dict)
    position: int = 0
    read_to: int = 0  # read position of this owner or earlier ones, as far as known
    jobs: dict[int, NaiveJob] = field(default_factory=dict)
    finished: dict[int, Outcome] = field(default_factory=dict)
    failed_attempts: dict[int, int] = field(default_factory=dict)
    first_handed: dict[str, int] = field(default_factory=dict)  # highest so far, of each chain
    unread: set[int] = field(default_factory=set)  # unfinished below read_to, and not spilled
    given_up: set[int] = field(default_factory=set)  # by an earlier owner, according to its records

    # ---- expected state ---------------------------------------------------------------------

    def ready(self) -> list[NaiveJob]:
        """Jobs that a pull should get: available, and waiting for no other job."""
        leads: dict[str, NaiveJob] = {}
        self.jobs = dict(sorted(self.jobs.items()))
        for job in self.jobs.values():
            if job.chain is not None:
                leads.setdefault(job.chain, job)
        return [
            job
            for job in self.jobs.values()
            if job.state == "waiting" and (job.chain is None or leads[job.chain] is job)
        ]

    def to_give_up(self) -> list[NaiveJob]:
        """Those of ``ready`` that used up their deliveries in earlier periods."""
        return [
            job
            for job in self.ready()
            if job.sent.offset in self.given_up and self._used_up(job.attempts)
        ]

    def give_up(self, offsets: Iterable[int]) -> Expected:
        """Give up jobs whose turn has come."""
        expected = Expected()
        for offset in offsets:
            job = self.jobs[offset]
            assert job in self.to_give_up()
            self._give_up(job, expected)
        return expected

    def count(self, *states: str) -> int:
        return sum(job.state in states for job in self.jobs.values())

    def leased(self) -> list[NaiveJob]:
        return [job for job in self.jobs.values() if job.state == "leased"]

    def by_lease(self, lease: int) -> NaiveJob | None:
        return next((job for job in self.leased() if job.lease == lease), None)

    @property
    def chains(self) -> set[str]:
        """Return chains with unfinished jobs, except messages dead-lettered before their submit."""
        return {job.chain for job in self.jobs.values() if job.chain is not None}

    @property
    def body_bytes(self) -> int:
        return sum(len(job.sent.body_bytes) for job in self.jobs.values())

    @property
    def committable(self) -> int:
        return min([*self.jobs, self.position])

    def next_due_ns(self) -> int | None:
        times = [job.deadline_ns for job in self.leased()]
        times += [job.due_ns for job in self.jobs.values() if job.state == "retrying"]
        return min(times, default=None)

    def snapshot(self, epoch: Any) -> Snapshot:
        unfinished = [
            offset
            for offset in sorted(self.log)
            if offset in self.jobs
            or (self.position <= offset < self.read_to and offset not in self.finished)
        ]
        attempts = {o: n for o, n in self.failed_attempts.items() if o in unfinished}
        read = max(self.position, self.read_to)
        return Snapshot(epoch, self.committable, read, tuple(unfinished), attempts)

    def deleted(self, offset: int) -> Expected:
        """Note that retention deleted the message before its turn came."""
        expected = Expected()
        self._finish(offset, Outcome.DELETED, expected)
        return expected

    # ---- events -------------------------------------------------------------------------------

    def go_by(self, facts: Facts) -> None:
        """Apply other rules from now on."""
        self.facts = facts

    def read(self, sent: Iterable[Sent], next_offset: int) -> Expected:
        expected = Expected()
        for each in sent:
            if each.offset < self.position:
                continue
            self.position = each.offset + 1
            if each.offset in self.finished or each.offset in self.jobs:
                continue
            if self.facts.tags is not None and each.tag not in self.facts.tags:
                self._finish(each.offset, Outcome.FILTERED, expected)
                continue
            job = NaiveJob(
                each, self.facts.chain_of(each), self.failed_attempts.get(each.offset, 0)
            )
            self.jobs[each.offset] = job
            if self.facts.order_key and self.facts.key_of(each) is None:
                expected.missing_keys += 1
                if self.facts.missing_key is MissingKey.DEAD_LETTER:
                    self._give_up(job, expected)
        self.position = max(self.position, next_offset)
        self._skip_known()
        self.read_to = max(self.read_to, self.position)
        return expected

    def _skip_known(self) -> None:
        while self.position < self.read_to and self.position not in self.unread:
            self.position += 1

    def runs(
        self, heads: list[int], *, max_run: int, places: int, elsewhere: set[int]
    ) -> list[list[int]]:
        """Return the offsets of runs that begin with *heads*: each grows by one while possible."""
        runs = [[self.jobs[head]] for head in heads]
        longest = max_run
        retry = self.facts.retry
        if retry.max_deliveries == 1 and retry.on_exhausted is not OnExhausted.BLOCK:
            longest = 1
        grown = True
        while grown:
            grown = False
            for run in runs:
                chain = [job for job in self.jobs.values() if job.chain == run[0].chain is not None]
                behind = chain[len(run) :]
                fresh = behind and not (behind[0].attempts or run[0].attempts)
                in_memory = behind and behind[0].sent.offset not in elsewhere
                if fresh and in_memory and len(run) < longest and places > 0:
                    run.append(behind[0])
                    places -= 1
                    grown = True
        return [[job.sent.offset for job in run] for run in runs]

    def hand_out(self, lease: Lease, *, now_ns: int, ahead: Lease | None = None) -> None:
        """Check that the pipeline may lease a job, perhaps one that follows *ahead* in a run."""
        job = self.jobs[lease.job.offset]
        assert job.state == "waiting", "claim 3: at most one live lease"
        if ahead is None:
            assert job in self.ready(), "claim 1: of a key one is ready or running"
            job.lead()
        else:
            last = self.jobs[ahead.job.offset].run[-1]
            assert last.lease == ahead.lease_id
            assert last.connections[-1] == lease.holder.connection
            job.follow(last)
        offset, chain = job.sent.offset, job.chain
        if chain is not None:
            for earlier in self.log.values():
                if earlier.offset < offset and self.facts.chain_of(earlier) == chain:
                    in_its_run = earlier.offset in [other.sent.offset for other in job.run]
                    assert in_its_run or earlier.offset in self.finished, "claim 2"
            if job.attempts == 0 and not job.connections:
                assert self.first_handed.get(chain, -1) < offset, "claim 2: in queue order"
                self.first_handed[chain] = offset
        job.hand_out(
            lease=lease.lease_id,
            connection=lease.holder.connection,
            deadline_ns=now_ns + self.facts.visibility_ns,
        )
        assert (lease.job.attempts, lease.deadline_ns) == (job.attempts, job.deadline_ns)

    def settle(
        self, *, acked: list[int], nacked: list[Nack], released: list[int], now_ns: int
    ) -> Expected:
        expected = self.pass_time(now_ns)
        gone: list[int] = []
        for lease in acked:
            gone += self._judge(lease, "ack", expected, now_ns=now_ns)
        for nack in nacked:
            gone += self._judge(nack.lease_id, nack, expected, now_ns=now_ns)
        for lease in released:
            if lease not in gone:
                went = self._judge(lease, "release", expected, now_ns=now_ns)
                gone += [other for other in went if other != lease]
        return expected

    def _judge(
        self, lease: int, verdict: Nack | str, expected: Expected, *, now_ns: int
    ) -> list[int]:
        """Apply a verdict, in order within its run; return the leases that were returned."""
        job = self._held(lease, expected)
        if job is None:
            return []
        job.judge(verdict)
        run, gone = job.run, []
        while run and (said := run[0].verdict):
            first, back = run[0], run[1:]
            if said == "ack":
                self._acked(first, expected)
                continue
            if isinstance(said, Nack):
                self._nacked(first, said, expected, now_ns=now_ns)
            else:
                back.insert(0, first)
                self.hand_back(first)
            expected.released.extend(other.sent.offset for other in back)
            gone += [other.lease for other in back]
        return gone

    def settle_by_offset(
        self, *, success: list[int], failed: list[int], connection: int,
        open_connections: Container[int], now_ns: int,
    ) -> Expected:  # fmt: skip
        expected = self.pass_time(now_ns)
        for offset in dict.fromkeys([*failed, *success]):
            job = self.jobs.get(offset)
            if job is None or job.state != "leased":
                expected.fenced.append(offset)
                continue
            came_back = (
                len(set(job.connections)) == 1 and job.connections[0] not in open_connections
            )
            if job.in_run or (job.connections[-1] != connection and not came_back):
                expected.fenced.append(offset)
            elif offset in success:
                self._acked(job, expected)
            else:
                self._nacked(job, Nack(lease_id=lease_of(job)), expected, now_ns=now_ns)
        return expected

    def extend(self, leases: list[int], *, ms: int, now_ns: int, refused: bool) -> list[int]:
        """Extend *leases*; return those that are no longer held."""
        held = {lease for lease in leases if (job := self.by_lease(lease)) and not refused
                and job.deadline_ns > now_ns}  # fmt: skip
        for job in self.leased():
            if held & {other.lease for other in job.run}:
                job.extend(now_ns + min(ms * MS, self.facts.visibility_ns))
        return [lease for lease in leases if lease not in held]

    def hand_back(self, job: NaiveJob) -> None:
        """Return *job* unhandled, with those behind it in its run."""
        for each in job.run[job.run.index(job) :]:
            each.take_back()

    def stored_copy(self, offset: int) -> Expected:
        expected = Expected()
        assert self.jobs[offset].state == "dead"
        self._finish(offset, Outcome.DEAD_LETTERED, expected)
        return expected

    def pass_time(self, now_ns: int) -> Expected:
        expected = Expected()
        ended = [job for job in self.leased() if job.deadline_ns <= now_ns]
        runs = {min(each.lease for each in job.run): job.run for job in ended}
        for run in sorted(runs.values(), key=lambda run: (run[0].deadline_ns, run[0].lease)):
            first, said = run[0], [job.verdict for job in run]
            if first.unsent:
                expected.unsent += [job.sent.offset for job in run]
                self.hand_back(first)
                continue
            ends = [at + isinstance(v, Nack) for at, v in enumerate(said) if v not in (None, "ack")]
            handled, back = run[: min(ends, default=len(run))], run[min(ends, default=len(run)) :]
            expected.expired += [job.sent.offset for job in handled]
            expected.released += [job.sent.offset for job in back]
            for job in back[:1]:
                self.hand_back(job)
            for job in handled[1:]:  # possibly unhandled, but that is unknown: it counts
                job.end_lease()
                job.wait()
                self.failed_attempts[job.sent.offset] = job.attempts
            self._failed(first, None, expected, now_ns=now_ns)
        for job in self.jobs.values():
            if job.state == "retrying" and job.due_ns <= now_ns:
                job.wait()
        return expected

    def begin(self, start: int, *, resume: Snapshot | None, finished: dict[int, Outcome]) -> None:
        """Begin a new owner's period with this knowledge."""
        self.finished, self.first_handed, self.given_up = dict(finished), {}, set()
        self.jobs, self.unread, self.failed_attempts = {}, set(), {}
        self.position = self.read_to = start
        if resume is not None:
            self.read_to = max(start, resume.read)
            self.failed_attempts = dict(resume.attempts)
            self.given_up = {o for o, n in resume.attempts.items() if self._used_up(n)}
            self.unread = set(resume.unfinished)
            for offset in sorted(o for chain in resume.spilled.values() for o in chain):
                if offset >= start:
                    sent = self.log[offset]
                    attempts = self.failed_attempts.get(offset, 0)
                    self.jobs[offset] = NaiveJob(sent, self.facts.chain_of(sent), attempts)
            self._skip_known()

    # ---- internals ----------------------------------------------------------------------------

    def _used_up(self, attempts: int) -> bool:
        retry = self.facts.retry
        return attempts >= retry.max_deliveries and retry.on_exhausted is not OnExhausted.BLOCK

    def _held(self, lease: int, expected: Expected) -> NaiveJob | None:
        job = self.by_lease(lease)
        if job is None:
            expected.fenced.append(lease)
        return job

    def _acked(self, job: NaiveJob, expected: Expected) -> None:
        job.end_lease()
        expected.acked.append(job.sent.offset)
        self._finish(job.sent.offset, Outcome.OK, expected)

    def _nacked(self, job: NaiveJob, nack: Nack, expected: Expected, *, now_ns: int) -> None:
        expected.nacked.append(job.sent.offset)
        self._failed(job, nack, expected, now_ns=now_ns)

    def _failed(self, job: NaiveJob, nack: Nack | None, expected: Expected, *, now_ns: int) -> None:
        retry = self.facts.retry
        behind = job.run[1:]
        job.end_lease()
        for each in behind:
            each.take_back()
        self.failed_attempts[job.sent.offset] = job.attempts
        rejected = nack is not None and nack.reject
        if self._used_up(job.attempts) or (
            rejected and retry.on_exhausted is not OnExhausted.BLOCK
        ):
            self._give_up(job, expected)
        elif nack is None:
            job.wait()
        else:
            wait_ms = nack.retry_after_ms
            if wait_ms is None:
                wait_ms = [*retry.intervals_ms, *[retry.intervals_ms[-1]] * 99][job.attempts - 1]
            job.retry_at(now_ns + wait_ms * MS)

    def _give_up(self, job: NaiveJob, expected: Expected) -> None:
        job.give_up()
        expected.dead_letters.append(job.sent.offset)

    def _finish(self, offset: int, outcome: Outcome, expected: Expected) -> None:
        assert offset not in self.finished, "nothing finishes twice"
        self.jobs.pop(offset, None)
        self.failed_attempts.pop(offset, None)
        self.finished[offset] = outcome
        expected.finished.append((offset, outcome))


def lease_of(job: NaiveJob) -> Any:
    return job.lease
