"""Which topics of a group are wanted at this proxy, and whether somebody waits in vain."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from broker_core.clock import now_ns
from broker_core.names import Topic
from proxy.core.jobs.starvation import Starvation
from proxy.core.jobs.window import Budget

#: Clients that handle what they have, and have no place for more, are there for so long, at least.
_BUSY_S = 30.0


@dataclass(slots=True, eq=False)
class Presence:
    """Demand for one group. A topic is wanted while a pull waits for it, was here lately, or the
    proxy delivers it itself. A pull that names no topic wants all of them.

    ``leases`` are those of the group that live; ``delivers``: the topics of which the proxy is the
    client; ``joined``: it takes part in the group, and other members see that it wants the topics
    ``shown``; ``shows_all``: these are all that the group has.
    """

    leases: Budget
    waiting_pulls: int = 0  # kept by the lane
    delivers: frozenset[Topic] = frozenset()
    joined: bool = False
    shown: frozenset[Topic] = frozenset()
    shows_all: bool = False
    starvation: Starvation = field(default_factory=Starvation)
    _last_seen_ns: int = 0
    _seen_ns: dict[Topic | None, int] = field(default_factory=dict)  # None: pulls for any topic

    @property
    def delivers_itself(self) -> bool:
        """True if the proxy is the client of some topic."""
        return bool(self.delivers)

    # ---- taking part; caller: upstream ----------------------------------------------------------

    def show(self, topics: Iterable[Topic], *, shows_all: bool) -> None:
        """The proxy takes part, and shows that it wants *topics*; *shows_all*: of the group."""
        self.joined = True
        self.shown, self.shows_all = frozenset(topics), shows_all

    def leave(self) -> None:
        """The proxy takes no part any more."""
        self.joined = self.shows_all = False
        self.shown = frozenset()

    def deliver(self, topics: Collection[Topic]) -> None:
        """The proxy is the client of *topics*, and of no others; caller: the deliveries."""
        self.delivers = frozenset(topics)

    # ---- what happens; caller: the lane ---------------------------------------------------------

    def seen(self) -> None:
        """A client of the group pulled, acked or extended."""
        self._last_seen_ns = now_ns()

    def pulled(self, topics: Collection[Topic] | None) -> bool:
        """A client pulled *topics* (None: any), or settled what it had of them. True if upstream
        does not know yet that they are wanted.
        """
        self._last_seen_ns = now = now_ns()
        if topics is None:
            self._seen_ns[None] = now
            return not (self.joined and self.shows_all)
        for topic in topics:
            self._seen_ns[topic] = now
        return not (self.joined and self.shown.issuperset(topics))

    def waits(self, topics: Iterable[Topic] | None, change: int) -> None:
        """A pull for *topics* (None: any) begins (1) or ends (-1) to wait."""
        self.waiting_pulls += change
        self.starvation.waits(topics, change)

    def forget_clients(self) -> None:
        """The process stood still: who was here before may have gone elsewhere, and what it sent
        meanwhile says nothing. Pulls that still wait and leases count as before.
        """
        self._last_seen_ns = 0
        self._seen_ns.clear()

    def forget(self, topic: Topic) -> None:
        """The group does not consume *topic* any more."""
        self._seen_ns.pop(topic, None)
        self.starvation.forget(topic)

    # ---- what follows ---------------------------------------------------------------------------

    @property
    def seen_ago_s(self) -> float | None:
        """How long ago a client was here; 0 while a pull waits, None: never, or it stood still."""
        if self.waiting_pulls:
            return 0.0
        return (now_ns() - self._last_seen_ns) / 1e9 if self._last_seen_ns else None

    def wanted(self, *, leave_after_s: float) -> bool:
        """True while a pull waits, a lease lives, or a client was here lately; and always if the
        proxy is the client.
        """
        if self.delivers_itself or self.waiting_pulls or self.leases.used:
            return True
        return bool(self._last_seen_ns) and now_ns() - self._last_seen_ns < leave_after_s * 1e9

    def wants(self, topic: Topic, *, leased: bool, leave_after_s: float) -> bool:
        """True while *topic* is wanted. *leased*: leases of it live here; then a client that pulls
        no more may just be busy, and counts for ``_BUSY_S``, if that is longer. For how long it has
        no place for more does not matter: others may.
        """
        if topic in self.delivers or self.starvation.waiting(topic):
            return True
        last_ns = max(self._seen_ns.get(None, 0), self._seen_ns.get(topic, 0))
        within_s = max(leave_after_s, _BUSY_S) if leased else leave_after_s
        return bool(last_ns) and now_ns() - last_ns < within_s * 1e9
