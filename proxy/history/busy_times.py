"""Times in which clients of a proxy held messages of a queue without pulling its topic again.

Their leases keep the queue at its owner (``proxy/core/ownership/group_share.py``): the other keys
of the queue wait, even if another proxy has waiting pulls.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from proxy.history.facts import LaneFacts
from proxy.history.limits import NS

#: Minimum length of a kept time, ns.
_LEAST_NS = 5 * NS


@dataclass(slots=True)
class BusyTimes:
    """BusyTimes times of one queue and group."""

    _facts: LaneFacts
    _since: tuple[int, int] | None = None  # first lease began at; owner's clock then
    _times: list[tuple[int, int, int]] = field(default_factory=list)  # from, until, busy for

    def begin(self, t_ns: int) -> None:
        """Note the first live lease."""
        clock = self._facts.clock
        if clock is not None:
            self._since = t_ns, clock.at(t_ns)

    def end(self, t_ns: int) -> None:
        """Note the end of the last live lease."""
        clock = self._facts.clock
        if clock is None or self._since is None:
            return
        (since_ns, showed_ns), self._since = self._since, None
        busy_ns = t_ns - since_ns - (clock.at(t_ns) - showed_ns)
        if busy_ns >= _LEAST_NS:
            self._times.append((since_ns, t_ns, busy_ns))

    def within(self, begin_ns: int, end_ns: int) -> int:
        """Return the maximum busy time between *begin_ns* and *end_ns*, ns."""
        return sum(
            max(0, min(busy_ns, min(until, end_ns) - max(since, begin_ns)))
            for since, until, busy_ns in self._times
        )
