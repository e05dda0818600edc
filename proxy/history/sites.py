"""Clocks of waiting pulls, one per group and topic at a proxy, that run only while a pull waits.

The delivery of a ready message can be timed only while a pull wants one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from proxy.history.demand import Demands, Limit

#: Distance of samples of the clock, ns: the maximum error of a past reading.
_STEP_NS = 250_000_000
#: Longest pause between two leases that a client takes one after the other, ns.
_TOUCH_NS = 10_000_000
#: Minimum distance of two noted pauses, ns.
_PAUSE_EVERY_NS = 1_000_000_000


@dataclass(slots=True)
class WaitClock:
    """Nanoseconds in which at least one pull waited and could have received messages."""

    running: bool = False
    _since: int = 0
    _total: int = 0
    _times: list[int] = field(default_factory=list)
    _totals: list[int] = field(default_factory=list)

    def run(self, running: bool, t_ns: int) -> None:
        """Start or stop the clock at *t_ns*."""
        if running == self.running:
            return
        if self.running:
            self._total += t_ns - self._since
        self.running, self._since = running, t_ns
        if not self._times or t_ns - self._times[-1] >= _STEP_NS:
            self._times.append(t_ns)
            self._totals.append(self._total)

    def at(self, t_ns: int) -> int:
        """Return the reading at *t_ns*; for the past it may be up to a step too high."""
        if t_ns >= self._since:
            return self._total + (t_ns - self._since if self.running else 0)
        place = bisect_right(self._times, t_ns)
        following = self._totals[place] if place < len(self._times) else self._total
        if not place:
            return 0
        return min(following, self._totals[place - 1] + t_ns - self._times[place - 1])


@dataclass(slots=True)
class Site:
    """One group at one proxy: its waiting pulls and the number of its live leases."""

    leased: int = 0
    max_leased: int | None = None
    on_clock: Callable[[str, bool, int], None] | None = None
    """Called with the time when the clock of a topic starts (True) or stops."""
    on_hold: Callable[[Limit, str | None, bool, int], None] | None = None
    """Called with the time when a limit begins (True) or stops holding a topic (None: all) back."""
    on_pause: Callable[[int], None] | None = None
    """Called with the end of a time in which its clients held nothing."""
    paused_ns: int = -1
    """End of the last noted time in which its clients held nothing, ns."""
    _none_since_ns: int | None = None  # when the last lease ended
    _pulls: Counter[str | None] = field(default_factory=Counter)  # by topic; None: any
    _limited: set[str | None] = field(default_factory=set)  # topics; None: all
    _topics: frozenset[str] | None = None  # those of the group there; None: unknown
    _clocks: dict[str, WaitClock] = field(default_factory=dict)

    def clock(self, topic: str, t_ns: int) -> WaitClock:
        """Return the clock of *topic*; a new one begins at *t_ns*."""
        clock = self._clocks.get(topic)
        if clock is None:
            clock = self._clocks[topic] = WaitClock()
            self._run(topic, clock, t_ns)
        return clock

    def pulls(self, topics: list[str] | None, change: int, t_ns: int) -> None:
        """Note that a pull for *topics* (None: any) began (1) or stopped (-1) to wait."""
        for topic in (None,) if topics is None else topics:
            self._pulls[topic] = max(0, self._pulls[topic] + change)
        self._set(t_ns)

    def consumes(self, topics: Iterable[str], t_ns: int) -> None:
        """Note the topics of the group there: pulls for any topic are for these."""
        self._topics = frozenset(topics)
        self._set(t_ns)

    def restarted(self, t_ns: int) -> None:
        """Reset for a new process, without waiting pulls or limits."""
        self._pulls.clear()
        self._topics = None
        for topic in list(self._limited):
            self.limit(topic, limited=False, t_ns=t_ns)
        self._set(t_ns)

    def leases(self, change: int, t_ns: int) -> None:
        """Add *change* live leases. At the group's maximum no message is due."""
        full = self._full
        if not self.leased:
            self._end_pause(t_ns)
        self.leased += change
        if not self.leased:
            self._none_since_ns = t_ns
        self._fills(full, t_ns)

    def pause_ended(self, t_ns: int) -> None:
        """Note the end of a time in which its clients held nothing."""
        self.paused_ns = t_ns

    def _end_pause(self, t_ns: int) -> None:
        since_ns = self._none_since_ns
        if since_ns is not None and t_ns - since_ns <= _TOUCH_NS:
            return
        if self.paused_ns < 0 or t_ns - self.paused_ns >= _PAUSE_EVERY_NS:
            self.pause_ended(t_ns)
            if self.on_pause is not None:
                self.on_pause(t_ns)

    def limit_leases(self, limit: int | None, t_ns: int) -> None:
        """Set the maximum number of live leases; None: no limit."""
        full = self._full
        self.max_leased = limit
        self._fills(full, t_ns)

    def limit(self, topic: str | None, *, limited: bool, t_ns: int) -> None:
        """Set whether deliveries of *topic* (None: all) are rate-limited. Ready messages may wait
        for the limit, so none is due.
        """
        (self._limited.add if limited else self._limited.discard)(topic)
        if self.on_hold is not None:
            self.on_hold("rate", topic, limited, t_ns)
        self._set(t_ns)

    @property
    def _full(self) -> bool:
        return self.max_leased is not None and self.leased >= self.max_leased

    def _fills(self, before: bool, t_ns: int) -> None:
        if self._full is not before:
            if self.on_hold is not None:
                self.on_hold("leases", None, self._full, t_ns)
            self._set(t_ns)

    def _wanted(self, topic: str) -> bool:
        held = self._full or None in self._limited or topic in self._limited
        any_topic = self._pulls[None] if self._topics is None or topic in self._topics else 0
        return not held and bool(any_topic or self._pulls[topic])

    @property
    def topics(self) -> list[str]:
        """Topics with a clock."""
        return list(self._clocks)

    def _set(self, t_ns: int) -> None:
        for topic, clock in self._clocks.items():
            self._run(topic, clock, t_ns)

    def _run(self, topic: str, clock: WaitClock, t_ns: int) -> None:
        running = self._wanted(topic)
        if self.on_clock is not None and running is not clock.running:
            self.on_clock(topic, running, t_ns)
        clock.run(running, t_ns)


@dataclass(slots=True)
class Sites:
    """All sites, by node and group."""

    _sites: dict[tuple[str, str], Site] = field(default_factory=dict)
    _last: dict[str, int] = field(default_factory=dict)  # last event of each node
    demands: Demands = field(init=False)
    """Waiting pulls at all nodes."""

    def __post_init__(self) -> None:
        self.demands = Demands(self.last_ns)

    def seen(self, node: str, t_ns: int) -> None:
        """Note an event of *node*."""
        self._last[node] = t_ns

    def started(self, node: str, t_ns: int) -> None:
        """Begin a new incarnation of *node*. O(sites)."""
        self.demands.started(node, t_ns)
        for (of, _), site in self._sites.items():
            if of == node:
                site.restarted(t_ns)

    def last_ns(self, node: str) -> int:
        """Return the time of the last event of *node*."""
        return self._last.get(node, 0)

    def of(self, node: str, group: str) -> Site:
        """Return the site of *group* at *node*."""
        site = self._sites.get((node, group))
        if site is None:
            site = self._sites[node, group] = self._new(node, group)
        return site

    def _new(self, node: str, group: str) -> Site:
        return Site(on_hold=partial(self.demands.hold, node, group))
