"""The unfinished jobs of one queue, in memory or spilled, and its finished offsets. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from operator import attrgetter

from broker_core.remoting.message import StoredMessage
from proxy.core.jobs.by_key import JobsByKey
from proxy.core.jobs.chains import CHAINED, RUNNING, Job, JobChains
from proxy.core.jobs.hand_out import HandOut
from proxy.core.jobs.key_change import KeyChange
from proxy.core.jobs.offset_tracker import OffsetTracker
from proxy.core.jobs.refills import Refill
from proxy.core.jobs.residency import Residency
from proxy.core.jobs.spilled_chains import SpilledChains
from proxy.core.jobs.window import FlowWindow
from proxy.core.keys.ids import Epoch
from proxy.core.keys.key_rules import KeyRecord
from proxy.core.records.record import Snapshot

_offset_of, _held_bytes_of = attrgetter("offset"), attrgetter("held_bytes")


class Jobs:
    """The jobs of one ownership period. Its components change together:

    - ``chains``: the order of the jobs in memory; others hold, release, poll and follow there,
    - ``spilled_chains``: offsets of jobs that are, or were, not in memory; read-only for others,
    - ``residency``: which jobs are in memory, within the ``window``,
    - ``by_key``: a read-only view by order key,
    - ``change``: the older messages while the order key changes, None otherwise.

    Caller: the pipeline and its components; records and views only read. Finished offsets may be
    committed (``committable``).
    """

    def __init__(
        self,
        start_offset: int,
        *,
        window: FlowWindow,
        max_jobs_per_key: int,
        resume: Snapshot | None = None,
        spill_all: bool = False,
    ) -> None:
        """Create the jobs of a new ownership period.

        Args:
            start_offset: the stored offset.
            window: limits of memory.
            max_jobs_per_key: as for ``Residency``.
            resume: state of earlier owners: finished offsets and spilled chains. Offsets below its
                base are finished even if *start_offset* is lower.
            spill_all: as for ``Residency``.
        """
        if resume is not None:
            start_offset = max(start_offset, resume.base)
        self.window = window
        self.chains = JobChains()
        self.spilled_chains = SpilledChains(window.spill, emptied=set() if spill_all else None)
        self._tracker = OffsetTracker[Job](start_offset)
        self.residency = Residency(
            self.chains,
            self.spilled_chains,
            self._tracker,
            window,
            max_jobs_per_key=max_jobs_per_key,
            spill_all=spill_all,
        )
        self.by_key = JobsByKey(self.chains, self.spilled_chains)
        self.change: KeyChange | None = None
        self._relief = window.memory.relief
        self._came_to = start_offset  # arrivals are counted up to here
        self._resume = resume
        if resume is None:
            self.residency.begin_refills()
            return
        for key, offsets in resume.spilled.items():
            if offsets := offsets[bisect_left(offsets, start_offset) :]:  # not before a reset
                self.spilled_chains.append(key, offsets)
        self.advance(start_offset)

    # ---- reading; caller: the pipeline ----------------------------------------------------------

    @property
    def position(self) -> int:
        """Next offset to read."""
        return self._tracker.position

    @property
    def resumes(self) -> bool:
        """True until everything that an earlier owner had read is read."""
        return self._resume is not None

    def knows(self, offset: int) -> bool:
        """Return True if the message at *offset* is finished by an earlier owner, or spilled, and
        need not be read.
        """
        return self._resume is not None and not self._resume.unread(offset)

    def unread_within(self, begin: int, end: int) -> int:
        """Return how many messages from *begin*, the read position, to *end* must be read. O(log
        n).
        """
        return end - begin if self._resume is None else self._resume.unread_within(begin, end)

    def pass_over(self, offset: int) -> None:
        """Skip the message at *offset*, which is finished or spilled."""
        self._tracker.advance(offset + 1)

    def advance(self, next_offset: int) -> None:
        """Move the read position to *next_offset*, or past messages that need no reading."""
        tracker = self._tracker
        tracker.advance(next_offset)
        self._relief.note_arrivals(tracker.position - self._came_to)
        self._came_to = tracker.position
        if self._resume is not None:
            tracker.advance(self._resume.next_unread(tracker.position))
            if tracker.position >= self._resume.read:
                self._resume = None
                self.residency.begin_refills()

    def hold(self, job: Job) -> None:
        """Add *job* as unfinished, outside of any chain."""
        self._tracker.start(job.offset, job)
        self.window.admit(job.held_bytes)

    def admit(self, job: Job) -> None:
        """Add a job that was read and not spilled to its chain."""
        self._tracker.start(job.offset, job)
        self.window.admit(job.held_bytes)
        self.chains.submit(job)

    def admit_all(self, jobs: Sequence[Job]) -> None:
        """Do as ``admit`` for each of *jobs*, whose offsets rise; there is at least one."""
        self._tracker.start_all([*map(_offset_of, jobs)], jobs)
        self.window.admit(sum(map(_held_bytes_of, jobs)), jobs=len(jobs))
        submit = self.chains.submit
        for job in jobs:
            submit(job)

    def refilled(self, refill: Refill, jobs: Sequence[Job]) -> bool:
        """Take the messages read for *refill*: *jobs* for those that still exist, in order; the
        others are finished. Return False, without any effect, if they are no longer wanted.
        """
        wanted = self.residency.refilled(refill, jobs)
        if wanted and self.change is not None:
            for offset in set(refill.offsets).difference(job.offset for job in jobs):
                self._finished(offset)
        return wanted

    # ---- finishing; caller: the pipeline --------------------------------------------------------

    def finish(self, job: Job) -> None:
        """Finish a running or held job; its successor becomes ready, or is read again."""
        if job.state is CHAINED:
            job.move(CHAINED, RUNNING)
        self.chains.finish(job)
        self.residency.leave(job)
        key, spilled = job.key, self.spilled_chains
        if not job.refilled:
            self._tracker.finish(job.offset)
        elif key is not None:
            spilled.finish(key)
        if spilled.keys or self.residency.unloaded.due:
            self.residency.feed()
            if key is not None:
                self.residency.refill(key)
        if self.change is not None:
            self._finished(job.offset)

    def finish_all(self, jobs: Sequence[Job]) -> None:
        """Finish leased jobs in that order: ``finish`` for many jobs at once."""
        if self.change is not None:
            for job in jobs:
                self.finish(job)
            return
        held_bytes = 0
        finish, spilled = self.chains.finish, self.spilled_chains
        finished: list[int] = []  # those that were never spilled
        for job in jobs:
            finish(job)
            held_bytes += job.held_bytes
            if not job.refilled:
                finished.append(job.offset)
            elif job.key is not None:
                spilled.finish(job.key)
        self._tracker.finish_all(finished)
        self.window.leave(held_bytes, jobs=len(jobs))
        if spilled.keys or self.residency.unloaded.due:
            self.residency.feed()
            before = None
            for job in jobs:
                if job.key is not None and job.key != before:  # runs have one key
                    self.residency.refill(job.key)
                before = job.key

    def skip_stored(self, key: bytes) -> int | None:
        """Finish the job of ``by_key.first_stored`` without reading it; return its offset."""
        if (offset := self.by_key.first_stored(key)) is not None:
            self.spilled_chains.skip_first(key)
            self._finished(offset)
        return offset

    def close(self) -> None:
        """Drop all jobs; unfinished offsets stay, for records and commits."""
        self.residency.close()
        self.change = None

    # ---- changing the order key; caller: the pipeline, parking ----------------------------------

    def begin_change(self, record: KeyRecord, *, parked: bool) -> None:
        """Apply the rule of *record* to messages from its switch on. *parked*: some older messages
        are parked. O(unfinished).
        """
        self.change = KeyChange(
            record, unfinished=self.all_read(), in_memory=self._in_memory(), parked=parked
        )
        self.chains.wait_by(self.change.waits)

    def settle_change(self) -> bool:
        """Release jobs that no longer wait for older messages; return True if the change is
        complete.
        """
        if (change := self.change) is None:
            return False
        through = (
            not (change.counting or change.waits_for_parked)
            and min(self.position, self.committable) >= change.since
        )
        if through:
            self.change = None
            self.chains.wait_by(None)
        opened = change.take_opened()
        for key in list(self.chains.keys) if through or opened is None else opened:
            self.chains.open(key)
        return through

    @property
    def older(self) -> int:
        """Number of unfinished messages whose keys follow an older rule. O(unfinished)."""
        return 0 if self.change is None else bisect_left(self.all_read(), self.change.since)

    def waits(self, job: Job) -> bool:
        """Return True if *job* waits for older messages, possibly of other chains."""
        return self.change is not None and self.change.waits(job)

    def parks(self, job: Job) -> None:
        """Note that *job* is about to finish because a copy of it is parked."""
        if self.change is not None and job.key is not None:
            self.change.parked(job.key, job.offset)

    def unparked(self, keys: Iterable[bytes]) -> None:
        """Note that *keys* are no longer parked: they have no copies."""
        if self.change is not None:
            self.change.unparked(keys)

    def _finished(self, offset: int) -> None:
        """Note that the message at *offset* has finished, possibly the last one of its new key."""
        if self.change is not None and not self.change.finished(offset):
            self.change.recount(self.all_read(), self._in_memory())

    def all_read(self) -> list[int]:
        """Return the rising offsets of the unfinished jobs that were read. O(unfinished)."""
        spilled = (each.offsets[each.head :] for _, each in self.spilled_chains)
        return sorted([*self._tracker.unfinished(), *chain.from_iterable(spilled)])

    def _in_memory(self) -> dict[int, StoredMessage]:
        again = chain.from_iterable(self.chains.jobs(key) for key in self.spilled_chains.keys)
        jobs = chain(self._tracker.started(), (job for job in again if job.refilled))
        return {job.offset: job.message for job in jobs if job.message is not None}

    # ---- delivery policy; caller: the pipeline ---------------------------------------------------

    def hand_out_by(self, policy: HandOut) -> None:
        """Let ready jobs go by *policy* from the next delivery on. O(ready)."""
        longest_first = policy is HandOut.LONGEST_CHAIN
        self.chains.rank_by(self.by_key.backlog if longest_first else None)

    # ---- queries; caller: commits, records, statistics ------------------------------------------

    @property
    def committable(self) -> int:
        """Next offset that the group needs: never above the lowest unfinished one."""
        lowest = self.spilled_chains.lowest
        committable = self._tracker.committable
        return committable if lowest is None else min(committable, lowest)

    @property
    def oldest(self) -> Job | None:
        """The job at ``committable``; None if it is not in memory."""
        key = self.spilled_chains.lowest_key
        job = self._tracker.oldest
        if key is not None and (job is None or job.offset != self.committable):
            job = next(self.chains.jobs(key), None)
        return job if job is not None and job.offset == self.committable else None

    @property
    def unfinished(self) -> int:
        """Number of unfinished jobs."""
        return len(self._tracker) + sum(each.unfinished for _, each in self.spilled_chains)

    def is_unfinished(self, offset: int, key: bytes | None) -> bool:
        """Return whether the job at *offset*, whose order key is *key*, is unfinished, or not read
        yet. O(log n).
        """
        if offset in self._tracker:
            return True
        spilled = () if key is None else self.by_key.spilled_offsets(key)
        at = bisect_left(spilled, offset)
        if at < len(spilled) and spilled[at] == offset:
            return True
        return offset >= self.position and not self.knows(offset)

    @property
    def spilled(self) -> int:
        """Number of unfinished jobs that are not in memory."""
        return self.spilled_chains.waiting

    def snapshot(
        self, epoch: Epoch, attempts: Mapping[int, int], leases: Mapping[int, int]
    ) -> Snapshot:
        """Return the state that the next owner needs to repeat no finished message. O(unfinished).

        For messages that the predecessor read and this owner has not reached, it repeats the
        predecessor's state.
        """
        base = self.committable
        attempts = {offset: count for offset, count in attempts.items() if offset >= base}
        spilled = {key: each.offsets[each.head :] for key, each in self.spilled_chains}
        unfinished = tuple(self.unspilled())
        return Snapshot(epoch, base, self.read, unfinished, attempts, spilled, dict(leases))

    @property
    def read(self) -> int:
        """Read position; the earlier owner's until this one reaches it."""
        return self.position if self._resume is None else self._resume.read

    @property
    def never_spilled(self) -> int:
        """Number of ``unspilled`` jobs. O(log n)."""
        count = len(self._tracker)
        if self._resume is not None:
            theirs = self._resume.unfinished
            count += len(theirs) - bisect_left(theirs, self.position)
        return count

    def unspilled_changes(self) -> tuple[list[int], list[int]]:
        """Return the changes of ``unspilled`` since the last call: offsets that finished or were
        spilled, and added ones. Valid once everything that an earlier owner had is read.
        O(changes).
        """
        return self._tracker.changes()

    def unspilled(self) -> list[int]:
        """Return the rising offsets of the unfinished jobs that were never spilled, read or not."""
        unfinished = self._tracker.unfinished()
        if self._resume is not None:
            theirs = self._resume.unfinished
            unfinished += theirs[bisect_left(theirs, self.position) :]
        return unfinished
