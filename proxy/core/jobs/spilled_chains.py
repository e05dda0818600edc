"""Chains too long for memory: only the offsets of most of their jobs are kept. Pure.

A spilled offset takes eight bytes; its message is read again when its turn comes. The offset stays
until its job has finished. Jobs of a key finish in order, so the unfinished ones are always the end
of the array.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field

from proxy.core.jobs.ranking import Ranking

OFFSET_BYTES = 8
#: Finished offsets allowed at the front of an array.
_SLACK = 1024


def packed(offsets: Iterable[int] = ()) -> array[int]:
    """Return rising queue offsets in eight bytes each."""
    return array("q", offsets)


@dataclass(slots=True)
class SpilledChain:
    """The spilled jobs of one key, by rising offset.

    ``offsets[head:loaded]`` are in memory as jobs again, ``offsets[loaded:wanted]`` are being read.
    """

    offsets: array[int] = field(default_factory=packed)
    head: int = 0
    loaded: int = 0
    wanted: int = 0

    @property
    def unfinished(self) -> int:
        """Number of unfinished jobs, in memory or not."""
        return len(self.offsets) - self.head

    @property
    def waiting(self) -> int:
        """Number of jobs not in memory."""
        return len(self.offsets) - self.loaded

    @property
    def wanted_offsets(self) -> list[int]:
        """Offsets that are being read."""
        return self.offsets[self.loaded : self.wanted].tolist()

    def finish_first(self) -> None:
        """Finish the job with the lowest offset."""
        self.head += 1
        if self.head > _SLACK and self.head * 2 > len(self.offsets):
            del self.offsets[: self.head]
            self.loaded -= self.head
            self.wanted -= self.head
            self.head = 0


def _ignore(_jobs: int) -> None:
    return


@dataclass(slots=True)
class SpilledChains:
    """All spilled chains of one queue. ``waiting`` counts jobs that are not in memory, and
    ``on_change`` is called with each change of it. ``being_read`` of them are on their way.
    """

    on_change: Callable[[int], None] = _ignore
    waiting: int = 0
    being_read: int = 0
    # Keys whose chains changed other than at their ends; the recorder clears it.
    rewritten: set[bytes] = field(default_factory=set)
    # Keys whose chains changed in any way; the recorder clears it.
    changed: set[bytes] = field(default_factory=set)
    _chains: dict[bytes, SpilledChain] = field(default_factory=dict)
    keys: Collection[bytes] = field(init=False)
    """Order keys with a spilled chain; a live view."""
    # First unfinished offset of each chain, or a lower one, which ``lowest`` corrects.
    _firsts: Ranking[bytes] = field(default_factory=Ranking)
    emptied: set[bytes] | None = None
    """Keys whose last job finished; the consumer removes them. None: not recorded."""

    def __post_init__(self) -> None:
        self.keys = self._chains.keys()

    def __iter__(self) -> Iterator[tuple[bytes, SpilledChain]]:
        return iter(self._chains.items())

    def of(self, key: bytes) -> SpilledChain | None:
        """Return the spilled chain of *key*."""
        return self._chains.get(key)

    @property
    def lowest(self) -> int | None:
        """Lowest unfinished offset of all chains; None without any."""
        while (found := self._firsts.first) is not None:
            offset, key = found
            chain = self._chains[key]
            if chain.offsets[chain.head] == offset:
                return offset
            self._watch(key, chain)
        return None

    @property
    def lowest_key(self) -> bytes | None:
        """Key of ``lowest``."""
        found = None if self.lowest is None else self._firsts.first
        return None if found is None else found[1]

    def append(self, key: bytes, offsets: Iterable[int]) -> None:
        """Spill jobs behind all others of *key*; *offsets* rise and are not empty."""
        chain = self._chains.get(key)
        if chain is None:
            chain = self._chains[key] = SpilledChain()
        before = len(chain.offsets)
        chain.offsets.extend(offsets)
        self.changed.add(key)
        self._wait(len(chain.offsets) - before)
        if chain.head == before:
            self._watch(key, chain)

    def add(self, key: bytes, offset: int) -> None:
        """Spill a job that was read. It may be between spilled ones of *key* if an earlier owner
        had it in memory; then none of these is in memory.
        """
        chain = self._chains.get(key)
        if chain is None:
            self.append(key, (offset,))
        elif offset > chain.offsets[-1]:
            chain.offsets.append(offset)
            self.changed.add(key)
            self._wait(1)
        else:
            chain.offsets.insert(bisect_left(chain.offsets, offset, chain.loaded), offset)
            self._wait(1)
            self._rewrote(key)

    def put_back(self, key: bytes, offsets: Iterable[int], *, again: int) -> None:
        """Spill the last jobs of *key* that are in memory, *again* of which were spilled before.

        All its jobs that are not in memory, including those being read, come behind them.
        """
        chain = self._chains.get(key)
        if chain is None:
            self.append(key, offsets)
            return
        before = len(chain.offsets)
        self.being_read -= chain.wanted - chain.loaded
        chain.loaded -= again
        chain.wanted = chain.loaded
        chain.offsets[chain.loaded : chain.loaded + again] = packed(offsets)
        self._wait(len(chain.offsets) - before + again)
        self._rewrote(key)
        self._watch(key, chain)

    def want(self, key: bytes, jobs: int) -> list[int]:
        """Return the offsets of the next *jobs* of *key* to read; empty while others are being
        read.
        """
        chain = self._chains[key]
        if chain.wanted > chain.loaded:
            return []
        chain.wanted = min(chain.loaded + jobs, len(chain.offsets))
        self.being_read += chain.wanted - chain.loaded
        return chain.offsets[chain.loaded : chain.wanted].tolist()

    def want_fewer(self, key: bytes, jobs: int) -> None:
        """Read only the first *jobs* of *key* that are being read; the others wait again."""
        chain = self._chains[key]
        self.being_read -= chain.wanted - chain.loaded - jobs
        chain.wanted = chain.loaded + jobs

    def load(self, key: bytes, offsets: Collection[int]) -> None:
        """Finish the reading of *key*: *offsets* are in memory, other wanted ones do not exist."""
        chain = self._chains[key]
        self._wait(chain.loaded - chain.wanted)
        self.being_read -= chain.wanted - chain.loaded
        if len(offsets) < chain.wanted - chain.loaded:
            chain.offsets[chain.loaded : chain.wanted] = packed(offsets)
            self._rewrote(key)
        chain.loaded = chain.wanted = chain.loaded + len(offsets)
        self._moved(key, chain)

    def finish(self, key: bytes) -> None:
        """Finish the first unfinished job of *key*, which was in memory."""
        chain = self._chains[key]
        self.changed.add(key)
        chain.finish_first()
        self._moved(key, chain)

    def skip_first(self, key: bytes) -> None:
        """Finish the first job of *key*; none of its jobs is in memory or being read."""
        chain = self._chains[key]
        chain.loaded = chain.wanted = chain.loaded + 1
        self._wait(-1)
        self.finish(key)

    def _rewrote(self, key: bytes) -> None:
        self.rewritten.add(key)
        self.changed.add(key)

    def _wait(self, jobs: int) -> None:
        self.waiting += jobs
        self.on_change(jobs)

    def _moved(self, key: bytes, chain: SpilledChain) -> None:
        if chain.head == len(chain.offsets):
            del self._chains[key]
            self._firsts.remove(key)
            if self.emptied is not None:
                self.emptied.add(key)

    def _watch(self, key: bytes, chain: SpilledChain) -> None:
        self._firsts.set(key, chain.offsets[chain.head])
