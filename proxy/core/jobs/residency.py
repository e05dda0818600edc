"""Which unfinished jobs of one queue are in memory, and when others are read again. Pure.

Three things leave memory while room is short: the ends of long chains are *spilled* (only offsets
stay), first jobs that cannot be delivered now are *unloaded* (all but the message stays), and
messages that follow spilled ones of their key are spilled at once. Spilled messages are read again
(``Refill``) when their turn comes and there is room.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence

from proxy.core.jobs.chains import CHAINED, Job, JobChains
from proxy.core.jobs.offset_tracker import OffsetTracker
from proxy.core.jobs.refills import Refill
from proxy.core.jobs.spilled_chains import SpilledChains
from proxy.core.jobs.unloaded import UnloadedJobs
from proxy.core.jobs.window import FlowWindow

#: A full window is examined again once this part (1/n) of it was read.
_WORTH_A_LOOK = 16
#: First jobs are unloaded until this part (1/n) of the window is free.
_FREED = 4
#: Jobs with a longer order key (bytes) stay in memory and are not parked: ownership records would
#: become too long.
LONGEST_KEY = 65_536


class Residency:
    """Moves jobs of one queue into and out of memory, within its window and the shared memory.

    Jobs of a key that has spilled jobs are spilled behind them, so its order does not depend on
    memory.

    Caller: ``Jobs``, the pipeline (``room``, ``spill``), and the relief of all queues that share
    the memory. Affects: chains, spilled chains, tracker, window.
    """

    def __init__(
        self,
        chains: JobChains,
        spilled: SpilledChains,
        tracker: OffsetTracker[Job],
        window: FlowWindow,
        *,
        max_jobs_per_key: int,
        spill_all: bool,
    ) -> None:
        """Read nothing again before ``begin_refills``. *spill_all*: spill every job, and read it
        again only while its key is in ``wanted``.
        """
        self._chains, self._spilled, self._tracker = chains, spilled, tracker
        self.window = window
        #: First jobs that cannot be delivered now, and those of them that are unloaded.
        self.unloaded = UnloadedJobs(window)
        self._memory = window.memory
        self._memory.relief.holders[self] = None
        self._max_jobs_per_key = max_jobs_per_key
        #: True if memory was pressed at the last check, which is made once for many messages.
        self._scarce = False
        self._may_refill = False
        self._shortened = False  # all chains, since the window became pressed
        self._shared_at = -1  # read position when all chains were last cut to their share
        #: Refills for ``take_refills``. Read-only for others.
        self.refills: list[Refill] = []
        # Keys with spilled jobs, none of which is in memory or being read for lack of room.
        self._starved: OrderedDict[bytes, None] = OrderedDict()
        #: Keys whose spilled jobs are read again; None: all.
        self.wanted: set[bytes] | None = set() if spill_all else None

    def begin_refills(self) -> None:
        """Start reading spilled jobs again, after all jobs that an earlier owner had in memory."""
        self._may_refill = True
        for key in list(self._spilled.keys):
            self.refill(key)

    @property
    def starved(self) -> Collection[bytes]:
        """Keys with spilled jobs, none in memory, and no room to read one of them again."""
        return self._starved.keys()

    def change_limits(self, *, max_jobs: int, max_jobs_per_key: int) -> None:
        """Set other limits; longer chains are spilled when the window is pressed next. Affects:
        window, spilled chains.
        """
        self.window.change_limit(max_jobs)
        self._max_jobs_per_key = max_jobs_per_key
        self._shortened, self._shared_at = False, -1
        self.feed()
        for key in list(self._spilled.keys):
            self.refill(key)

    # ---- room to read ---------------------------------------------------------------------------

    @property
    def taken(self) -> int:
        """Used places of the window: jobs in memory, and those being read again."""
        return self.window.jobs + self.being_read

    @property
    def left(self) -> int:
        """Free places of the window; negative after the limit was lowered."""
        return self.window.max_jobs - self.taken

    @property
    def being_read(self) -> int:
        """Number of jobs being read again."""
        return self._spilled.being_read + self.unloaded.asked

    def room(self, *, demand: bool, idle: bool = False) -> int:
        """Return how many more messages may be read now.

        Reading on for waiting clients begins with spilling the ends of long chains, and finally
        spills any chain beyond its share; if memory is short, in all queues. Return 0 while a key
        waits for room.
        *idle*: waiting clients get nothing, so a few messages are read even with memory full.
        """
        if self._starved or self.unloaded.due:
            self._make_room()
            self.feed()
        if self._starved:
            return 0
        if demand and self.window.pressed and not self._shortened:
            self._shortened = True
            most = self._most_of_a_key(len(self._chains.keys))
            for key in list(self._chains.keys):
                self._shorten(key, most)
        elif not self.window.pressed:
            self._shortened = False
        if demand and self.left <= 0:
            # Each examination is O(window): do not repeat it for a few messages.
            since = self._tracker.position - self._shared_at
            if self._shared_at < 0 or since > self.window.max_jobs // _WORTH_A_LOOK:
                self._share_out()
            self._make_room()
            self.feed()
        if self.wanted is not None:
            return max(0, self.left)  # only an offset is kept of each message read
        if not demand:
            return max(0, min(self.left, self.window.room(demand=False)))
        self._memory.relieve()
        room = self.window.room(demand=True)
        if not room and idle:
            room = self.window.few()
        return max(0, min(self.left, room))

    @property
    def places(self) -> int:
        """Number of messages that may be admitted without ``spill``, as long as memory lasts."""
        if self._spilled.keys or self._scarce or self.wanted is not None:
            return 0
        return min(self.left, self.window.until_full)

    def has_place(self, key: bytes | None, *, idle: bool) -> bool:
        """Return True if a message of *key* may be admitted while memory is pressed. With memory
        full, only a message that is spilled at once, or a message of an *idle* queue.
        """
        self._scarce = True
        if self._memory.left or idle or not self.window.jobs:
            return True
        if self.wanted is not None:
            return True
        is_known = key in self._spilled.keys or (key is not None and self._chains.jobs_of(key) > 0)
        return key is not None and len(key) <= LONGEST_KEY and is_known

    def look_at_memory(self) -> None:
        """Check whether memory is pressed, once for all messages of a read."""
        memory = self._memory
        self._scarce = memory.used * 2 >= memory.limit

    # ---- spilling new messages ------------------------------------------------------------------

    def spill(self, key: bytes | None, offset: int) -> bool:
        """Spill the message just read behind others of its key, or return False to ``admit`` it."""
        if key is None or not (
            self.window.full or self._spilled.keys or self._scarce or self.wanted is not None
        ):
            return False  # the usual case
        if not self._spills(key, offset):
            return False
        self._tracker.advance(offset + 1)
        self._spilled.add(key, offset)
        self._chains.note_length(key)
        if self.wanted is not None:
            self.refill(key)
        return True

    def _spills(self, key: bytes, offset: int) -> bool:
        if len(key) > LONGEST_KEY:
            return False
        if self.wanted is not None:
            return True
        chain = self._spilled.of(key) if self._spilled.keys else None
        if chain is not None and chain.waiting:
            return offset > chain.offsets[chain.head]  # otherwise an earlier owner had it in memory
        if not (self.window.pressed or self._memory.pressed):
            return False
        in_memory = self._chains.jobs_of(key)
        if in_memory and not self._memory.left:
            return True
        return in_memory >= self._most_of_a_key(len(self._chains.keys))

    # ---- refills ---------------------------------------------------------------------------------

    def take_refills(self) -> list[Refill]:
        """Return the refills to read, each only once."""
        refills, self.refills = self.refills, []
        return refills

    def refilled(self, refill: Refill, jobs: Sequence[Job]) -> bool:
        """Take the messages read for *refill*: *jobs* for those that still exist, in order.

        It may be the first part of one that was asked for; the rest is asked for again. Return
        False, without any effect, if they are no longer wanted.
        """
        if not self.wants(refill):
            return False  # they were put back meanwhile
        self._spilled.want_fewer(refill.key, len(refill.offsets))
        self._spilled.load(refill.key, [job.offset for job in jobs])
        for job in jobs:
            job.note_refilled()
            self.window.admit(job.held_bytes)
            self._chains.submit(job, reactivated=True)
        self._chains.note_length(refill.key)
        self._memory.relief.note_arrivals(len(jobs))
        self.feed()  # some messages may have been deleted
        self.refill(refill.key)
        return True

    def wants(self, refill: Refill) -> bool:
        """Return True if the messages of *refill* are being read, or are the first of those."""
        if refill.unloaded:
            return self.unloaded.asks_for(refill.offsets[0])
        chain, offsets = self._spilled.of(refill.key), list(refill.offsets)
        return chain is not None and chain.wanted_offsets[: len(offsets)] == offsets

    def wait_for(self, refill: Refill) -> None:
        """Keep a place for the first message of *refill* only: it cannot be read for now."""
        if not refill.unloaded:
            self._spilled.want_fewer(refill.key, 1)
            self.feed()

    def put_back(self, key: bytes) -> None:
        """Spill all jobs of *key* in memory, because it is no longer wanted. None may be leased."""
        self._chains.hold(key)
        jobs = self._chains.take(key)
        self._chains.release(key)
        for job in jobs:
            self.leave(job)
        if key in self._spilled.keys:
            self._spilled.put_back(key, [job.offset for job in jobs], again=len(jobs))
        self.feed()

    def read_back(self, job: Job) -> bool:
        """Read the message of *job* again if it is unloaded, else return False. The job cannot be
        delivered until then.
        """
        if not self.unloaded.want(job):
            return False
        self._make_room(all_heads=False)  # there may be many such jobs at once
        self.feed()
        return True

    def came_back(self, offset: int, as_read: Job | None) -> Job | None:
        """Take the message of the unloaded job at *offset*: *as_read*, or None if it was deleted.
        Return the job; None if it has finished meanwhile.
        """
        job = self.unloaded.came(offset, as_read)
        self.feed()
        return job

    def refill(self, key: bytes) -> None:
        """Read the next spilled jobs of *key* again, as far as there is room. A key without any job
        in memory has priority over new messages.
        """
        chain = self._spilled.of(key)
        if chain is None or (self.wanted is not None and key not in self.wanted):
            return
        loaded = chain.loaded
        if chain.wanted > loaded or loaded == len(chain.offsets) or not self._may_refill:
            return  # jobs that an earlier owner had in memory may precede it
        in_memory, chains = self._chains.jobs_of(key), len(self._spilled.keys)
        if in_memory * 2 > self.window.largest_share(chains, least=self._max_jobs_per_key):
            return  # checked for every finished message; most return here
        if in_memory * 2 > (most := self._share(chains)):
            return
        if (left := self.left) > 0:
            fair = max(1, left // (1 + len(self._starved)))
            self._starved.pop(key, None)
            offsets = self._spilled.want(key, min(fair, max(1, most // 2)))
            self.refills.append(Refill(key, tuple(offsets)))
        elif not in_memory:
            self._starved[key] = None
            if len(self._starved) == 1:
                self._share_out()  # ``room`` does more
                self.feed()

    def feed(self) -> None:
        """Give free places to the keys and first jobs that have waited longest, alternately."""
        while self.left > 0:
            if self._starved:
                key, _ = self._starved.popitem(last=False)
                self.refill(key)
            if (refill := self.unloaded.ask(self.left)) is not None:
                self.refills.append(refill)
            elif not self._starved:
                return

    def leave(self, job: Job) -> None:
        """Remove *job* from memory."""
        if not self.unloaded or not self.unloaded.forget(job):
            self.window.leave(job.held_bytes)

    # ---- spilling jobs in memory ----------------------------------------------------------------

    def _most_of_a_key(self, chains: int) -> int:
        return self.window.most_of_a_key(chains, least=self._max_jobs_per_key)

    def _share(self, chains: int) -> int:
        return self.window.share(chains, most=self._most_of_a_key(chains))

    def _share_out(self) -> None:
        """Cut each chain to its share, because the window is full, perhaps of jobs behind stuck
        ones.
        """
        self._shared_at = self._tracker.position
        share = self._share(max(len(self._chains.keys), len(self._spilled.keys)))
        for key in list(self._chains.keys):
            self._shorten(key, share)

    def _make_room(self, *, all_heads: bool = True) -> None:
        """Unload first jobs, because the window is full, perhaps of undeliverable jobs."""
        wanted = max(1, self.window.max_jobs // _FREED)
        if self.left > self.unloaded.spare:
            return
        for job in self._to_unload(all_heads=all_heads):
            self._unload(job)
            if self.left > self.unloaded.spare + wanted:
                return

    def _to_unload(self, *, all_heads: bool = True) -> Iterator[Job]:
        """Yield first jobs that cannot be delivered now, in the order of unloading. *all_heads*:
        also those that wait for older messages; O(keys) while any may.
        """
        yield from self.unloaded.take_candidates()
        if all_heads and self._chains.waits is not None:
            for job in list(self._chains.heads()):
                waits = job.state is CHAINED and self._chains.waits(job)
                if waits and job.message is not None and job.key not in self.unloaded.kept:
                    yield job

    def _unload(self, job: Job) -> int:
        """Unload *job*, the first of its key, and spill the jobs behind it; return freed bytes."""
        if job.key is not None:
            self._shorten(job.key, 1)
        return self.unloaded.put(job)

    def _shorten(self, key: bytes, most: int) -> None:
        """Spill the jobs of *key* in memory beyond the first *most*."""
        if self._chains.jobs_of(key) <= most or not self._may_shorten(key):
            return
        cut = self._chains.cut(key, keep=most)
        if not cut:
            return  # all of it is one run
        for job in cut:
            self.window.leave(job.held_bytes)
            if not job.refilled:
                self._tracker.finish(job.offset)
        again = sum(job.refilled for job in cut)
        self._spilled.put_back(key, [job.offset for job in cut], again=again)

    def _may_shorten(self, key: bytes) -> bool:
        """Return False if jobs being read follow the tail, or the key is too long for records."""
        chain = self._spilled.of(key)
        return len(key) <= LONGEST_KEY and (chain is None or chain.wanted <= chain.loaded)

    # ---- memory; caller: the relief of all queues ------------------------------------------------

    @property
    def held_jobs(self) -> int:
        """Number of jobs in memory."""
        return self.window.jobs

    def tails(self) -> Iterator[tuple[int, bytes]]:
        """Yield the spillable bytes of each chain, and its key. O(jobs)."""
        chains = self._chains
        for key in chains.keys:
            if chains.jobs_of(key) > 1 and self._may_shorten(key):
                chained = (job.held_bytes for job in chains.jobs(key) if job.state is CHAINED)
                yield sum(chained), key

    def spill_beyond(self, key: bytes, tail_bytes: int) -> None:
        """Spill the chain of *key* beyond *tail_bytes*, but not its first job."""
        keep = 0
        for job in self._chains.jobs(key):
            if keep and job.state is CHAINED and (tail_bytes := tail_bytes - job.held_bytes) < 0:
                break
            keep += 1
        self._shorten(key, keep)

    def unload(self, wanted_bytes: int) -> int:
        """Unload first jobs for *wanted_bytes*, as far as possible; return the freed bytes."""
        freed = 0
        for job in self._to_unload():
            freed += self._unload(job)
            if freed >= wanted_bytes:
                break
        return freed

    def close(self) -> None:
        """Drop all jobs; unfinished offsets stay."""
        self._memory.relief.holders.pop(self, None)
        self._chains.close()
        self._tracker.drop_items()
        self.unloaded.close()
        self.refills.clear()
        self._starved.clear()
        self.window.clear()
