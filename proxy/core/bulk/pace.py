"""Rate limit of bulk readers, so that thin clients hardly notice them. Pure.

One token bucket of bytes serves the bulk readers of all groups, with two rates: one that always
applies, and one that also applies while thin clients receive messages. A reader takes tokens before
it reads and settles the difference afterwards. It takes a whole portion once there is any token,
partly on credit, because tiny reads would cost more than they save. Portions are small, so that no
large answer delays those of thin clients.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from proxy.core.group.token_bucket import SECOND, TokenBucket

#: Thin clients count as active for this long after their last messages.
BESIDE_NS = SECOND
#: Duration of a portion at the rate, and its least bytes. The bucket holds one portion.
_PORTION_NS = 50_000_000
_MIN_PORTION_BYTES = 65_536


@dataclass(slots=True)
class BulkPace:
    """Rate limits: ``alone`` and ``beside_clients`` in bytes per second, None for no limit.

    Everywhere, *served_ns* is the time at which a thin client last got messages, None if never.
    """

    alone: int | None
    beside_clients: int | None
    _rate: int | None = field(init=False, default=None)
    _bucket: TokenBucket = field(init=False, default_factory=TokenBucket)

    def wait_ns(self, now_ns: int, *, served_ns: int | None) -> int:
        """Return how long ``take`` will return 0 under current conditions; 0 if it returns more
        now.
        """
        self._fill(now_ns, served_ns)
        if self._rate is None or self._bucket.tokens > 0:
            return 0
        return int(-self._bucket.tokens * SECOND / self._rate) + 1

    def take(self, wanted_bytes: int, now_ns: int, *, served_ns: int | None) -> int:
        """Take tokens to read up to *wanted_bytes*; return the granted bytes, 0 for none now."""
        self._fill(now_ns, served_ns)
        if self._rate is None:
            return wanted_bytes
        if self._bucket.tokens <= 0:
            return 0
        taken = min(wanted_bytes, int(_portion_bytes(self._rate)))
        self._bucket.take(taken)
        return taken

    def settle(self, taken_bytes: int, read_bytes: int) -> None:
        """Correct the tokens after *read_bytes* were read for *taken_bytes*."""
        if self._rate is not None:
            self._bucket.take(read_bytes - taken_bytes)

    def _fill(self, now_ns: int, served_ns: int | None) -> None:
        beside = served_ns is not None and now_ns - served_ns < BESIDE_NS
        rates = (self.alone, self.beside_clients if beside else None)
        rate = min((each for each in rates if each is not None), default=None)
        if rate is not None and rate != self._rate:
            portion = _portion_bytes(rate)
            self._bucket.change(rate=rate, capacity=portion, now_ns=now_ns)
            if self._rate is None:  # earlier reads without a limit are no debt
                self._bucket.fill_up()
        elif rate is not None:
            self._bucket.fill(now_ns)
        self._rate = rate


def _portion_bytes(rate: int) -> float:
    return max(_MIN_PORTION_BYTES, rate * _PORTION_NS / SECOND)
