"""Profiles of candidate order keys: counts that can be taken in parts and merged.

All figures of a report follow from *cells*: the number of messages of one key in one queue, one
time window and one offset window. Profiles of parts of a topic are merged cell by cell, in any
order, so a bulk job gets the same result as a single process.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from proxy.core.keys.kinds.registry import compile_order_key, look_each, one_of
from proxy.core.keys.order_key import Keyed, Looked, MissingKey, ValueKind

__all__ = [
    "Cell",
    "Histogram",
    "HotKey",
    "KeyProfile",
    "MissingKey",
    "Tally",
    "ValueKind",
    "Windows",
]

#: Number of messages per key → number of such keys; likewise for chains.
Histogram = Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows within which messages of a key count as waiting for each other.

    A key blocked for ``time_ms`` holds back the messages stored meanwhile. ``offsets`` represents
    the messages of a queue that a proxy reads ahead: by default half of ``max_jobs_in_memory``.
    """

    time_ms: int = 60_000
    offsets: int = 10_000

    def __post_init__(self) -> None:
        for name, value, unit in (
            ("time", self.time_ms, "ms"),
            ("offsets", self.offsets, "messages"),
        ):
            if value < 1:
                raise ValueError(f"a window of {name} is {value} {unit}: at least 1 is needed")


class Cell(NamedTuple):
    """Messages that are counted together. ``key`` is None for messages without a key."""

    candidate: str
    queue: str
    key: bytes | None
    kind: ValueKind
    time_window: int
    offset_window: int


class Chain(NamedTuple):
    """An ordered sequence: one key in one queue, or (None) all messages of a queue without a
    key.
    """

    queue: str
    key: bytes | None


@dataclass(frozen=True, slots=True)
class HotKey:
    """One key: its messages, the number of its queues, and its longest chain in a time window."""

    key: bytes
    messages: int
    queues: int
    longest: int


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts of one candidate, independent of how they were collected."""

    candidate: str
    kinds: Mapping[ValueKind, int]
    """Messages by the type of the value that the rule finds."""
    keys: Histogram
    """Messages of a key → keys."""
    chains: int
    """Number of chains: keys, counted once per queue."""
    busiest: int
    """Messages of the longest chain: one key in one queue."""
    in_time: Histogram
    """Messages of a chain in one time window → frequency."""
    in_offsets: Histogram
    """Messages of a chain in one offset window → frequency."""
    hottest: Sequence[HotKey]
    """Keys by descending number of messages; equal ones by their bytes."""
    scattered_keys: int
    """Keys found in several queues, and the messages of those."""
    scattered_messages: int
    mixed_keys: int
    """Keys found as values of several types (1 and "1"): they are one key."""


class KeyProfile:
    """Counts of the added messages. Memory grows with the number of cells."""

    def __init__(self, candidates: Iterable[str], *, windows: Windows | None = None) -> None:
        """*candidates* are rules for ``compile_order_key``.

        Raises ValueError with one sentence for an invalid or duplicate rule, or without any.
        """
        self.candidates = tuple(candidates)
        self.windows = windows or Windows()
        #: Number of cells.
        self.size = 0
        # By queue, time window and offset window: the result of each candidate's rule.
        self._counts: dict[tuple[str, int, int], list[dict[Looked, int]]] = {}
        if not self.candidates:
            raise ValueError(f"no candidate order key: {one_of()}")
        if len(set(self.candidates)) < len(self.candidates):
            twice = next(each for each in self.candidates if self.candidates.count(each) > 1)
            raise ValueError(f"candidate {twice!r} is named twice")
        self.rules = [compile_order_key(candidate) for candidate in self.candidates]

    def add(self, message: Keyed, *, queue: str, offset: int, stored_ms: int) -> None:
        """Count *message*, stored at *offset* of *queue* at the time *stored_ms*."""
        self.count(look_each(self.rules, message), queue=queue, offset=offset, stored_ms=stored_ms)

    def count(
        self,
        looked: Sequence[Looked],
        *,
        queue: str,
        offset: int,
        stored_ms: int,
    ) -> None:
        """Count a message that all rules have *looked* at; see ``add``."""
        windows = self.windows
        place = queue, stored_ms // windows.time_ms, offset // windows.offsets
        for counts, each in zip(self._counts_at(place), looked, strict=True):
            if each in counts:
                counts[each] += 1
            else:
                counts[each] = 1
                self.size += 1

    def _counts_at(self, place: tuple[str, int, int]) -> list[dict[Looked, int]]:
        counts = self._counts.get(place)
        if counts is None:
            counts = self._counts[place] = [{} for _ in self.candidates]
        return counts

    def cells(self) -> Iterator[tuple[Cell, int]]:
        """Yield each cell with its messages."""
        for (queue, *windows), counts in self._counts.items():
            for candidate, seen in zip(self.candidates, counts, strict=True):
                for (key, kind), messages in seen.items():
                    if kind is ValueKind.QUEUE:
                        key = queue.encode()  # the same bytes in each, without a common key
                    yield Cell(candidate, queue, key, kind, *windows), messages

    def merge(self, other: KeyProfile) -> None:
        """Add the counts of *other*. Raises ValueError if its candidates or windows differ."""
        if (other.candidates, other.windows) != (self.candidates, self.windows):
            raise ValueError("cannot merge profiles with different candidates or windows")
        for place, theirs in other._counts.items():
            for counts, seen in zip(self._counts_at(place), theirs, strict=True):
                for each, messages in seen.items():
                    self.size += each not in counts
                    counts[each] = counts.get(each, 0) + messages

    def tallies(
        self, *, missing: MissingKey = MissingKey.BY_QUEUE, hottest: int = 20
    ) -> list[Tally]:
        """Return the counts of each candidate, in the given order. *missing* is the rule for
        messages without a key, *hottest* the number of listed keys.
        """
        counts = {candidate: _Counts(missing) for candidate in self.candidates}
        for cell, messages in self.cells():
            counts[cell.candidate].add(cell, messages)
        return [each.tally(candidate, hottest=hottest) for candidate, each in counts.items()]


@dataclass(slots=True)
class _Counts:
    """Counts of one candidate, by cell."""

    missing: MissingKey
    kinds: Counter[ValueKind] = field(default_factory=Counter)
    keys: Counter[bytes] = field(default_factory=Counter)
    queues_of: defaultdict[bytes, set[str]] = field(default_factory=lambda: defaultdict(set))
    kinds_of: defaultdict[bytes, set[ValueKind]] = field(default_factory=lambda: defaultdict(set))
    chains: Counter[Chain] = field(default_factory=Counter)
    in_time: Counter[tuple[Chain, int]] = field(default_factory=Counter)
    in_offsets: Counter[tuple[Chain, int]] = field(default_factory=Counter)

    def add(self, cell: Cell, messages: int) -> None:
        self.kinds[cell.kind] += messages
        if cell.key is not None:
            self.keys[cell.key] += messages
            self.queues_of[cell.key].add(cell.queue)
            self.kinds_of[cell.key].add(cell.kind)
        elif self.missing is not MissingKey.BY_QUEUE:
            return
        chain = Chain(cell.queue, cell.key)
        self.chains[chain] += messages
        self.in_time[chain, cell.time_window] += messages
        self.in_offsets[chain, cell.offset_window] += messages

    def tally(self, candidate: str, *, hottest: int) -> Tally:
        scattered = [key for key, queues in self.queues_of.items() if len(queues) > 1]
        return Tally(
            candidate=candidate,
            kinds=dict(self.kinds),
            keys=Counter(self.keys.values()),
            chains=len(self.chains),
            busiest=max(self.chains.values(), default=0),
            in_time=Counter(self.in_time.values()),
            in_offsets=Counter(self.in_offsets.values()),
            hottest=tuple(self._hottest(hottest)),
            scattered_keys=len(scattered),
            scattered_messages=sum(self.keys[key] for key in scattered),
            mixed_keys=sum(len(kinds) > 1 for kinds in self.kinds_of.values()),
        )

    def _hottest(self, how_many: int) -> Iterator[HotKey]:
        longest: Counter[bytes] = Counter()
        for (chain, _), length in self.in_time.items():
            if chain.key is not None:
                longest[chain.key] = max(longest[chain.key], length)
        for key in sorted(self.keys, key=lambda key: (-self.keys[key], key))[:how_many]:
            yield HotKey(key, self.keys[key], len(self.queues_of[key]), longest[key])
