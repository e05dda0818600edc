"""C3: messages finished without a gap are committed within ``commit_s``."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from proxy.history.facts import LaneFacts
from proxy.history.limits import NS, ns

_SAMPLE_NS = 250_000_000


class Freshness:
    """Offset up to which a queue's messages have finished without a gap, over time. O(1) per
    finish.

    *settled* returns whether the current owner need not finish an offset any more. An offset that
    never comes, because the broker filtered it, stops the count; later ones are then not judged.
    """

    def __init__(self, facts: LaneFacts, settled: Callable[[int], bool]) -> None:
        self._facts = facts
        self._settled = settled
        self._point = 0
        self._reached: deque[tuple[int, int]] = deque()  # time, offset

    def new_period(self) -> None:
        """Begin an ownership period with the facts known to the owner."""
        self._point = max(self._facts.committed, self._facts.begin)
        self._reached.clear()

    def finished(self, t_ns: int) -> None:
        """Record a finish."""
        before = self._point
        while self._settled(self._point):
            self._point += 1
        newest_ns = self._reached[-1][0] if self._reached else -_SAMPLE_NS
        if self._point > before and t_ns - newest_ns >= _SAMPLE_NS:
            self._reached.append((t_ns, self._point))
        self.judge(t_ns)

    def committed(self, t_ns: int) -> None:
        """Record a change of the committed offset."""
        self.judge(t_ns)
        committed = self._facts.committed
        self._point = max(self._point, committed)
        while self._reached and self._reached[0][1] <= committed:
            self._reached.popleft()

    def judge(self, t_ns: int) -> None:
        """Report finishes that have not been committed in time."""
        if not self._facts.rules.known or self._facts.deleted:
            return
        limit_ns = ns(self._facts.limits.commit_s)
        while self._reached and t_ns - self._reached[0][0] > limit_ns:
            since_ns, point = self._reached.popleft()
            if self._facts.committed < point and self._facts.faults.none_since(since_ns):
                self._facts.violation(
                    "C3",
                    f"all below offset {point} had finished, and {(t_ns - since_ns) / NS:.0f} s"
                    f" later {self._facts.committed} was committed",
                )
