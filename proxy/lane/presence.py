"""Demand at this proxy: which topics of a group are wanted, and which pulls wait in vain."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from broker_core.clock import now_ns
from broker_core.names import Topic
from proxy.core.jobs.starvation import Starvation
from proxy.core.jobs.window import Budget
from proxy.core.ownership.stays import Stays

#: Minimum presence of clients that are busy with leased messages and do not pull.
_BUSY_S = 30.0


@dataclass(slots=True, eq=False)
class Presence:
    """Demand for one group.

    A topic is wanted while a pull waits for it, for some time after a pull or an operator's action,
    and while the proxy delivers it itself. A pull without topics wants all of them.

    Attributes:
        leases: Live leases of the group.
        waiting_pulls: Number of waiting pulls; kept by the lane.
        delivers: Topics that the proxy delivers to its own targets.
        joined: Whether the proxy takes part in the group.
        shown: Topics shown to the other members as wanted.
        shows_all: Whether ``shown`` has all topics of the group.
    """

    leases: Budget
    waiting_pulls: int = 0
    delivers: frozenset[Topic] = frozenset()
    joined: bool = False
    shown: frozenset[Topic] = frozenset()
    shows_all: bool = False
    starvation: Starvation = field(default_factory=Starvation)
    _places: int = 0  # of all waiting pulls
    _last_seen_ns: int = 0
    _seen_ns: dict[Topic | None, int] = field(default_factory=dict)  # None: pulls for any topic
    _stays: Stays = field(default_factory=Stays)
    _operated_ns: dict[Topic, int] = field(default_factory=dict)

    @property
    def delivers_itself(self) -> bool:
        """Whether the proxy delivers a topic itself."""
        return bool(self.delivers)

    # ---- membership; caller: upstream -----------------------------------------------------------

    def show(self, topics: Iterable[Topic], *, shows_all: bool) -> None:
        """Join the group and show *topics* as wanted; *shows_all*: they are all of the group's."""
        self.joined = True
        before, self.shown, self.shows_all = self.shown, frozenset(topics), shows_all
        if before - self.shown:
            self._stays.left(before - self.shown, now_ns())

    def leave(self) -> None:
        """Leave the group."""
        self.joined = self.shows_all = False
        self.shown = frozenset()

    def deliver(self, topics: Collection[Topic]) -> None:
        """Set the *topics* that the proxy delivers itself; caller: the deliveries."""
        self.delivers = frozenset(topics)

    # ---- events; caller: the lane ---------------------------------------------------------------

    def seen(self, now_ns: int, topic: Topic | None = None) -> bool:
        """Note a client that extended a lease, or has a verdict on a message of *topic*; return
        True if upstream must learn of it.
        """
        self._last_seen_ns = now_ns
        if topic is not None:
            self._seen_ns[topic] = now_ns
        return not self.joined

    def pulled(self, topics: Collection[Topic] | None, now_ns: int) -> bool:
        """Note a pull for *topics* (None: any); return True if upstream must learn that
        they are wanted.
        """
        self._last_seen_ns = now_ns
        self._stays.pulled(topics, now_ns)
        if topics is None:
            self._seen_ns[None] = now_ns
            return not (self.joined and self.shows_all)
        for topic in topics:
            self._seen_ns[topic] = now_ns
        if not self.joined:
            return True
        return any(
            topic not in self.shown and self._stays.has_stayed(topic, now_ns) for topic in topics
        )

    def operated(self, topics: Iterable[Topic]) -> None:
        """Note an action of an operator for which queues of *topics* need an owner."""
        now = now_ns()
        for topic in topics:
            self._operated_ns[topic] = now

    def waits(self, topics: Iterable[Topic] | None, change: int, *, places: int = 1) -> None:
        """Note that a pull for *topics* (None: any) with free *places* begins (1) or stops (-1)
        waiting.
        """
        self.waiting_pulls += change
        self._places += change * places
        self.starvation.waits(topics, change)
        self._stays.waits(topics, change, now_ns())

    def forget_clients(self) -> None:
        """Forget clients after the process was stopped: they may have gone elsewhere meanwhile.

        Waiting pulls and leases still count.
        """
        self._last_seen_ns = 0
        self._seen_ns.clear()
        self._stays.forget_clients()

    def forget(self, topic: Topic) -> None:
        """Forget a topic that the group no longer consumes."""
        self._seen_ns.pop(topic, None)
        self._operated_ns.pop(topic, None)
        self._stays.forget(topic)
        self.starvation.forget(topic)

    # ---- results --------------------------------------------------------------------------------

    @property
    def free_places(self) -> int:
        """Messages that a waiting pull takes, on average; 0 without one."""
        return self._places // self.waiting_pulls if self.waiting_pulls else 0

    @property
    def seen_ago_s(self) -> float | None:
        """Return the seconds since the last client; 0 while a pull waits, None: never, or the
        process was stopped.
        """
        if self.waiting_pulls:
            return 0.0
        return (now_ns() - self._last_seen_ns) / 1e9 if self._last_seen_ns else None

    def wanted(self, *, leave_after_s: float) -> bool:
        """Return True while a pull waits, a lease is alive or a client or an operator was here
        recently, or if the proxy delivers itself.
        """
        if self.delivers_itself or self.waiting_pulls or self.leases.used:
            return True
        last_ns = max((self._last_seen_ns, *self._operated_ns.values()))
        return bool(last_ns) and now_ns() - last_ns < leave_after_s * 1e9

    def wants(
        self, topic: Topic, *, leased: bool, leave_after_s: float, elsewhere: bool = False
    ) -> bool:
        """Return True while *topic* is wanted.

        *leased*: it has live leases here. A client that stopped pulling may then be busy and counts
        for at least ``_BUSY_S``; after that other proxies may serve the topic, even if the client
        is still busy. *elsewhere*: other proxies want it too; clients that stay come first then.
        """
        if topic in self.delivers:
            return True
        waiting, now = self.starvation.waiting(topic), now_ns()
        seen = self._seen_ns
        last_ns = max(seen.get(None, 0), seen.get(topic, 0), self._operated_ns.get(topic, 0))
        within_s = max(leave_after_s, _BUSY_S) if leased else leave_after_s
        if not waiting and not (last_ns and now - last_ns < within_s * 1e9):
            return False
        if leased or not elsewhere:
            return True
        return self._stays.wants(topic, shown=topic in self.shown, now_ns=now)
