"""Profiles of candidate order keys: counts that can be taken in parts and added up.

All that a report says follows from *cells*: how many messages of one key stand in one queue, in
one window of time and one window of offsets. Profiles of parts of a topic are added cell by cell,
in any order, so a bulk job may take them anywhere and gets what one process would have got.
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

#: How many messages a key has → how many keys have so many; likewise for chains.
Histogram = Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Windows:
    """Within which messages of a key are taken to wait for each other.

    A key that is stuck for ``time_ms`` holds back what is stored meanwhile. ``offsets`` stands for
    what a proxy has in hand of a queue: half of ``max_jobs_in_memory``, by its default.
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
    """Messages that count as one. ``key`` is None where the message has no such key."""

    candidate: str
    queue: str
    key: bytes | None
    kind: ValueKind
    time_window: int
    offset_window: int


class Chain(NamedTuple):
    """What stays in order: a key of one queue, or (None) all messages of a queue without one."""

    queue: str
    key: bytes | None


@dataclass(frozen=True, slots=True)
class HotKey:
    """One key: its messages, in how many queues they stand, and the longest chain of it in a window
    of time.
    """

    key: bytes
    messages: int
    queues: int
    longest: int


@dataclass(frozen=True, slots=True)
class Tally:
    """What is known of one candidate, whoever counted it."""

    candidate: str
    kinds: Mapping[ValueKind, int]
    """Messages by what stood where the rule looks."""
    keys: Histogram
    """Messages of a key → keys."""
    chains: int
    """Lanes that messages are in: keys, each counted in every queue that it is found in."""
    busiest: int
    """Messages of the longest chain of all: one key in one queue."""
    in_time: Histogram
    """Messages of a chain in one window of time → how often."""
    in_offsets: Histogram
    """The same in one window of offsets."""
    hottest: Sequence[HotKey]
    """Those with most messages first; equal ones by their bytes."""
    scattered_keys: int
    """Keys found in several queues, and the messages of those."""
    scattered_messages: int
    mixed_keys: int
    """Keys found as values of several kinds (1 and "1"): they are one key."""


class KeyProfile:
    """Counts of the messages that were added. Memory grows with the number of cells."""

    def __init__(self, candidates: Iterable[str], *, windows: Windows | None = None) -> None:
        """*candidates* are texts that ``compile_order_key`` takes.

        Raises ValueError, in one sentence, if one is no rule, or named twice, or if there is none.
        """
        self.candidates = tuple(candidates)
        self.windows = windows or Windows()
        #: How many cells there are.
        self.size = 0
        # By queue, window of time and window of offsets: of each candidate what its rule saw there.
        self._counts: dict[tuple[str, int, int], list[dict[Looked, int]]] = {}
        if not self.candidates:
            raise ValueError(f"no candidate for an order key was named: {one_of()}")
        if len(set(self.candidates)) < len(self.candidates):
            twice = next(each for each in self.candidates if self.candidates.count(each) > 1)
            raise ValueError(f"candidate {twice!r} is named twice")
        self.rules = [compile_order_key(candidate) for candidate in self.candidates]

    def add(self, message: Keyed, *, queue: str, offset: int, stored_ms: int) -> None:
        """Count *message*, which stands at *offset* of *queue* since *stored_ms*."""
        self.count(look_each(self.rules, message), queue=queue, offset=offset, stored_ms=stored_ms)

    def count(
        self,
        looked: Sequence[Looked],
        *,
        queue: str,
        offset: int,
        stored_ms: int,
    ) -> None:
        """As ``add``, of a message that all rules have *looked* at."""
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
        """Each cell with its messages."""
        for (queue, *windows), counts in self._counts.items():
            for candidate, seen in zip(self.candidates, counts, strict=True):
                for (key, kind), messages in seen.items():
                    if kind is ValueKind.QUEUE:
                        key = queue.encode()  # the same bytes in each, and yet no key in common
                    yield Cell(candidate, queue, key, kind, *windows), messages

    def merge(self, other: KeyProfile) -> None:
        """Add what *other* counted. Raises ValueError if it asked for other things."""
        if (other.candidates, other.windows) != (self.candidates, self.windows):
            raise ValueError("profiles of other candidates or windows cannot be added up")
        for place, theirs in other._counts.items():
            for counts, seen in zip(self._counts_at(place), theirs, strict=True):
                for each, messages in seen.items():
                    self.size += each not in counts
                    counts[each] = counts.get(each, 0) + messages

    def tallies(
        self, *, missing: MissingKey = MissingKey.BY_QUEUE, hottest: int = 20
    ) -> list[Tally]:
        """Of each candidate, in the order in which they were named. *missing* is the rule for
        messages without a key, *hottest* how many keys are named.
        """
        counts = {candidate: _Counts(missing) for candidate in self.candidates}
        for cell, messages in self.cells():
            counts[cell.candidate].add(cell, messages)
        return [each.tally(candidate, hottest=hottest) for candidate, each in counts.items()]


@dataclass(slots=True)
class _Counts:
    """Of one candidate, cell by cell."""

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
