"""Demand of clients: queues are read past stuck jobs while clients wait for messages. Pure.

Clients ask for topics, not groups. Messages of another topic, or of another queue of the same
topic, do not satisfy the demand on a queue without messages, so each queue checks for itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from broker_core.names import Topic

#: How long a request counts as recent: a client asks again once it has capacity.
_LATELY_NS = 5_000_000_000
#: A queue with this many ready jobs is not read ahead.
READ_AHEAD = 512


@dataclass(slots=True)
class Starvation:
    """Topics of one group that clients asked for recently, or wait for. None means any topic."""

    _asked_ns: dict[Topic | None, int] = field(default_factory=dict)
    _waiting: dict[Topic | None, int] = field(default_factory=dict)  # only those above 0

    def asks(self, topics: Iterable[Topic] | None, now_ns: int) -> bool:
        """Note a request for *topics*; return True if there was no recent one for one of them."""
        asked_ns, late_ns = self._asked_ns, now_ns - _LATELY_NS
        if topics is None:
            first = asked_ns.get(None, late_ns) <= late_ns
            asked_ns[None] = now_ns
            return first
        first = False
        for topic in topics:
            first = first or asked_ns.get(topic, late_ns) <= late_ns
            asked_ns[topic] = now_ns
        return first

    def waits(self, topics: Iterable[Topic] | None, change: int) -> None:
        """Note that a client starts (1) or stops (-1) waiting for *topics*."""
        for topic in (None,) if topics is None else topics:
            if waiting := self._waiting.get(topic, 0) + change:
                self._waiting[topic] = waiting
            else:
                del self._waiting[topic]

    def waiting(self, topic: Topic) -> bool:
        """Return True if a client waits for messages of *topic*."""
        return topic in self._waiting or None in self._waiting

    def asked_recently(self, topic: Topic, now_ns: int) -> bool:
        """Return True if a client recently asked for messages of *topic*."""
        asked_ns = max(self._asked_ns.get(topic, 0), self._asked_ns.get(None, 0))
        return bool(asked_ns) and now_ns - asked_ns < _LATELY_NS

    def forget(self, topic: Topic) -> None:
        """Forget *topic*, which the group no longer consumes."""
        self._asked_ns.pop(topic, None)


#: How long the oldest messages of a queue are observed.
PATIENCE_NS = 200_000_000
#: Reading past a full window costs two reads per message, so it is skipped if everything in the
#: window will finish within this time.
_SOON_NS = 5_000_000_000


@dataclass(slots=True)
class Patience:
    """Decides whether the full window of one queue is read past for waiting clients. Not while its
    oldest unfinished offset advances so fast that the whole window finishes soon: then the waiting
    messages follow those of a hot key and are read soon enough.
    """

    _since_ns: int | None = None
    _oldest: int = 0
    _over: bool = False
    _still: int = -1  # lowest unfinished offset, unchanged since ``_still_ns``
    _still_ns: int = 0

    def stands(self, oldest: int, now_ns: int) -> bool:
        """Return True if *oldest* has been the lowest unfinished offset for too long."""
        if oldest != self._still:
            self._still, self._still_ns = oldest, now_ns
        return now_ns - self._still_ns >= _SOON_NS

    def over(self, *, in_vain: bool, oldest: int, position: int, now_ns: int) -> bool:
        """Return True if the window is read past: clients wait *in_vain*, and the window does not
        finish soon. *oldest* is the lowest unfinished offset, *position* the next to read.
        """
        if not in_vain:
            self._since_ns, self._over = None, False
        elif self._since_ns is None:
            self._since_ns, self._oldest = now_ns, oldest
        elif (passed_ns := now_ns - self._since_ns) >= PATIENCE_NS:
            ends = (oldest - self._oldest) * _SOON_NS > (position - oldest) * passed_ns
            self._since_ns, self._oldest, self._over = now_ns, oldest, not ends
        return self._over
