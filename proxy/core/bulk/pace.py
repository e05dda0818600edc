"""How fast bulk readers may read, so that thin clients hardly notice them. Pure.

One token bucket of bytes for the bulk readers of all groups, with two rates: one that always holds,
and one that holds as well while thin clients are being served. A reader takes tokens before it
reads, and settles up afterwards. It takes a whole portion once there is any token at all, partly
on credit: tiny reads would cost more than they spare. Portions are small, so that no large answer
comes between two of thin clients.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from proxy.core.group.token_bucket import SECOND, TokenBucket

#: Thin clients are being served if one got messages so short a time ago.
BESIDE_NS = SECOND
#: A portion, as a time at the rate, and at least in bytes. The bucket holds one.
_PORTION_NS = 50_000_000
_MIN_PORTION_BYTES = 65_536


@dataclass(slots=True)
class BulkPace:
    """``alone`` and ``beside_clients`` are bytes a second, None for no limit.

    *served_ns* is always when a thin client last got messages, None if none ever did.
    """

    alone: int | None
    beside_clients: int | None
    _rate: int | None = field(init=False, default=None)
    _bucket: TokenBucket = field(init=False, default_factory=TokenBucket)

    def wait_ns(self, now_ns: int, *, served_ns: int | None) -> int:
        """How long ``take`` will give nothing, as things stand; 0 if it gives something now."""
        self._fill(now_ns, served_ns)
        if self._rate is None or self._bucket.tokens > 0:
            return 0
        return int(-self._bucket.tokens * SECOND / self._rate) + 1

    def take(self, wanted_bytes: int, now_ns: int, *, served_ns: int | None) -> int:
        """Take tokens to read up to *wanted_bytes*; returns for how many, 0 for none now."""
        self._fill(now_ns, served_ns)
        if self._rate is None:
            return wanted_bytes
        if self._bucket.tokens <= 0:
            return 0
        taken = min(wanted_bytes, int(_portion_bytes(self._rate)))
        self._bucket.take(taken)
        return taken

    def settle(self, taken_bytes: int, read_bytes: int) -> None:
        """What was taken for *taken_bytes* was used to read *read_bytes*: fewer, or more."""
        if self._rate is not None:
            self._bucket.take(read_bytes - taken_bytes)

    def _fill(self, now_ns: int, served_ns: int | None) -> None:
        beside = served_ns is not None and now_ns - served_ns < BESIDE_NS
        rates = (self.alone, self.beside_clients if beside else None)
        rate = min((each for each in rates if each is not None), default=None)
        if rate is not None and rate != self._rate:
            portion = _portion_bytes(rate)
            self._bucket.change(rate=rate, capacity=portion, now_ns=now_ns)
            if self._rate is None:  # what was read without a limit is no debt
                self._bucket.fill_up()
        elif rate is not None:
            self._bucket.fill(now_ns)
        self._rate = rate


def _portion_bytes(rate: int) -> float:
    return max(_MIN_PORTION_BYTES, rate * _PORTION_NS / SECOND)
