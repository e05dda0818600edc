"""Clients that stay at this proxy and those that come and go, while other proxies want the same
topics too. Pure. Times are ns.

The queues of a topic are at the proxies whose clients want it. A client that goes from proxy to
proxy must not draw them behind it, away from clients that stay:

1. While others want a topic, it is left to them soon after its last pull here, unless its clients
   hold messages.
2. Clients that come back within a minute count once they have stayed for a while. Those that come
   for the first time count at once, as all do where no other proxy wants the topic.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from broker_core.names import Topic

#: Longest time without a pull.
IDLE_NS = 2_000_000_000
#: Time to stay for those that come back, and how long a topic that was left is remembered.
STAY_NS, REMEMBERED_NS = 5_000_000_000, 60_000_000_000


@dataclass(slots=True)
class Stays:
    """Pulls at this proxy, by topic; None: pulls of any topic."""

    _waiting: dict[Topic | None, int] = field(default_factory=dict)  # number of waiting pulls
    _pulled_ns: dict[Topic | None, int] = field(default_factory=dict)  # last one, or its end
    _came_ns: dict[Topic | None, int] = field(default_factory=dict)  # first pull after a pause
    _left_ns: dict[Topic, int] = field(default_factory=dict)

    def pulled(self, topics: Iterable[Topic] | None, now_ns: int) -> None:
        """Note a pull."""
        for topic in (None,) if topics is None else topics:
            if topic not in self._came_ns or not self._is_here(topic, now_ns):
                self._came_ns[topic] = now_ns
            self._pulled_ns[topic] = now_ns

    def waits(self, topics: Iterable[Topic] | None, change: int, now_ns: int) -> None:
        """Note that a pull begins (1) or stops (-1) waiting. However long it waits, it stays."""
        for topic in (None,) if topics is None else topics:
            waiting = self._waiting.pop(topic, 0) + change
            if waiting:
                self._waiting[topic] = waiting
            self._pulled_ns[topic] = now_ns

    def left(self, topics: Iterable[Topic], now_ns: int) -> None:
        """Note *topics* that are left to others."""
        for topic in topics:
            self._left_ns[topic] = now_ns

    def forget(self, topic: Topic) -> None:
        """Forget a topic that the group no longer consumes."""
        self._pulled_ns.pop(topic, None)
        self._came_ns.pop(topic, None)
        self._left_ns.pop(topic, None)

    def forget_clients(self) -> None:
        """Forget the pulls, except those that wait."""
        self._pulled_ns.clear()
        self._came_ns.clear()

    def wants(self, topic: Topic, *, shown: bool, now_ns: int) -> bool:
        """Return whether *topic*, which others want too, is wanted here. *shown*: the others know
        that it is.
        """
        here = any(self._is_here(each, now_ns) for each in (None, topic))
        return here and (shown or self.has_stayed(topic, now_ns))

    def has_stayed(self, topic: Topic, now_ns: int) -> bool:
        """Return whether clients that want *topic* are new, or have stayed."""
        left_ns = self._left_ns.get(topic)
        if left_ns is None or now_ns - left_ns >= REMEMBERED_NS:
            return True
        return any(
            now_ns - self._came_ns.get(each, now_ns) >= STAY_NS
            for each in (None, topic)
            if self._is_here(each, now_ns)
        )

    def _is_here(self, topic: Topic | None, now_ns: int) -> bool:
        if topic in self._waiting:
            return True
        pulled_ns = self._pulled_ns.get(topic)
        return pulled_ns is not None and now_ns - pulled_ns < IDLE_NS
