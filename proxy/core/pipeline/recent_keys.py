"""Recent activity of keys in bounded memory: hot keys, and the last events. Pure."""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from operator import itemgetter

_WINDOW_NS = 60 * 1_000_000_000
#: Keys counted at a time: every key with more than 1/256 of all deliveries is among them.
_COUNTED = 256
#: Most keys with events, events per key, and events in all: a few hundred bytes each, in every
#: owned queue.
_REMEMBERED, _EVENTS, _EVENTS_IN_ALL = 512, 32, 2_048


@dataclass(slots=True)
class HotKeys:
    """Keys with a large share of the deliveries of the last one or two minutes (Misra and Gries).

    A key's count is too low by at most 1/256 of the total; O(1) per delivery, amortized.
    """

    _began_ns: int = 0
    _total: int = 0
    _counts: dict[bytes, int] = field(default_factory=dict)
    _total_before: int = 0
    _before: dict[bytes, int] = field(default_factory=dict)

    def note(self, keys: Iterable[bytes | None], *, now_ns: int) -> None:
        """Count one delivery of each of *keys*; None is ignored."""
        if now_ns - self._began_ns >= _WINDOW_NS:
            self._turn(now_ns)
        counts, total = self._counts, self._total
        for key in keys:
            if key is None:
                continue
            total += 1
            if key in counts:
                counts[key] += 1
            elif len(counts) < _COUNTED:
                counts[key] = 1
            else:
                counts = {each: count - 1 for each, count in counts.items() if count > 1}
        self._counts, self._total = counts, total

    def _turn(self, now_ns: int) -> None:
        fresh = now_ns - self._began_ns < 2 * _WINDOW_NS
        self._before, self._total_before = (self._counts, self._total) if fresh else ({}, 0)
        self._counts, self._total, self._began_ns = {}, 0, now_ns

    def top(self, keys: int, *, now_ns: int) -> tuple[dict[bytes, int], int]:
        """Return ``counts`` for the hottest *keys* only."""
        counts, total = self.counts(now_ns=now_ns)
        hottest = heapq.nlargest(keys, counts.items(), key=itemgetter(1))
        return dict(hottest), total

    def counts(self, *, now_ns: int) -> tuple[dict[bytes, int], int]:
        """Return deliveries by key, and the total."""
        if now_ns - self._began_ns >= _WINDOW_NS:
            self._turn(now_ns)
        both = dict(self._before)
        for key, count in self._counts.items():
            both[key] = both.get(key, 0) + count
        return both, self._total + self._total_before


@dataclass(frozen=True, slots=True)
class KeyEvent:
    """One event in a key's history: ``what`` happened to the message at ``offset``; ``at_ns`` is by
    the core's clock.
    """

    at_ns: int
    what: str
    offset: int | None = None
    attempt: int | None = None
    detail: str = ""


@dataclass(slots=True)
class KeyEvents:
    """The last events of the keys with the most recent unusual events."""

    _events: OrderedDict[bytes, deque[KeyEvent]] = field(default_factory=OrderedDict)
    _count: int = 0  # number of events

    @property
    def keys(self) -> Collection[bytes | None]:
        """Keys that have events; a live view."""
        return self._events.keys()

    def note(self, key: bytes, event: KeyEvent) -> None:
        """Add *event* to the history of *key*."""
        events = self._events.get(key)
        if events is None:
            events = self._events[key] = deque(maxlen=_EVENTS)
        else:
            self._events.move_to_end(key)
        self._count += len(events) < _EVENTS
        events.append(event)
        while len(self._events) > _REMEMBERED or self._count > _EVENTS_IN_ALL:
            _, forgotten = self._events.popitem(last=False)
            self._count -= len(forgotten)

    def of(self, key: bytes) -> list[KeyEvent]:
        """Return the events of *key*, the oldest first."""
        return list(self._events.get(key, ()))
