"""Leases, deadlines and retries of running jobs. Pure.

A running job is in exactly one place here: leased, waiting for its retry time, or offered again. It
leaves each of them in O(log n). Deadlines are a heap of ranges of lease ids, because leases are
granted many at a time and most end long before. Stale entries stay: a lease is in effect only in
the entry with its current deadline. They are swept once they outnumber the live ones. (A sorted map
without stale entries made a pull of one message 10 % slower.)
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from operator import attrgetter
from typing import Any, NamedTuple, cast

from proxy.core.jobs.chains import SEVERAL_CONNECTIONS, Job
from proxy.core.jobs.ranking import Ranking
from proxy.core.jobs.tracked_dict import TrackedDict
from proxy.core.jobs.window import Budget
from proxy.core.keys.ids import LeaseId
from proxy.core.keys.retry_policy import MS
from proxy.core.leases.failures import Failures
from proxy.core.leases.verdicts import Nack

#: Stale deadlines allowed in addition to the number of live leases.
_SLACK = 1024
#: Most bytes of a message in an answer besides its body, properties and order key.
BESIDE_BYTES = 128
_NONE: Mapping[int, int] = {}
_NEVER_NS = 1 << 63
_attempts_of = attrgetter("attempts")


#: Deadline of leases, with the first and the last of their ids.
_Deadline = list[Any]


class Plain(Enum):
    """A verdict without further content."""

    ACK = "ack"
    RELEASE = "release"


class Holder(NamedTuple):
    """Holder of a lease: the connection (its number in this process), the client's own name, and
    the ``requestId`` of its pull, if any. ``extends``: it can extend leases.
    """

    connection: int
    client: str = ""
    request: str | None = None
    extends: bool = True


@dataclass(slots=True, eq=False)
class Lease:
    """One delivery of one job to one client, until ``deadline_ns``."""

    lease_id: LeaseId
    job: Job
    holder: Holder
    deadline_ns: int
    #: Bytes in an answer: properties and order key may be longer than the body.
    wire_bytes: int
    #: Deadline without extensions.
    first_deadline_ns: int
    #: When it was granted; 0 if unknown.
    granted_ns: int = 0
    #: All live leases of its run, itself included, in order; None if it was delivered alone.
    run: deque[Lease] | None = None
    #: Verdict received while a lease ahead of it in its run was open.
    verdict: Plain | Nack | None = None
    #: Its answer was never written; a repeated request may fetch it.
    unsent: bool = False
    #: Body changed by the actions of its topic; None if the body is unchanged.
    made_body: bytes | None = None

    @property
    def body(self) -> bytes:
        """The body for the client. Raises RuntimeError once the job is finished."""
        if self.made_body is not None:
            return self.made_body
        if self.job.message is None:
            raise RuntimeError(f"{self.job} is leased without its message")
        return self.job.message.body

    def held_by(self, holder: Holder) -> None:
        """Note that *holder* has it, when granted or when its answer moves to a new connection."""
        self.holder = holder
        self.unsent = False
        self.job.deliver_to(holder.connection)

    def not_sent(self) -> None:
        """Note that its answer was never written; it can be fetched until the lease ends."""
        self.unsent = True

    def may_be_settled_on(self, connection: int, open_connections: Container[int]) -> bool:
        """Return True if a verdict by offset counts: see ``Settlement.settle_by_offset``."""
        if self.run is not None:
            return False  # clients that ask for runs have lease ids
        sole = self.job.sole_connection
        if self.holder.connection == connection:
            return True
        return sole != SEVERAL_CONNECTIONS and sole not in open_connections


@dataclass(frozen=True, slots=True)
class Judged:
    """A lease ended by *verdict*; the leases *behind* it end unhandled."""

    lease: Lease
    verdict: Plain | Nack
    behind: list[Lease] = field(default_factory=list)


class LeaseBook:
    """The running jobs of one queue in one ownership period: their holders and deadlines, and the
    retry times of failed ones. All times are ns.

    Caller: the pipeline; others only read. Affects: attempts of jobs, the two budgets.
    """

    __slots__ = (
        *("_by_offset", "_deadlines", "_ids", "_leases", "_newest", "_retries", "_waiting"),
        *("failures", "held_back", "leases_of_group", "memory", "offered", "quiet_until_ns"),
    )

    def __init__(
        self,
        leases_of_group: Budget,
        memory: Budget,
        failures: Failures,
        *,
        first_id: int = 1,
        held_back_ns: Mapping[int, int] = _NONE,
    ) -> None:
        """Create an empty book.

        Args:
            leases_of_group: counts leases of all queues of the group.
            memory: counts the bytes of bodies made by actions.
            failures: failed deliveries of unfinished jobs.
            first_id: id of the first lease.
            held_back_ns: deadlines, by offset, of leases granted by the previous owner.
        """
        self.leases_of_group, self.memory = leases_of_group, memory
        #: Failed deliveries of unfinished jobs.
        self.failures = failures
        self._leases: dict[LeaseId, Lease] = {}
        self._by_offset: dict[int, Lease] = {}
        self._deadlines: list[_Deadline] = []
        self._newest: _Deadline | None = None  # one of the deadlines
        self._retries: Ranking[int] = Ranking()  # due times by offset
        self._waiting: dict[int, Job] = {}  # the same jobs
        #: Before that, ``expired`` and ``take_due`` find nothing. Read-only for others.
        self.quiet_until_ns = _NEVER_NS
        #: Jobs to deliver again now, the next first. Read-only for others.
        self.offered: OrderedDict[Job, None] = OrderedDict()
        self._ids = cast(Iterator[LeaseId], count(first_id))
        #: Until when clients of earlier owners may hold a job, by offset.
        self.held_back: Ranking[int] = Ranking()
        for offset, until_ns in held_back_ns.items():
            self.held_back.set(offset, until_ns)

    def __len__(self) -> int:
        """Return the number of live leases."""
        return len(self._leases)

    def __iter__(self) -> Iterator[Lease]:
        """Iterate over live leases in the order of granting."""
        return iter(self._leases.values())

    @property
    def attempts(self) -> TrackedDict[int, int]:
        """Deliveries by offset of the unfinished jobs that failed at least once."""
        return self.failures.attempts

    @property
    def waiting(self) -> int:
        """Jobs that wait for their retry time."""
        return len(self._waiting)

    @property
    def end_ns(self) -> int:
        """Latest deadline of live leases and of those left by an earlier owner; 0 without any.
        O(leases).
        """
        last_ns = max((lease.deadline_ns for lease in self._leases.values()), default=0)
        return max(last_ns, self.held_back.last or 0)

    def live(self, lease_id: LeaseId) -> Lease | None:
        """Return the live lease with that id."""
        return self._leases.get(lease_id)

    def at(self, offset: int) -> Lease | None:
        """Return the live lease of the job at *offset*."""
        return self._by_offset.get(offset)

    def may_be_out(self, offset: int) -> bool:
        """Return True if a client has the job at *offset*, or may have it from an earlier owner."""
        return offset in self._by_offset or offset in self.held_back.numbers

    def times_left_ms(self, now_ns: int, *, with_live: bool) -> dict[int, int]:
        """Return for how many ms from now clients may hold jobs, by offset: those of earlier
        owners, and (*with_live*) those with live leases.
        """
        ends = dict(self.held_back.numbers)
        if with_live:
            ends |= {lease.job.offset: lease.deadline_ns for lease in self}
        return {offset: -((now_ns - end) // MS) for offset, end in ends.items() if end > now_ns}

    # ---- granting and ending --------------------------------------------------------------------

    def grant(
        self,
        job: Job,
        holder: Holder,
        deadline_ns: int,
        made_body: bytes | None = None,
        now_ns: int = 0,
    ) -> Lease:
        """Lease a running job, counting one more attempt."""
        lease = self.grant_in_batch(job, holder, deadline_ns, made_body, now_ns)
        self.leases_of_group.take(1)
        return lease

    def grant_in_batch(
        self,
        job: Job,
        holder: Holder,
        deadline_ns: int,
        made_body: bytes | None = None,
        now_ns: int = 0,
    ) -> Lease:
        """Do as ``grant``, but leave it to the caller to take the leases of a batch from
        ``leases_of_group`` at once.
        """
        lease_id = next(self._ids)
        body_bytes = job.body_bytes if made_body is None else len(made_body)
        wire_bytes = BESIDE_BYTES + body_bytes
        if job.message is not None:
            wire_bytes += len(job.message.raw_properties)
        if job.key is not None:
            wire_bytes += len(job.key)
        lease = Lease(lease_id, job, holder, deadline_ns, wire_bytes, deadline_ns, now_ns)
        if made_body is not None:
            lease.made_body = made_body
            self.memory.take(body_bytes)
        job.hand_out(holder.connection)
        self._leases[lease_id] = lease
        self._by_offset[job.offset] = lease
        newest = self._newest
        if newest is not None and newest[0] == deadline_ns and newest[2] == lease_id - 1:
            newest[2] = lease_id
        else:
            self._watch(lease)
        return lease

    def follow(self, ahead: Lease, job: Job, *, made_body: bytes | None = None) -> Lease:
        """Lease the next job of its key after *ahead*, the last of its run, to the same client."""
        lease = self.grant(job, ahead.holder, ahead.deadline_ns, made_body, ahead.granted_ns)
        if ahead.run is None:
            ahead.run = deque([ahead])
        ahead.run.append(lease)
        lease.run = ahead.run
        return lease

    def extend(self, lease: Lease, deadline_ns: int) -> None:
        """Move the deadline of a live lease and of its run; it never moves back."""
        if deadline_ns > lease.deadline_ns:
            for each in lease.run or (lease,):
                each.deadline_ns = deadline_ns
                self._watch(each)

    def extend_all(
        self, lease_ids: Iterable[LeaseId], deadline_ns: int, *, now_ns: int
    ) -> list[LeaseId]:
        """Extend the live leases among *lease_ids*; return the ids of the others."""
        not_held = []
        for lease_id in lease_ids:
            lease = self._leases.get(lease_id)
            if lease is None or lease.deadline_ns <= now_ns:
                not_held.append(lease_id)
            else:
                self.extend(lease, deadline_ns)
        return not_held

    def judge(self, lease: Lease, verdict: Plain | Nack) -> Iterator[Judged]:
        """End the live leases that a verdict decides, in order: none while a lease ahead in the run
        is open, and otherwise also those behind that have a verdict. The first verdict on a lease
        counts.
        """
        if lease.run is None:
            self.end_one(lease)
            yield Judged(lease, verdict)
            return
        run = lease.run
        lease.verdict = lease.verdict or verdict
        while run and (decided := run[0].verdict) is not None:
            if decided is Plain.ACK:
                yield Judged(self.end_one(run[0]), decided)
            else:
                first, *behind = self.end(run[0])
                yield Judged(first, decided, behind)

    def end_handled(self, lease_ids: Iterator[LeaseId]) -> tuple[list[Lease], LeaseId | None]:
        """End the leases of *lease_ids*, which are all acked, in one go.

        Stop at the first id that needs more: its lease is not live, waits for one ahead in its run,
        or settles one behind it. Return the ended leases, and that id for ``judge``; None if there
        is none.
        """
        leases, by_offset, ended = self._leases, self._by_offset, []
        other = None
        for lease_id in lease_ids:
            lease = leases.get(lease_id)
            if lease is None or not (lease.run is None or _leads_alone(lease.run, lease)):
                other = lease_id
                break
            del leases[lease_id], by_offset[lease.job.offset]
            if lease.made_body is not None:
                self._forget_body(lease)
            if lease.run:
                lease.run.popleft()
            ended.append(lease)
        if ended:
            self.leases_of_group.give_back(len(ended))
        return ended, other

    def end(self, lease: Lease) -> list[Lease]:
        """End a live lease and those behind it in its run; their jobs keep running."""
        run = lease.run
        if run is None:
            return [self.end_one(lease)]
        behind = [run.pop() for _ in range(len(run) - run.index(lease) - 1)]
        return [self.end_one(each) for each in (lease, *reversed(behind))]

    def end_one(self, lease: Lease) -> Lease:
        """End a live lease that is in no run or at an end of its run; its job keeps running."""
        del self._leases[lease.lease_id]
        del self._by_offset[lease.job.offset]
        self.leases_of_group.give_back(1)
        if lease.made_body is not None:
            self._forget_body(lease)
        if run := lease.run:
            if run[0] is lease:
                run.popleft()
            elif run[-1] is lease:
                run.pop()
        return lease

    # ---- offering again -------------------------------------------------------------------------

    def offer(self, job: Job, since_ns: int = 0) -> None:
        """Deliver *job*, available since *since_ns* (0 if unknown), again, before new jobs."""
        job.note_offer(since_ns)
        self.offered[job] = None

    def retry_at(self, job: Job, due_ns: int) -> None:
        """Offer *job* again at *due_ns*; its key waits until then."""
        self._waiting[job.offset] = job
        self._retries.set(job.offset, due_ns)
        if due_ns < self.quiet_until_ns:
            self.quiet_until_ns = due_ns

    def due_ns(self, offset: int) -> int | None:
        """Return when the job at *offset* is offered again; None if it waits for no retry."""
        return self._retries.numbers.get(offset)

    def retrying(self) -> list[Job]:
        """Return the jobs that wait for their retry. O(waiting)."""
        return list(self._waiting.values())

    def withdraw(self, job: Job) -> None:
        """Stop delivering *job*, which is running without a live lease."""
        self.offered.pop(job, None)
        if self._waiting.get(job.offset) is job:
            del self._waiting[job.offset]
            self._retries.remove(job.offset)

    def offer_fewest_deliveries_first(self) -> None:
        """Order the jobs that are offered by their deliveries so far. O(n log n)."""
        jobs = sorted(self.offered, key=_attempts_of)
        self.offered.clear()
        self.offered.update(dict.fromkeys(jobs))

    def take_offered(self) -> Job | None:
        """Return the next job to deliver again, or None."""
        return self.offered.popitem(last=False)[0] if self.offered else None

    # ---- time -----------------------------------------------------------------------------------

    def expired(self, now_ns: int) -> list[list[Lease]]:
        """End the leases past their deadline, each with those behind it in its run."""
        ended = []
        while self._deadlines and self._deadlines[0][0] <= now_ns:
            deadline_ns, first, last = self._pop_deadline()
            for number in range(first, last + 1):
                lease = self._leases.get(LeaseId(number))
                if lease is not None and lease.deadline_ns == deadline_ns:
                    ended.append(self.end(lease.run[0] if lease.run else lease))
        return ended

    def take_due(self, now_ns: int) -> list[tuple[Job, int]]:
        """Return the jobs whose retry is due, each with its due time; the caller offers them.

        Caller: after ``expired``.
        """
        due = self._retries.up_to(now_ns)
        taken = [(self._waiting.pop(offset), due_ns) for due_ns, offset in due]
        next_ns = self._deadlines[0][0] if self._deadlines else _NEVER_NS
        self.quiet_until_ns = min(next_ns, self._retries.lowest) if self._waiting else next_ns
        return taken

    def next_due_ns(self) -> int | None:
        """Return when ``expired`` or ``take_due`` is due next, or a job is no longer held back.
        Drops stale entries.
        """
        due_ns: int | None = self._retries.lowest if self._waiting else None
        if (held_back := self.held_back.first) is not None:
            due_ns = held_back[0] if due_ns is None else min(due_ns, held_back[0])
        while self._deadlines:
            entry = self._deadlines[0]
            deadline_ns: int
            deadline_ns, first, last = entry
            while first <= last:
                lease = self._leases.get(first)
                if lease is not None and lease.deadline_ns == deadline_ns:
                    entry[1] = first
                    return deadline_ns if due_ns is None else min(due_ns, deadline_ns)
                first += 1
            self._pop_deadline()
        return due_ns

    def clear(self) -> None:
        """Drop all leases and jobs, because the queue was dropped."""
        self.leases_of_group.give_back(len(self._leases))
        for lease in self._leases.values():
            self._forget_body(lease)
            lease.run = None  # it refers to its leases, and they to it
        self._leases.clear()
        self._by_offset.clear()
        self._deadlines.clear()
        self._newest = None
        self._waiting.clear()
        self._retries.clear()
        self.quiet_until_ns = _NEVER_NS
        self.offered.clear()

    def _forget_body(self, lease: Lease) -> None:
        self.memory.give_back(len(lease.made_body or b""))
        lease.made_body = None

    def _watch(self, lease: Lease) -> None:
        self._newest = [lease.deadline_ns, lease.lease_id, lease.lease_id]
        heapq.heappush(self._deadlines, self._newest)
        if lease.deadline_ns < self.quiet_until_ns:
            self.quiet_until_ns = lease.deadline_ns
        if len(self._deadlines) > 2 * len(self._leases) + _SLACK:
            self._newest = None
            every = self._leases.values()
            self._deadlines = [[each.deadline_ns, each.lease_id, each.lease_id] for each in every]
            heapq.heapify(self._deadlines)

    def _pop_deadline(self) -> _Deadline:
        entry = heapq.heappop(self._deadlines)
        if entry is self._newest:
            self._newest = None
        return entry


def _leads_alone(run: Sequence[Lease], lease: Lease) -> bool:
    """Return True if a verdict on *lease* decides no other lease of its *run*."""
    return run[0] is lease and (len(run) == 1 or run[1].verdict is None)
