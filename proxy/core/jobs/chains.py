"""Order of one queue's jobs by key; no I/O, clock, log or asyncio; all O(1), amortized.

At most one job of a key is READY or RUNNING (retries included), except in runs: jobs behind a
running one may follow it to the same client. Jobs run in submit order; a key without unfinished
jobs uses no memory. Ready jobs wait in two queues: the *main queue* for new jobs, and the
*reactivation queue* for those whose predecessor has just finished. ``rank_by`` lets the longest
chains go first; each queue still has its turns.

A job taken out of turn leaves its entry in its queue, which is counted as *stale* and skipped by
``poll``: a search would be O(queue), and a map would slow every message by 2 %. A job that becomes
ready again meanwhile may use its old entry.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from enum import Enum

from broker_core.remoting.message import StoredMessage
from proxy.core.jobs.longest_first import LongestFirst
from proxy.core.jobs.measures import Measures, Moment
from proxy.errors import JobStateError

#: States advance in this order, except that a run which ends early returns its rest to the chain.
JobState = Enum("JobState", "NEW CHAINED READY RUNNING FINISHED")

#: Reactivated jobs polled in a row before the main queue has a turn: busy keys keep moving, but do
#: not starve new keys.
REACTIVATION_BURST = 8
#: Stale entries allowed in addition to the number of ready jobs.
_SLACK = 64

# Looking a member up in its enum costs as much as a call.
NEW, CHAINED, READY, RUNNING, FINISHED = JobState

#: ``sole_connection`` of a job that was leased to more than one connection.
SEVERAL_CONNECTIONS = -1


@dataclass(slots=True, eq=False)
class Job:
    """One message inside the proxy, from submit to finish.

    ``offset`` counts messages in its queue, not bytes; ``held_bytes`` is its total size in memory,
    properties included; ``attempts`` counts deliveries, except released ones; failure times use the
    core's clock, 0 if it never failed.
    """

    offset: int
    key: bytes | None  # order key; None means unordered: it never waits
    message: StoredMessage | None = field(default=None, repr=False)
    body_bytes: int = 0
    held_bytes: int = 0
    attempts: int = 0
    first_failure_ns: int = 0
    last_failure_ns: int = 0
    reason: str = ""
    sole_connection: int = 0  # 0: never leased
    refilled: bool = False  # it was spilled, and read again
    since_ns: int = 0  # when it became ready, or joined its chain; 0 if unknown
    waited_ns: int = 0  # behind another of its key, before it became ready
    state: JobState = NEW
    successor: Job | None = field(default=None, repr=False)

    def move(self, source: JobState, target: JobState) -> None:
        """Enter *target*; raise JobStateError unless the job is in *source*."""
        if self.state is not source:
            raise JobStateError(f"{self}: {target.name} is reached only from {source.name}")
        self.state = target

    # ---- deliveries; caller: lease book, failures, settlement -----------------------------------

    def hand_out(self, connection: int) -> None:
        """Count a delivery to *connection*."""
        self.attempts += 1
        if self.sole_connection != connection:
            self.sole_connection = SEVERAL_CONNECTIONS if self.sole_connection else connection

    def deliver_to(self, connection: int) -> None:
        """Note that *connection* has its lease now; this is not another delivery."""
        if self.sole_connection != connection:
            self.sole_connection = SEVERAL_CONNECTIONS if self.sole_connection else connection

    def count_attempt(self) -> None:
        """Count a delivery that failed before it reached a client."""
        self.attempts += 1

    def uncount_attempt(self) -> None:
        """Undo the count of the last delivery: the job came back unhandled."""
        self.attempts -= 1

    def set_attempts(self, attempts: int) -> None:
        """Set the number of counted deliveries."""
        self.attempts = attempts

    def note_failure(self, reason: str, now_ns: int) -> None:
        """Note that a delivery failed, and why."""
        self.first_failure_ns = self.first_failure_ns or now_ns
        self.last_failure_ns = now_ns
        self.reason = reason

    def note_reason(self, reason: str) -> None:
        """Note why it is given up."""
        self.reason = reason

    def note_offer(self, since_ns: int) -> None:
        """Note since when it is offered again; 0: unknown."""
        self.since_ns = since_ns
        self.waited_ns = 0

    # ---- its message; caller: residency ----------------------------------------------------------

    def drop_message(self) -> None:
        """Release the message, which is read again before the next delivery."""
        self.message = None

    def restore(self, message: StoredMessage | None) -> None:
        """Restore *message* after it was read again."""
        self.message = message

    def note_refilled(self) -> None:
        """Note that it was spilled, and has been read again."""
        self.refilled = True


@dataclass(slots=True)
class _Chain:
    """The jobs of one key, linked from head to tail."""

    head: Job
    tail: Job
    jobs: int = 1


@dataclass(slots=True)
class JobChains:
    """Decides which job may run next. Owned by one task, so it needs no lock."""

    _chains: dict[bytes, _Chain] = field(default_factory=dict)
    _main: deque[Job] = field(default_factory=deque)
    _reactivated: deque[Job] = field(default_factory=deque)
    held_keys: set[bytes] = field(default_factory=set)
    """Held keys with jobs here. Read-only for others."""
    _held: set[bytes] = field(default_factory=set)
    _woken: set[bytes] = field(default_factory=set)
    waits: Callable[[Job], bool] | None = None
    """Set by ``wait_by``. Read-only for others."""
    _burst: int = 0  # reactivated jobs polled since the main queue's last turn
    stale: Counter[Job] = field(default_factory=Counter)
    """Number of stale entries of each job in ``queues``. Read-only for others."""
    _stale_in_all: int = 0
    # Keys with a ready job by their lengths, if the longest chain goes first, and how to get those.
    _longest: LongestFirst[bytes] | None = None
    _length_of: Callable[[bytes], int] | None = None
    now: Moment = field(default_factory=Moment)
    measures: Measures = field(default_factory=Measures)

    @property
    def queues(self) -> tuple[Collection[Job], Collection[Job]]:
        """The main queue and the reactivation queue, from which ``poll`` chooses: live views, with
        ``stale`` entries.
        """
        return self._main, self._reactivated

    def wait_by(self, waits: Callable[[Job], bool] | None) -> None:
        """Make jobs for which *waits* is true wait, even first in their chain, until their key is
        ``open``ed; None: no job waits.
        """
        self.waits = waits

    def rank_by(self, length_of: Callable[[bytes], int] | None) -> None:
        """Poll the longest chain first: *length_of* returns the number of unfinished jobs of a key,
        in memory or not. None: poll by age alone. O(ready).
        """
        self._longest = None if length_of is None else LongestFirst()
        self._length_of = length_of
        for job in self.ready_jobs():
            self._rank(job)

    @property
    def longest(self) -> int:
        """Number of jobs of the longest chain with a ready job; 0 if none has several, or age
        decides.
        """
        return 0 if self._longest is None else self._longest.longest

    def ready_from(self, length: int, *, most: int) -> int:
        """Return the number of chains of at least *length* jobs with a ready job, counted up to
        *most* or slightly more; 0 if age decides. O(most).
        """
        return 0 if self._longest is None else self._longest.count_from(length, most=most)

    def note_length(self, key: bytes) -> None:
        """Note that the chain of *key* has grown or shrunk outside memory."""
        if self._longest is not None and (chain := self._chains.get(key)) is not None:
            self._rank(chain.head)

    def measured_by(self, measures: Measures) -> None:
        """Add the waiting times of jobs for their predecessors to *measures* from now on."""
        self.measures = measures

    def take_woken(self) -> set[bytes]:
        """Return, once each, held keys whose first job arrived or stopped waiting for others."""
        woken, self._woken = self._woken, set()
        return woken

    @property
    def ready(self) -> int:
        """Number of jobs available to ``poll``."""
        return len(self._main) + len(self._reactivated) - self._stale_in_all

    def ready_jobs(self) -> Iterator[Job]:
        """Return the jobs available to ``poll``. O(ready and stale)."""
        stale = Counter(self.stale)
        for queue in self.queues:
            for job in queue:
                if stale[job]:
                    stale[job] -= 1
                else:
                    yield job

    @property
    def keys(self) -> Collection[bytes]:
        """Order keys with unfinished jobs here."""
        return self._chains.keys()

    def heads(self) -> Iterator[Job]:
        """Return the first job of each key."""
        return (chain.head for chain in self._chains.values())

    def jobs_of(self, key: bytes) -> int:
        """Return the number of unfinished jobs of *key* here."""
        chain = self._chains.get(key)
        return 0 if chain is None else chain.jobs

    def jobs(self, key: bytes) -> Iterator[Job]:
        """Return the unfinished jobs of *key* here, in order."""
        chain = self._chains.get(key)
        job = None if chain is None else chain.head
        while job is not None:
            yield job
            job = job.successor

    def submit(self, job: Job, *, reactivated: bool = False) -> bool:
        """Admit *job*: True if ready, False if chained. Raise JobStateError if not NEW.

        *reactivated*: its predecessor has finished, but was no longer here to be followed.
        """
        key = job.key
        if job.state is not NEW:
            job.move(NEW, READY)
        job.since_ns = self.now.ns
        chain = None if key is None else self._chains.get(key)
        if chain is not None:
            job.state = CHAINED
            chain.tail.successor = chain.tail = job
            chain.jobs += 1
            if self._longest is not None:
                self._rank(chain.head)
            return False
        if key is not None:
            self._chains[key] = _Chain(job, job)
            if key in self._held:
                self.held_keys.add(key)
                self._woken.add(key)
                job.state = CHAINED
                return False
        if self.waits is not None and self.waits(job):
            job.state = CHAINED
            return False
        job.state = READY
        (self._reactivated if reactivated else self._main).append(job)
        if self._longest is not None:
            self._rank(job)
        return True

    def poll(self) -> Job | None:
        """Take the next ready job, reactivated first (see REACTIVATION_BURST); None if none.

        If chains are ranked, the longest one goes first, but of REACTIVATION_BURST + 1 polls one
        takes the oldest reactivated job and one the oldest new job.
        """
        if self._longest is not None and (job := self._poll_longest(self._longest)) is not None:
            return job
        while True:
            if self._reactivated and (self._burst < REACTIVATION_BURST or not self._main):
                job = self._reactivated.popleft()
                burst = self._burst + 1
            elif self._main:
                job = self._main.popleft()
                burst = 0
            else:
                return None
            if not (self.stale and self._is_stale(job)):
                break
        self._burst = burst
        if job.state is not READY:
            job.move(READY, RUNNING)
        job.state = RUNNING
        if self._longest is not None:
            self._unrank(job)
            if not self._main:
                self._burst %= REACTIVATION_BURST  # the main queue needs no turn
        return job

    def follow(self, job: Job) -> Job | None:
        """Start the successor of *job*, which is running, behind it; return it or None."""
        successor = job.successor
        if successor is None or self._waits(successor):
            return None
        successor.move(CHAINED, RUNNING)
        self._waited(successor)
        return successor

    def unfollow(self, job: Job) -> None:
        """Return a job that ran behind another to its chain. Call for the last of a run first."""
        job.move(RUNNING, CHAINED)
        job.since_ns = self.now.ns

    def finish(self, job: Job) -> Job | None:
        """Finish *job*, and make its successor ready unless its key is held; return the successor.

        Releases the message at once, because finished jobs may be kept. Raise JobStateError if it
        is finished already.
        """
        if job.state is not RUNNING:
            job.move(RUNNING, FINISHED)
        job.state, job.message = FINISHED, None
        key, successor = job.key, job.successor
        if successor is None:
            if key is not None and self._chains.pop(key, None) is not None and self.held_keys:
                self.held_keys.discard(key)
            return None
        job.successor = None  # so that a finished job does not keep its chain in memory
        if (
            successor.state is not RUNNING  # not in its run
            and key not in self._held
            and (self.waits is None or not self.waits(successor))
        ):
            if successor.state is not CHAINED:
                successor.move(CHAINED, READY)
            successor.state = READY
            self._waited(successor)
            self._reactivated.append(successor)
        if key is not None and (chain := self._chains.get(key)) is not None:
            chain.head = successor
            chain.jobs -= 1
            if self._longest is not None:
                self._rank(successor)
        return successor

    def hold(self, key: bytes) -> None:
        """Stop polling jobs of *key*. Its head, if ready, is running from now on, in the hands of
        the caller.
        """
        self._held.add(key)
        if (chain := self._chains.get(key)) is None:
            return
        self.held_keys.add(key)
        self.take_ready(chain.head)

    def take_ready(self, job: Job) -> None:
        """Start *job* out of turn if it is ready."""
        if job.state is READY:
            job.move(READY, RUNNING)
            self._left_queue(job)
            self._unrank(job)

    def release(self, key: bytes) -> None:
        """Stop holding *key*. Its head becomes ready unless it runs."""
        self._held.discard(key)
        self.held_keys.discard(key)
        self.open(key)

    def open(self, key: bytes) -> None:
        """Make the head of *key* ready, unless the key is held or the head ``waits``."""
        chain = self._chains.get(key)
        if chain is None or chain.head.state is not CHAINED:
            return
        if key in self._held:
            self._woken.add(key)
        elif not self._waits(chain.head):
            chain.head.move(CHAINED, READY)
            self._waited(chain.head)
            self._reactivated.append(chain.head)
            if self._longest is not None:
                self._rank(chain.head)

    def take(self, key: bytes) -> list[Job]:
        """Remove and return all jobs of *key*, which is held, in order. None may be leased."""
        jobs = list(self.jobs(key))
        self._chains.pop(key, None)
        for job in jobs:
            job.successor = None
        return jobs

    def cut(self, key: bytes, *, keep: int) -> list[Job]:
        """Remove and return the chained jobs of *key* behind the first *keep* (at least 1), in
        order.

        A run longer than that stays complete, because clients have its jobs.
        """
        chain = self._chains[key]
        last, kept = chain.head, 1
        while last.successor is not None and (kept < keep or last.successor.state is RUNNING):
            last, kept = last.successor, kept + 1
        cut = []
        following, last.successor = last.successor, None
        while following is not None:
            cut.append(following)
            following.successor, following = None, following.successor
        chain.tail, chain.jobs = last, kept
        return cut

    def close(self) -> None:
        """Drop all jobs, and the links between them: a client's lease may still refer to one."""
        for chain in self._chains.values():
            job: Job | None = chain.head
            while job is not None:
                job.successor, job = None, job.successor
        self._chains.clear()
        self._main.clear()
        self._reactivated.clear()
        self.held_keys.clear()
        self.stale.clear()
        self._stale_in_all = 0
        self.waits = None
        self._longest = self._length_of = None

    def _poll_longest(self, longest: LongestFirst[bytes]) -> Job | None:
        """Take the ready job of the longest chain; None if no chain has several jobs, or a queue
        has its turn.
        """
        turns = 1 if self._reactivated else 0
        if self._burst >= REACTIVATION_BURST - turns or (key := longest.pop()) is None:
            return None
        self._burst += 1
        job = self._chains[key].head
        job.move(READY, RUNNING)
        self._left_queue(job)
        return job

    def _rank(self, job: Job) -> None:
        """Rank the key of *job*, the first of its chain, by its length if it is ready."""
        if self._longest is None or self._length_of is None:
            return
        if job.key is not None and job.state is READY:
            self._longest.put(job.key, self._length_of(job.key))

    def _unrank(self, job: Job) -> None:
        """Note that *job* is no longer ready."""
        if self._longest is not None and job.key is not None:
            self._longest.remove(job.key)

    def _left_queue(self, job: Job) -> None:
        """Note that *job* has left its queue out of turn: its entry there is stale."""
        self.stale[job] += 1
        self._stale_in_all += 1
        if self._stale_in_all > self.ready + _SLACK:
            self._sweep()

    def _is_stale(self, job: Job) -> bool:
        """Return True, and forget the entry, if the entry just taken for *job* is stale."""
        count = self.stale.get(job, 0)
        if not count:
            return False
        self._stale_in_all -= 1
        if count == 1:
            del self.stale[job]
        else:
            self.stale[job] = count - 1
        return True

    def _sweep(self) -> None:
        """Remove stale entries. O(ready and stale)."""
        for queue in (self._main, self._reactivated):
            left = [job for job in queue if not self._is_stale(job)]
            queue.clear()
            queue.extend(left)

    def _waited(self, job: Job) -> None:
        """Record how long *job* waited in its chain."""
        now_ns, since_ns = self.now.ns, job.since_ns
        if since_ns:
            job.waited_ns += now_ns - since_ns
            self.measures.key_wait.note(now_ns - since_ns)
        job.since_ns = now_ns

    def _waits(self, job: Job) -> bool:
        return self.waits is not None and self.waits(job)
