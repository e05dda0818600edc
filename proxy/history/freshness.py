"""C3: what is finished without a gap is committed soon."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from proxy.history.facts import LaneFacts
from proxy.history.limits import NS, ns

_SAMPLE_NS = 250_000_000


class Freshness:
    """How far a queue's messages are finished without a gap, and since when. O(1) a finish.

    *settled* says of an offset that the present owner need not finish it any more. An offset that
    never comes (the broker filtered it out) stops the count: less is asked for then.
    """

    def __init__(self, facts: LaneFacts, settled: Callable[[int], bool]) -> None:
        self._facts = facts
        self._settled = settled
        self._point = 0
        self._reached: deque[tuple[int, int]] = deque()  # when, how far

    def new_period(self) -> None:
        """Another owner: it begins with what it knows."""
        self._point = max(self._facts.committed, self._facts.begin)
        self._reached.clear()

    def finished(self, t_ns: int) -> None:
        """A message finished."""
        before = self._point
        while self._settled(self._point):
            self._point += 1
        newest_ns = self._reached[-1][0] if self._reached else -_SAMPLE_NS
        if self._point > before and t_ns - newest_ns >= _SAMPLE_NS:
            self._reached.append((t_ns, self._point))
        self.judge(t_ns)

    def committed(self, t_ns: int) -> None:
        """The committed offset changed."""
        self.judge(t_ns)
        committed = self._facts.committed
        self._point = max(self._point, committed)
        while self._reached and self._reached[0][1] <= committed:
            self._reached.popleft()

    def judge(self, t_ns: int) -> None:
        """Is anything not committed that was finished long ago?"""
        if not self._facts.rules.known or self._facts.deleted:
            return
        limit_ns = ns(self._facts.limits.commit_s)
        while self._reached and t_ns - self._reached[0][0] > limit_ns:
            since_ns, point = self._reached.popleft()
            if self._facts.committed < point and self._facts.calm.during(since_ns):
                self._facts.violation(
                    "C3",
                    f"all below offset {point} had finished, and {(t_ns - since_ns) / NS:.0f} s"
                    f" later {self._facts.committed} was committed",
                )
