"""How fast a receiver is sent requests: its rate, and what it asks for itself. Pure.

A token bucket, so that no window of time has more requests than ``max_rate`` x its length, and a
tenth of a second's worth beside. A receiver that asks for fewer gets a tenth of the rate for
``SLOW_NS``, of the rate measured where there is no limit. One that asks to be left alone is.
"""

from __future__ import annotations

from dataclasses import dataclass, field

SECOND = 1_000_000_000
#: For so long after a receiver asked for fewer requests it gets a tenth, as with DDMQ.
SLOW_NS = 10 * SECOND
_SLOWER_BY = 10
#: Requests a second, while slowed down: never fewer, or nobody would hear that it is over.
_LEAST_RATE = 1.0
_BURST_S = 0.1
_EXACT = 1e-6  # of a token: what sums of floats may be off


@dataclass(slots=True)
class PushPace:
    """One push action of one proxy. ``max_rate``: requests a second, None for no limit."""

    max_rate: float | None = None
    _held_until_ns: int = 0
    _slow_until_ns: int = 0
    _slow_rate: float = field(default=_LEAST_RATE)
    _rate: float | None = None
    _tokens: float = 0.0
    _filled_ns: int = 0
    _second: int = 0  # that _begun counts
    _begun: int = 0
    _begun_before: int = 0

    def take(self, wanted: int, now_ns: int) -> int:
        """How many of *wanted* requests may begin now; so many are counted as begun."""
        self._fill(now_ns)
        taken = 0 if now_ns < self._held_until_ns else wanted
        if self._rate is not None:
            taken = min(taken, int(self._tokens + _EXACT))
            self._tokens -= taken
        self._begun += taken
        return taken

    def give_back(self, unused: int) -> None:
        """So many of those taken were not begun."""
        self._begun = max(0, self._begun - unused)
        if self._rate is not None:
            self._tokens = min(self._tokens + unused, _burst(self._rate))

    def wait_ns(self, now_ns: int) -> int:
        """How long ``take`` will give nothing, as things stand; 0 if it gives something now."""
        self._fill(now_ns)
        wait_ns = max(0, self._held_until_ns - now_ns)
        if self._rate is None or self._tokens + _EXACT >= 1:
            return wait_ns
        for_token = int((1 - self._tokens) * SECOND / self._rate) + 1
        if self._slow_until_ns > now_ns:
            for_token = min(for_token, self._slow_until_ns - now_ns)
        return max(wait_ns, for_token)

    def slower(self, now_ns: int) -> None:
        """The receiver asked for fewer requests."""
        if now_ns >= self._slow_until_ns:  # else it is slow already: a tenth of what it was before
            rate = self._recent_rate(now_ns) if self.max_rate is None else self.max_rate
            self._slow_rate = max(rate / _SLOWER_BY, _LEAST_RATE)
            if self.max_rate is not None:
                self._slow_rate = min(self._slow_rate, self.max_rate)
        self._slow_until_ns = now_ns + SLOW_NS

    def hold(self, ms: int, now_ns: int) -> None:
        """The receiver asked for no requests at all for so long."""
        self._held_until_ns = max(self._held_until_ns, now_ns + ms * 1_000_000)

    def is_slow(self, now_ns: int) -> bool:
        """True while it gets fewer requests, or none, by its own wish."""
        return now_ns < max(self._slow_until_ns, self._held_until_ns)

    def _fill(self, now_ns: int) -> None:
        self._count(now_ns)
        slow = now_ns < self._slow_until_ns
        rate = self._slow_rate if slow else self.max_rate
        if rate is not None and self._rate is not None:
            grown = self._tokens + self._rate * (now_ns - self._filled_ns) / SECOND
            self._tokens = min(grown, _burst(rate))
        elif rate is not None:  # what went without a limit is no debt, and no credit when slowed
            self._tokens = 0.0 if slow else _burst(rate)
        self._rate, self._filled_ns = rate, now_ns

    def _count(self, now_ns: int) -> None:
        second = now_ns // SECOND
        if second != self._second:
            self._begun_before = self._begun if second == self._second + 1 else 0
            self._second, self._begun = second, 0

    def _recent_rate(self, now_ns: int) -> float:
        """Requests begun in about the last second."""
        self._count(now_ns)
        return self._begun + self._begun_before * (1 - (now_ns % SECOND) / SECOND)


def _burst(rate: float) -> float:
    return max(1.0, rate * _BURST_S)
