"""Times in which clients of a proxy held messages of a queue without pulling its topic again.

Their leases keep the queue at its owner (``proxy/core/ownership/group_share.py``): the other keys
of the queue wait, even if another proxy has waiting pulls. A client with a single place that takes
the next message in the same moment is busy all the time, not once for each message, even if other
queues have their turns in between.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from proxy.history.facts import LaneFacts
from proxy.history.limits import NS
from proxy.history.sites import WaitClock

#: Minimum length of a kept time, ns.
_LEAST_NS = 5 * NS
#: Maximum time between two leases of one busy time, for the turns of other queues, ns.
_TURN_NS = 30 * NS


@dataclass(slots=True)
class BusyTimes:
    """Busy times of one queue and group."""

    _facts: LaneFacts
    _since: tuple[int, int] | None = None  # first lease began at; owner's clock then
    _last: tuple[WaitClock, int, int, int] | None = None  # clock; began at, clock then; ended at
    _times: list[tuple[int, int, int]] = field(default_factory=list)  # from, until, busy for

    def begin(self, t_ns: int) -> None:
        """Note the first live lease."""
        clock = self._facts.clock
        self._since = None if clock is None else (t_ns, clock.at(t_ns))

    def end(self, t_ns: int) -> None:
        """Note the end of the last live lease."""
        clock = self._facts.clock
        if clock is None or self._since is None:
            return
        since_ns, showed_ns = self._going_on(clock, self._since[0]) or self._since
        self._since = None
        self._last = clock, since_ns, showed_ns, t_ns
        busy_ns = t_ns - since_ns - (clock.at(t_ns) - showed_ns)
        if busy_ns >= _LEAST_NS:
            self._times.append((since_ns, t_ns, busy_ns))

    def _going_on(self, clock: WaitClock, t_ns: int) -> tuple[int, int] | None:
        """Return the start of the last busy time, and take it back, if the lease that began at
        *t_ns* and ends now continues it.
        """
        site = self._facts.site
        if self._last is None or site is None:
            return None
        same_clock, since_ns, showed_ns, until_ns = self._last
        if same_clock is not clock or not 0 <= t_ns - until_ns <= _TURN_NS:
            return None
        if site.paused_ns > until_ns:
            return None
        if self._times and self._times[-1][0] == since_ns:
            del self._times[-1]
        return since_ns, showed_ns

    def within(self, begin_ns: int, end_ns: int) -> int:
        """Return the maximum busy time between *begin_ns* and *end_ns*, ns."""
        return sum(
            max(0, min(busy_ns, min(until, end_ns) - max(since, begin_ns)))
            for since, until, busy_ns in self._times
        )
