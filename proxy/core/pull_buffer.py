"""Jobs on their way to and from clients: leases, deadlines, retries. Pure.

A running job is in exactly one place here: leased, waiting for its retry time, or offered again.
Deadlines are a heap with stale entries left in: an entry counts only if its lease is still live
with that very deadline. They are swept out once they outnumber the live ones.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Container
from dataclasses import dataclass, field

from proxy.core.flow_window import Budget
from proxy.core.ids import LeaseId
from proxy.core.job_chains import SEVERAL_CONNECTIONS, Job

#: Stale deadlines that may stay, beside as many as there are live leases.
_SLACK = 1024


@dataclass(frozen=True, slots=True)
class Holder:
    """Who takes a lease: the connection (its number in this process), the client's own name, and
    the pull by which it did, if the client gave that a name.
    """

    connection: int
    client: str = ""
    request: str | None = None


@dataclass(slots=True, eq=False)
class Lease:
    """One delivery of one job to one client, until ``deadline_ns``."""

    lease_id: LeaseId
    job: Job
    holder: Holder
    deadline_ns: int

    def held_by(self, holder: Holder) -> None:
        """*holder* has it now: at the hand-out, and when its answer goes to another connection."""
        self.holder = holder
        if self.job.sole_connection == 0:
            self.job.sole_connection = holder.connection
        elif self.job.sole_connection != holder.connection:
            self.job.sole_connection = SEVERAL_CONNECTIONS

    def may_be_settled_on(self, connection: int, open_connections: Container[int]) -> bool:
        """Whether a verdict without a lease id counts: see ``QueuePipeline.settle_by_offset``."""
        sole = self.job.sole_connection
        if self.holder.connection == connection:
            return True
        return sole != SEVERAL_CONNECTIONS and sole not in open_connections


@dataclass(slots=True)
class PullBuffer:
    """The running jobs of one queue. ``leases_of_group`` counts over all queues of the group."""

    leases_of_group: Budget
    _leases: dict[LeaseId, Lease] = field(default_factory=dict)
    _by_offset: dict[int, Lease] = field(default_factory=dict)
    _deadlines: list[tuple[int, LeaseId]] = field(default_factory=list)
    _retries: list[tuple[int, int, Job]] = field(default_factory=list)  # due, offset, job
    _offered: deque[Job] = field(default_factory=deque)
    _last_id: int = 0

    @property
    def leased(self) -> int:
        """Live leases."""
        return len(self._leases)

    @property
    def offered(self) -> int:
        """Jobs to be handed out again now."""
        return len(self._offered)

    @property
    def waiting(self) -> int:
        """Jobs that wait for their retry time."""
        return len(self._retries)

    @property
    def last_deadline_ns(self) -> int:
        """When the last of the live leases ends; 0 without any. O(leases)."""
        return max((lease.deadline_ns for lease in self._leases.values()), default=0)

    def live(self, lease_id: LeaseId) -> Lease | None:
        """The live lease of that id."""
        return self._leases.get(lease_id)

    def live_at(self, offset: int) -> Lease | None:
        """The live lease of the job at that offset."""
        return self._by_offset.get(offset)

    def grant(self, job: Job, *, holder: Holder, deadline_ns: int) -> Lease:
        """Lease a running job: one more attempt."""
        self._last_id += 1
        lease = Lease(LeaseId(self._last_id), job, holder, deadline_ns)
        lease.held_by(holder)
        job.attempts += 1
        self.leases_of_group.used += 1
        self._leases[lease.lease_id] = lease
        self._by_offset[job.offset] = lease
        self._watch(lease)
        return lease

    def extend(self, lease: Lease, deadline_ns: int) -> None:
        """Move a live lease's deadline; it never moves back."""
        if deadline_ns > lease.deadline_ns:
            lease.deadline_ns = deadline_ns
            self._watch(lease)

    def end(self, lease: Lease) -> Job:
        """End a live lease and return its job, still running. Raises KeyError if it is not live."""
        del self._leases[lease.lease_id]
        del self._by_offset[lease.job.offset]
        self.leases_of_group.used -= 1
        return lease.job

    def offer(self, job: Job) -> None:
        """Hand *job* out again, before anything new."""
        self._offered.append(job)

    def retry_at(self, job: Job, due_ns: int) -> None:
        """Offer *job* again at *due_ns*; its key waits with it."""
        heapq.heappush(self._retries, (due_ns, job.offset, job))

    def take_offered(self) -> Job | None:
        """The next job to hand out again, or None."""
        return self._offered.popleft() if self._offered else None

    def expired(self, now_ns: int) -> list[Lease]:
        """End the leases whose deadline has come, and return them."""
        ended = []
        while self._deadlines and self._deadlines[0][0] <= now_ns:
            deadline_ns, lease_id = heapq.heappop(self._deadlines)
            lease = self._leases.get(lease_id)
            if lease is not None and lease.deadline_ns == deadline_ns:
                self.end(lease)
                ended.append(lease)
        return ended

    def offer_due(self, now_ns: int) -> int:
        """Offer the jobs whose retry time has come; how many."""
        count = 0
        while self._retries and self._retries[0][0] <= now_ns:
            self.offer(heapq.heappop(self._retries)[2])
            count += 1
        return count

    def next_due_ns(self) -> int | None:
        """When ``expired`` or ``offer_due`` has something to do next; stale entries are dropped."""
        while self._deadlines:
            deadline_ns, lease_id = self._deadlines[0]
            lease = self._leases.get(lease_id)
            if lease is not None and lease.deadline_ns == deadline_ns:
                break
            heapq.heappop(self._deadlines)
        times = [heap[0][0] for heap in (self._deadlines, self._retries) if heap]
        return min(times, default=None)

    def clear(self) -> None:
        """The queue was dropped: its leases count no longer."""
        self.leases_of_group.used -= len(self._leases)
        self._leases.clear()
        self._by_offset.clear()

    def _watch(self, lease: Lease) -> None:
        heapq.heappush(self._deadlines, (lease.deadline_ns, lease.lease_id))
        if len(self._deadlines) > 2 * len(self._leases) + _SLACK:
            self._deadlines = [(each.deadline_ns, each.lease_id) for each in self._leases.values()]
            heapq.heapify(self._deadlines)
