"""Whether clients want messages that nobody has for them: then queues are read on past stuck jobs.

Clients want topics, not groups: what one topic has for them, or another queue of the same one, says
nothing of a queue that has nothing. So each queue asks for itself. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from broker_core.names import Topic

#: A client that asked counts for so long: it asks again once one of its hands is free.
_LATELY_NS = 5_000_000_000
#: A queue with so many ready jobs is read on for nobody.
READ_AHEAD = 512


@dataclass(slots=True)
class Starvation:
    """Which topics of one group clients asked for last, and wait for. No topics (None): any."""

    _asked_ns: dict[Topic | None, int] = field(default_factory=dict)
    _waiting: Counter[Topic | None] = field(default_factory=Counter)

    def asks(self, topics: Iterable[Topic] | None, now_ns: int) -> bool:
        """A client asks for messages of *topics*; True if none did lately for one of them."""
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
        """A client with nothing to get begins (1) to wait for *topics*, or waits no longer (-1)."""
        for topic in (None,) if topics is None else topics:
            self._waiting[topic] += change
            if not self._waiting[topic]:
                del self._waiting[topic]

    def waiting(self, topic: Topic) -> bool:
        """True if a client waits that would take messages of *topic*."""
        return topic in self._waiting or None in self._waiting

    def lately(self, topic: Topic, now_ns: int) -> bool:
        """True if a client asked a moment ago that would take messages of *topic*."""
        asked_ns = max(self._asked_ns.get(topic, 0), self._asked_ns.get(None, 0))
        return bool(asked_ns) and now_ns - asked_ns < _LATELY_NS

    def forget(self, topic: Topic) -> None:
        """The group consumes *topic* no more."""
        self._asked_ns.pop(topic, None)


#: A queue's oldest messages are watched for so long.
PATIENCE_NS = 200_000_000
#: What is read past a full window costs two reads: nothing is, if all in it ends in so long anyway.
_SOON_NS = 5_000_000_000


@dataclass(slots=True)
class Patience:
    """Whether the full window of one queue is read past for clients that wait in vain. Not while
    its oldest unfinished offset moves so fast that all that was read ends soon: then what stands
    behind waits for a hot key's own messages, and is read soon enough.
    """

    _since_ns: int | None = None
    _oldest: int = 0
    _over: bool = False
    _still: int = -1  # the oldest, which has been that since then
    _still_ns: int = 0

    def stands(self, oldest: int, now_ns: int) -> bool:
        """True if *oldest* has been the lowest unfinished offset for too long to be waited for."""
        if oldest != self._still:
            self._still, self._still_ns = oldest, now_ns
        return now_ns - self._still_ns >= _SOON_NS

    def over(self, *, in_vain: bool, oldest: int, position: int, now_ns: int) -> bool:
        """True if it is read past: they wait *in_vain*, and what has to end first does not end
        soon. *oldest* is the lowest unfinished offset, *position* the next to be read.
        """
        if not in_vain:
            self._since_ns, self._over = None, False
        elif self._since_ns is None:
            self._since_ns, self._oldest = now_ns, oldest
        elif (passed_ns := now_ns - self._since_ns) >= PATIENCE_NS:
            ends = (oldest - self._oldest) * _SOON_NS > (position - oldest) * passed_ns
            self._since_ns, self._oldest, self._over = now_ns, oldest, not ends
        return self._over
