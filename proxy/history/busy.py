"""When clients of a proxy held messages of a queue and asked for no more of its topic.

Their leases keep the queue where it is (``proxy/core/ownership/group_share.py``): its other keys
wait for them, and no pull elsewhere changes that.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from proxy.history.facts import LaneFacts
from proxy.history.limits import NS

#: Shorter times are not kept, ns.
_LEAST_NS = 5 * NS


@dataclass(slots=True)
class Busy:
    """Of one queue and group."""

    _facts: LaneFacts
    _since: tuple[int, int] | None = None  # since when messages are held; the owner's clock then
    _times: list[tuple[int, int, int]] = field(default_factory=list)  # from, until, busy for

    def begin(self, t_ns: int) -> None:
        """A first message is leased."""
        clock = self._facts.clock
        if clock is not None:
            self._since = t_ns, clock.at(t_ns)

    def end(self, t_ns: int) -> None:
        """The last lease has ended."""
        clock = self._facts.clock
        if clock is None or self._since is None:
            return
        (since_ns, showed_ns), self._since = self._since, None
        busy_ns = t_ns - since_ns - (clock.at(t_ns) - showed_ns)
        if busy_ns >= _LEAST_NS:
            self._times.append((since_ns, t_ns, busy_ns))

    def within(self, begin_ns: int, end_ns: int) -> int:
        """How much of that time it was so, at most, ns."""
        return sum(
            max(0, min(busy_ns, min(until, end_ns) - max(since, begin_ns)))
            for since, until, busy_ns in self._times
        )
