"""Rate of requests to a receiver: the configured limit, and limits that it requests. Pure.

A token bucket ensures that any window of time has at most ``max_rate`` x its length requests, plus
a tenth of a second's worth. A receiver that asks for fewer requests gets a tenth of the rate (of
the measured rate without a limit) for ``SLOW_NS``. One that asks for a pause gets no requests.
"""

from __future__ import annotations

from dataclasses import dataclass, field

SECOND = 1_000_000_000
#: How long a receiver gets a tenth of the rate after it asked for fewer requests, as in DDMQ.
SLOW_NS = 10 * SECOND
_SLOWER_BY = 10
#: Lowest requests per second while slowed down, so that the end of the slow-down is noticed.
_LEAST_RATE = 1.0
_BURST_S = 0.1
_EXACT = 1e-6  # of a token: tolerance for floating-point sums
#: After this time ``wait_ns`` has to be asked again: rates may be as low as a float.
_LONGEST_NS = 86_400 * SECOND


@dataclass(slots=True)
class PushPace:
    """One push action of one proxy. ``max_rate``: requests per second, None for no limit."""

    max_rate: float | None = None
    _held_until_ns: int = 0
    _slow_until_ns: int = 0
    _slow_rate: float = field(default=_LEAST_RATE)
    _rate: float | None = None
    _tokens: float = 0.0
    _filled_ns: int = 0
    _second: int = 0  # counted by ``_begun``
    _begun: int = 0
    _begun_before: int = 0

    def take(self, wanted: int, now_ns: int) -> int:
        """Return how many of *wanted* requests may begin now, and count them as begun."""
        self._fill(now_ns)
        taken = 0 if now_ns < self._held_until_ns else wanted
        if self._rate is not None:
            taken = min(taken, int(self._tokens + _EXACT))
            self._tokens -= taken
        self._begun += taken
        return taken

    def give_back(self, unused: int) -> None:
        """Return *unused* requests that were taken but not begun."""
        self._begun = max(0, self._begun - unused)
        if self._rate is not None:
            self._tokens = min(self._tokens + unused, _burst(self._rate))

    def wait_ns(self, now_ns: int) -> int:
        """Return how long ``take`` will return 0 under current conditions, at most a day; 0 if it
        returns more now.
        """
        self._fill(now_ns)
        wait_ns = max(0, self._held_until_ns - now_ns)
        if self._rate is None or self._tokens + _EXACT >= 1:
            return wait_ns
        for_token = int(min((1 - self._tokens) * SECOND / self._rate, _LONGEST_NS)) + 1
        if self._slow_until_ns > now_ns:
            for_token = min(for_token, self._slow_until_ns - now_ns)
        return max(wait_ns, for_token)

    def slower(self, now_ns: int) -> None:
        """Slow down, because the receiver asked for fewer requests."""
        if now_ns >= self._slow_until_ns:  # otherwise it is slow already: keep that rate
            rate = self._recent_rate(now_ns) if self.max_rate is None else self.max_rate
            self._slow_rate = max(rate / _SLOWER_BY, _LEAST_RATE)
            if self.max_rate is not None:
                self._slow_rate = min(self._slow_rate, self.max_rate)
        self._slow_until_ns = now_ns + SLOW_NS

    def hold(self, ms: int, now_ns: int) -> None:
        """Pause all requests for *ms*, because the receiver asked for it."""
        self._held_until_ns = max(self._held_until_ns, now_ns + ms * 1_000_000)

    def is_slow(self, now_ns: int) -> bool:
        """Return True while requests are slowed down or paused at the receiver's request."""
        return now_ns < max(self._slow_until_ns, self._held_until_ns)

    def _fill(self, now_ns: int) -> None:
        self._count(now_ns)
        slow = now_ns < self._slow_until_ns
        rate = self._slow_rate if slow else self.max_rate
        if rate is not None and self._rate is not None:
            grown = self._tokens + self._rate * (now_ns - self._filled_ns) / SECOND
            self._tokens = min(grown, _burst(rate))
        elif rate is not None:  # requests without a limit are no debt, and no credit when slowed
            self._tokens = 0.0 if slow else _burst(rate)
        self._rate, self._filled_ns = rate, now_ns

    def _count(self, now_ns: int) -> None:
        second = now_ns // SECOND
        if second != self._second:
            self._begun_before = self._begun if second == self._second + 1 else 0
            self._second, self._begun = second, 0

    def _recent_rate(self, now_ns: int) -> float:
        """Return the number of requests begun in about the last second."""
        self._count(now_ns)
        return self._begun + self._begun_before * (1 - (now_ns % SECOND) / SECOND)


def _burst(rate: float) -> float:
    return max(1.0, rate * _BURST_S)
