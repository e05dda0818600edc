"""Which unfinished jobs of one queue are in memory, and which are read again when. Pure.

Three things leave memory while room is short: the ends of long chains are *spilled* (an offset
stays of each), first jobs that no client can have are *set down* (all but the message stays), and
messages that come behind spilled ones of their key are spilled at once. What was spilled is read
again (``Refill``) when its turn comes and there is room.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence

from proxy.core.jobs.chains import CHAINED, Job, JobChains
from proxy.core.jobs.offset_tracker import OffsetTracker
from proxy.core.jobs.refills import Refill
from proxy.core.jobs.set_down import SetDown
from proxy.core.jobs.spilled_chains import SpilledChains
from proxy.core.jobs.window import FlowWindow

#: A full window is looked through once more when this part of it was read since.
_WORTH_A_LOOK = 16
#: So that there is room first jobs are set down until one part in so many of the window is free.
_FREED = 4
#: Jobs of a longer order key (in bytes) stay in memory and are not parked: an ownership record
#: would be too long.
LONGEST_KEY = 65_536


class Residency:
    """Moves jobs of one queue into and out of memory, within its window and the shared memory.

    Caller: ``Jobs``, the pipeline (``room``, ``spill``), and the relief of all queues that share
    the memory. Affects: chains, spilled chains, tracker, window. Of a key that has spilled jobs,
    later ones are spilled behind them: its order never depends on what is in memory.
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
        """*spill_all*: every job is spilled, and read again only while its key is in ``wanted``.
        Nothing is read again before ``begin_refills``.
        """
        self._chains, self._spilled, self._tracker = chains, spilled, tracker
        self.window = window
        #: First jobs that no client can have now, and those of them without their messages.
        self.down = SetDown(window)
        self._memory = window.memory
        self._memory.relief.holders[self] = None
        self._max_jobs_per_key = max_jobs_per_key
        #: Memory was pressed at the last look: once for many messages. See ``look_at_memory``.
        self._scarce = False
        self._may_refill = False
        self._shortened = False  # all chains, since the window is pressed
        self._shared_at = -1  # the read position when all were cut to their share
        #: What ``take_refills`` would give. Read-only for others.
        self.refills: list[Refill] = []
        # Keys with spilled jobs and none in memory, nor being read: there is no room for one.
        self._starved: OrderedDict[bytes, None] = OrderedDict()
        #: Keys whose spilled jobs are read again; None: all.
        self.wanted: set[bytes] | None = set() if spill_all else None

    def begin_refills(self) -> None:
        """All that an earlier owner had in memory is read: spilled jobs may follow."""
        self._may_refill = True
        for key in list(self._spilled.keys):
            self.refill(key)

    @property
    def starved(self) -> Collection[bytes]:
        """Keys with spilled jobs, none in memory, and no room to read one of them again."""
        return self._starved.keys()

    def change_limits(self, *, max_jobs: int, max_jobs_per_key: int) -> None:
        """Other limits of what is in memory; chains longer than that are spilled when the window is
        pressed next. Affects: window, spilled chains.
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
        """Places of the window: of jobs in memory, and of those that are being read again."""
        return self.window.jobs + self.being_read

    @property
    def left(self) -> int:
        """How many more jobs may come into memory; below 0 after the limit was lowered."""
        return self.window.max_jobs - self.taken

    @property
    def being_read(self) -> int:
        """How many jobs are being read again."""
        return self._spilled.being_read + self.down.asked

    def room(self, *, demand: bool, idle: bool = False) -> int:
        """How many more messages may be read now.

        Reading on for clients that wait begins with spilling what long chains have in memory, and
        ends with what any chain has beyond its share; for want of memory it is spilled in all
        queues. Nothing while a key waits for room. *idle*: there is nothing for those who wait, so
        that even with memory full a few are read.
        """
        if self._starved or self.down.due:
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
            # Each look costs as much as the window is large: not again for a few messages.
            since = self._tracker.position - self._shared_at
            if self._shared_at < 0 or since > self.window.max_jobs // _WORTH_A_LOOK:
                self._share_out()
            self._make_room()
            self.feed()
        if self.wanted is not None:
            return max(0, self.left)  # an offset each is all that is held of what is read
        if not demand:
            return max(0, min(self.left, self.window.room(demand=False)))
        self._memory.relieve()
        room = self.window.room(demand=True)
        if not room and idle:
            room = self.window.few()
        return max(0, min(self.left, room))

    def has_place(self, key: bytes | None, *, idle: bool) -> bool:
        """Whether a message of *key* may come while memory is pressed. With memory full one that is
        spilled at once may; any other only into a queue that is *idle*.
        """
        self._scarce = True
        if self._memory.left or idle or not self.window.jobs:
            return True
        if self.wanted is not None:
            return True
        is_known = key in self._spilled.keys or (key is not None and self._chains.jobs_of(key) > 0)
        return key is not None and len(key) <= LONGEST_KEY and is_known

    def look_at_memory(self) -> None:
        """Messages were read: note whether memory is pressed, once for all of them."""
        memory = self._memory
        self._scarce = memory.used * 2 >= memory.limit

    # ---- spilling what is read ------------------------------------------------------------------

    def spill(self, key: bytes | None, offset: int) -> bool:
        """A message was read: True if it is spilled behind others of its key; else ``admit`` it."""
        if key is None or not (
            self.window.full or self._spilled.keys or self._scarce or self.wanted is not None
        ):
            return False  # mostly
        if not self._spills(key, offset):
            return False
        self._tracker.advance(offset + 1)
        self._spilled.add(key, offset)
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
            return offset > chain.offsets[chain.head]  # else an earlier owner had it in memory
        if not (self.window.pressed or self._memory.pressed):
            return False
        in_memory = self._chains.jobs_of(key)
        if in_memory and not self._memory.left:
            return True
        return in_memory >= self._most_of_a_key(len(self._chains.keys))

    # ---- reading again ---------------------------------------------------------------------------

    def take_refills(self) -> list[Refill]:
        """What is to be read again, each told once."""
        refills, self.refills = self.refills, []
        return refills

    def refilled(self, refill: Refill, jobs: Sequence[Job]) -> bool:
        """The messages of *refill* were read: *jobs* for those that are still there, in order.

        False, and nothing happens, if they are not wanted any more.
        """
        chain = self._spilled.of(refill.key)
        if chain is None or chain.wanted_offsets != list(refill.offsets):
            return False  # it was put back meanwhile
        self._spilled.load(refill.key, [job.offset for job in jobs])
        for job in jobs:
            job.note_refilled()
            self.window.admit(job.held_bytes)
            self._chains.submit(job, reactivated=True)
        self._memory.relief.note_arrivals(len(jobs))
        self.feed()  # some may be gone
        self.refill(refill.key)
        return True

    def put_back(self, key: bytes) -> None:
        """Spill all that *key*, which is not wanted any more, has in memory. None is leased."""
        self._chains.hold(key)
        jobs = self._chains.take(key)
        self._chains.release(key)
        for job in jobs:
            self.leave(job)
        if key in self._spilled.keys:
            self._spilled.put_back(key, [job.offset for job in jobs], again=len(jobs))
        self.feed()

    def read_back(self, job: Job) -> bool:
        """Have the message of *job* read again if it is set down, else False. Until it is there
        no client can have the job.
        """
        if not self.down.want(job):
            return False
        self._make_room(all_heads=False)  # there may be many such jobs at once
        self.feed()
        return True

    def came_back(self, offset: int, as_read: Job | None) -> Job | None:
        """The message of the job there, which is set down, was read, or (None) is gone; returns the
        job, None if it has ended meanwhile.
        """
        job = self.down.came(offset, as_read)
        self.feed()
        return job

    def refill(self, key: bytes) -> None:
        """Have the next spilled jobs of *key* read again, as far as there is room for them. Without
        any it comes before all that is read on for others, once something has left.
        """
        chain = self._spilled.of(key)
        if chain is None or (self.wanted is not None and key not in self.wanted):
            return
        loaded = chain.loaded
        if chain.wanted > loaded or loaded == len(chain.offsets) or not self._may_refill:
            return  # of what an earlier owner had in memory, some may stand ahead of it
        in_memory, chains = self._chains.jobs_of(key), len(self._spilled.keys)
        if in_memory * 2 > self.window.largest_share(chains, least=self._max_jobs_per_key):
            return  # looked at whenever a message ends, and so it is with most
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
        """Give the room that is left to those that wait longest, keys and first jobs in turn."""
        while self.left > 0:
            if self._starved:
                key, _ = self._starved.popitem(last=False)
                self.refill(key)
            if (refill := self.down.ask(self.left)) is not None:
                self.refills.append(refill)
            elif not self._starved:
                return

    def leave(self, job: Job) -> None:
        """*job* leaves memory."""
        if not self.down or not self.down.forget(job):
            self.window.leave(job.held_bytes)

    # ---- spilling what is there -----------------------------------------------------------------

    def _most_of_a_key(self, chains: int) -> int:
        return self.window.most_of_a_key(chains, least=self._max_jobs_per_key)

    def _share(self, chains: int) -> int:
        return self.window.share(chains, most=self._most_of_a_key(chains))

    def _share_out(self) -> None:
        """The window is full, of what waits behind stuck jobs perhaps: leave each chain its share,
        so that others have room.
        """
        self._shared_at = self._tracker.position
        share = self._share(max(len(self._chains.keys), len(self._spilled.keys)))
        for key in list(self._chains.keys):
            self._shorten(key, share)

    def _make_room(self, *, all_heads: bool = True) -> None:
        """The window is full, perhaps of keys that no client can have now: set first jobs down."""
        wanted = max(1, self.window.max_jobs // _FREED)
        if self.left > self.down.spare:
            return
        for job in self._to_set_down(all_heads=all_heads):
            self._set_down(job)
            if self.left > self.down.spare + wanted:
                return

    def _to_set_down(self, *, all_heads: bool = True) -> Iterator[Job]:
        """First jobs that no client can have now, in the order in which they are set down.
        *all_heads*: look for those that wait for older messages, too; O(keys) while some may.
        """
        yield from self.down.take_candidates()
        if all_heads and self._chains.waits is not None:
            for job in list(self._chains.heads()):
                waits = job.state is CHAINED and self._chains.waits(job)
                if waits and job.message is not None and job.key not in self.down.kept:
                    yield job

    def _set_down(self, job: Job) -> int:
        """Leave nothing of *job*, the first one of its key, in memory that can be read again."""
        if job.key is not None:
            self._shorten(job.key, 1)
        return self.down.put(job)

    def _shorten(self, key: bytes, most: int) -> None:
        """Spill what the chain of *key* has in memory beyond so many jobs."""
        if self._chains.jobs_of(key) <= most or not self._may_shorten(key):
            return
        cut = self._chains.cut(key, keep=most)
        if not cut:
            return  # all of it runs
        for job in cut:
            self.window.leave(job.held_bytes)
            if not job.refilled:
                self._tracker.finish(job.offset)
        again = sum(job.refilled for job in cut)
        self._spilled.put_back(key, [job.offset for job in cut], again=again)

    def _may_shorten(self, key: bytes) -> bool:
        """False if what is being read of it now follows the tail, or no record could name it."""
        chain = self._spilled.of(key)
        return len(key) <= LONGEST_KEY and (chain is None or chain.wanted <= chain.loaded)

    # ---- memory; caller: the relief of all queues ------------------------------------------------

    @property
    def held_jobs(self) -> int:
        """Jobs in memory."""
        return self.window.jobs

    def tails(self) -> Iterator[tuple[int, bytes]]:
        """The bytes of each chain that could be spilled, and its key. O(jobs)."""
        chains = self._chains
        for key in chains.keys:
            if chains.jobs_of(key) > 1 and self._may_shorten(key):
                chained = (job.held_bytes for job in chains.jobs(key) if job.state is CHAINED)
                yield sum(chained), key

    def spill_beyond(self, key: bytes, tail_bytes: int) -> None:
        """Leave the chain of *key* so many of these bytes at most, and its first job."""
        keep = 0
        for job in self._chains.jobs(key):
            if keep and job.state is CHAINED and (tail_bytes := tail_bytes - job.held_bytes) < 0:
                break
            keep += 1
        self._shorten(key, keep)

    def set_down(self, wanted_bytes: int) -> int:
        """Set first jobs down for so many bytes, or what there is; returns how many it were."""
        freed = 0
        for job in self._to_set_down():
            freed += self._set_down(job)
            if freed >= wanted_bytes:
                break
        return freed

    def close(self) -> None:
        """Dropped with all that it held."""
        self._memory.relief.holders.pop(self, None)
        self.window.clear()
