"""Per-key ordering of one queue's jobs; no I/O, clock, log or asyncio; all O(1), amortized.

Of one key's jobs at most one is READY or RUNNING (retries included), but for runs: those behind a
running one may follow it to the same client. They run in submit order; a key with no unfinished job
occupies no memory. Ready jobs wait in two queues: the *main queue* for
newly submitted ones, the *reactivation queue* for those whose predecessor has just finished.

A job taken out of its turn leaves its entry in its queue, counted as *stale* and passed over by
``poll``: a search would cost as much as the queue is long, a map two percent of every message. A
job that becomes ready again meanwhile may have the turn of its old entry.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from enum import Enum

from broker_core.remoting.message import StoredMessage
from proxy.core.jobs.measures import Measures, Moment
from proxy.errors import JobStateError

#: Only moves rightwards, but that a run which ends early puts its rest back into the chain.
JobState = Enum("JobState", "NEW CHAINED READY RUNNING FINISHED")

#: Reactivated jobs polled in a row before one of the main queue gets its turn: priority that keeps
#: a busy key moving, and no monopoly that starves the keys not yet begun.
REACTIVATION_BURST = 8
#: Stale entries that may stay, beside as many as there are ready jobs.
_SLACK = 64

# Looking a member up in its enum costs as much as a call.
NEW, CHAINED, READY, RUNNING, FINISHED = JobState

#: ``sole_connection`` of a job that was leased to more than one connection.
SEVERAL_CONNECTIONS = -1


@dataclass(slots=True, eq=False)
class Job:
    """One message inside the proxy, from submit to finish.

    ``offset`` counts messages in its queue, not bytes; ``held_bytes`` is what memory it takes, with
    properties and all; ``attempts`` counts hand-outs, released ones excepted; failure times are
    those of the core's clock, 0 if it never failed.
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
    since_ns: int = 0  # when it became ready, or joined its chain; 0: nobody knows
    waited_ns: int = 0  # behind another of its key, before it became ready
    state: JobState = NEW
    successor: Job | None = field(default=None, repr=False)

    def move(self, source: JobState, target: JobState) -> None:
        """Enter *target*; raise JobStateError if not now in *source*."""
        if self.state is not source:
            raise JobStateError(f"{self}: {target.name} is reached only from {source.name}")
        self.state = target

    # ---- hand-outs; caller: lease book, failures, settlement -------------------------------------

    def hand_out(self, connection: int) -> None:
        """Count a hand-out to *connection*."""
        self.attempts += 1
        if self.sole_connection != connection:
            self.sole_connection = SEVERAL_CONNECTIONS if self.sole_connection else connection

    def deliver_to(self, connection: int) -> None:
        """Note that *connection* has its lease now; that is no further hand-out."""
        if self.sole_connection != connection:
            self.sole_connection = SEVERAL_CONNECTIONS if self.sole_connection else connection

    def count_attempt(self) -> None:
        """Count a hand-out that failed before any client had it."""
        self.attempts += 1

    def uncount_attempt(self) -> None:
        """Count the last hand-out no longer: the job came back unhandled."""
        self.attempts -= 1

    def set_attempts(self, attempts: int) -> None:
        """Let *attempts* hand-outs count."""
        self.attempts = attempts

    def note_failure(self, reason: str, now_ns: int) -> None:
        """Note that a hand-out failed, and why."""
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
        """Let go of the message, which is read again before the next hand-out."""
        self.message = None

    def restore(self, message: StoredMessage | None) -> None:
        """Take back *message*, which was read again."""
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
    """Says which job may run next. Owned by one task, so it needs no lock."""

    _chains: dict[bytes, _Chain] = field(default_factory=dict)
    _main: deque[Job] = field(default_factory=deque)
    _reactivated: deque[Job] = field(default_factory=deque)
    held_keys: set[bytes] = field(default_factory=set)
    """Held keys that have jobs here. Read-only for others."""
    _held: set[bytes] = field(default_factory=set)
    _stirred: set[bytes] = field(default_factory=set)
    waits: Callable[[Job], bool] | None = None
    """Set by ``wait_by``. Read-only for others."""
    _burst: int = 0  # reactivated jobs polled since the main queue's last turn
    stale: Counter[Job] = field(default_factory=Counter)
    """How many stale entries of each job ``queues`` have. Read-only for others."""
    _stale_in_all: int = 0
    now: Moment = field(default_factory=Moment)
    measures: Measures = field(default_factory=Measures)

    @property
    def queues(self) -> tuple[Collection[Job], Collection[Job]]:
        """What ``poll`` chooses from: the main queue and the reactivation queue, as they are at any
        time, ``stale`` entries included.
        """
        return self._main, self._reactivated

    def wait_by(self, waits: Callable[[Job], bool] | None) -> None:
        """A job for which *waits* is true waits with none ahead of it, until its key is ``open``ed;
        None: no job does.
        """
        self.waits = waits

    def measured_by(self, measures: Measures) -> None:
        """Add what jobs wait for one another to *measures* from now on."""
        self.measures = measures

    def take_stirred(self) -> set[bytes]:
        """Held keys whose first job came, or waits for older ones no longer, each told once."""
        stirred, self._stirred = self._stirred, set()
        return stirred

    @property
    def ready(self) -> int:
        """Jobs that ``poll`` would give now."""
        return len(self._main) + len(self._reactivated) - self._stale_in_all

    def ready_jobs(self) -> Iterator[Job]:
        """Those that ``poll`` would give. O(ready and stale)."""
        stale = Counter(self.stale)
        for queue in self.queues:
            for job in queue:
                if stale[job]:
                    stale[job] -= 1
                else:
                    yield job

    @property
    def keys(self) -> Collection[bytes]:
        """Order keys with at least one unfinished job here."""
        return self._chains.keys()

    def heads(self) -> Iterator[Job]:
        """The first job of each key."""
        return (chain.head for chain in self._chains.values())

    def jobs_of(self, key: bytes) -> int:
        """How many unfinished jobs of *key* are here."""
        chain = self._chains.get(key)
        return 0 if chain is None else chain.jobs

    def jobs(self, key: bytes) -> Iterator[Job]:
        """The unfinished jobs of *key* that are here, in order."""
        chain = self._chains.get(key)
        job = None if chain is None else chain.head
        while job is not None:
            yield job
            job = job.successor

    def submit(self, job: Job, *, reactivated: bool = False) -> bool:
        """Admit *job*: True if ready, False if chained. Raises JobStateError if not NEW.

        *reactivated*: its predecessor has finished, but was not here any more to be followed.
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
            return False
        if key is not None:
            self._chains[key] = _Chain(job, job)
            if key in self._held:
                self.held_keys.add(key)
                self._stirred.add(key)
                job.state = CHAINED
                return False
        if self.waits is not None and self.waits(job):
            job.state = CHAINED
            return False
        job.state = READY
        (self._reactivated if reactivated else self._main).append(job)
        return True

    def poll(self) -> Job | None:
        """Take the next ready job, reactivated first (see REACTIVATION_BURST); None if none."""
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
        return job

    def follow(self, job: Job) -> Job | None:
        """Let the successor of *job*, which is running, run behind it; None if there is none."""
        successor = job.successor
        if successor is None or self._waits(successor):
            return None
        successor.move(CHAINED, RUNNING)
        self._waited(successor)
        return successor

    def unfollow(self, job: Job) -> None:
        """Put a job that ran behind another back into its chain: the last of them first."""
        job.move(RUNNING, CHAINED)
        job.since_ns = self.now.ns

    def finish(self, job: Job) -> Job | None:
        """End *job*, and make its successor ready unless its key is held; returns the successor.
        The message goes at once: a finished job may be kept, its body must not be.

        Raises JobStateError on a second finish.
        """
        if job.state is not RUNNING:
            job.move(RUNNING, FINISHED)
        job.state, job.message = FINISHED, None
        key, successor = job.key, job.successor
        if successor is None:
            if key is not None and self._chains.pop(key, None) is not None and self.held_keys:
                self.held_keys.discard(key)
            return None
        job.successor = None  # or an old job would hold the whole chain
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
        return successor

    def hold(self, key: bytes) -> None:
        """Let nobody poll jobs of *key* any more.

        Its head, if it is ready, is running from now on: whoever holds the key has it.
        """
        self._held.add(key)
        if (chain := self._chains.get(key)) is None:
            return
        self.held_keys.add(key)
        self.take_ready(chain.head)

    def take_ready(self, job: Job) -> None:
        """Let *job* run, out of its turn, if it is ready."""
        if job.state is READY:
            job.move(READY, RUNNING)
            self.stale[job] += 1
            self._stale_in_all += 1
            if self._stale_in_all > self.ready + _SLACK:
                self._sweep()

    def release(self, key: bytes) -> None:
        """Hold *key* no longer. Its head, if it does not run, becomes ready."""
        self._held.discard(key)
        self.held_keys.discard(key)
        self.open(key)

    def open(self, key: bytes) -> None:
        """The head of *key*, if neither it is held nor ``waits``, becomes ready."""
        chain = self._chains.get(key)
        if chain is None or chain.head.state is not CHAINED:
            return
        if key in self._held:
            self._stirred.add(key)
        elif not self._waits(chain.head):
            chain.head.move(CHAINED, READY)
            self._waited(chain.head)
            self._reactivated.append(chain.head)

    def take(self, key: bytes) -> list[Job]:
        """Take all jobs of *key*, which is held, out, in order. None may be leased."""
        jobs = list(self.jobs(key))
        self._chains.pop(key, None)
        for job in jobs:
            job.successor = None
        return jobs

    def cut(self, key: bytes, *, keep: int) -> list[Job]:
        """Take the chained jobs of *key* behind the first *keep* (at least 1) out, in order.

        Of a run that is longer all stay: clients have them.
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

    def _is_stale(self, job: Job) -> bool:
        """True if the entry of *job* that was taken from its queue is stale: it is gone now."""
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
        """Take the stale entries out. O(ready and stale)."""
        for queue in (self._main, self._reactivated):
            left = [job for job in queue if not self._is_stale(job)]
            queue.clear()
            queue.extend(left)

    def _waited(self, job: Job) -> None:
        """*job* stood in its chain until now."""
        now_ns, since_ns = self.now.ns, job.since_ns
        if since_ns:
            job.waited_ns += now_ns - since_ns
            self.measures.key_wait.note(now_ns - since_ns)
        job.since_ns = now_ns

    def _waits(self, job: Job) -> bool:
        return self.waits is not None and self.waits(job)
