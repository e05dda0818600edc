"""Rate limit of bulk readers, so that thin clients hardly notice them. Pure.

One token bucket of bytes serves the bulk readers of all groups, with two rates: one that always
applies, and one that also applies while thin clients receive messages, and may adapt
(``share.py``). A reader takes tokens before
it reads and settles the difference afterwards. It takes a whole portion once there is any token,
partly on credit, because tiny reads would cost more than they save. Portions are small, so that no
large answer delays those of thin clients.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from proxy.core.bulk.share import AdaptiveShare
from proxy.core.group.token_bucket import SECOND, TokenBucket

#: Thin clients count as active for this long after their last messages.
BESIDE_NS = SECOND
#: Duration of a portion at the rate, and its least bytes. The bucket holds one portion.
_PORTION_NS = 50_000_000
_MIN_PORTION_BYTES = 65_536
#: Largest portion beside thin clients: larger answers would delay theirs.
_MAX_PORTION_BESIDE_BYTES = 1_048_576


@dataclass(slots=True)
class BulkPace:
    """Rate limits: ``alone`` and ``beside_clients`` in bytes per second, None for no limit.

    *bound_ns*: ``beside_clients`` is the least rate, and more is allowed while the event loop's
    delays stay below this bound; 0: it is the limit. Everywhere, *served_ns* is the time at which
    a thin client last got messages, None if never.
    """

    alone: int | None
    beside_clients: int | None
    bound_ns: int = 0
    _rate: float | None = field(init=False, default=None)
    _portion_bytes: float = field(init=False, default=0.0)
    _bucket: TokenBucket = field(init=False, default_factory=TokenBucket)
    _share: AdaptiveShare | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if self.beside_clients is not None and self.bound_ns:
            self._share = AdaptiveShare(self.beside_clients, self.bound_ns)

    @property
    def adapts(self) -> bool:
        """Whether it needs the delays of the event loop."""
        return self._share is not None

    def delayed(self, delay_ns: int, now_ns: int) -> None:
        """Note how late the event loop is while bulk readers read beside thin clients."""
        if self._share is not None:
            self._share.delayed(delay_ns, now_ns)

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
        taken = min(wanted_bytes, int(self._portion_bytes))
        self._bucket.take(taken)
        return taken

    def settle(self, taken_bytes: int, read_bytes: int) -> None:
        """Correct the tokens after *read_bytes* were read for *taken_bytes*."""
        if self._share is not None:
            self._share.read(read_bytes)
        if self._rate is not None:
            self._bucket.take(read_bytes - taken_bytes)

    def _fill(self, now_ns: int, served_ns: int | None) -> None:
        beside = served_ns is not None and now_ns - served_ns < BESIDE_NS
        rates = (self.alone, self._rate_beside() if beside else None)
        rate = min((each for each in rates if each is not None), default=None)
        if rate is not None and rate != self._rate:
            portion = max(_MIN_PORTION_BYTES, rate * _PORTION_NS / SECOND)
            if beside and self._share is not None:
                portion = min(portion, _MAX_PORTION_BESIDE_BYTES)
            self._portion_bytes = portion
            self._bucket.change(rate=rate, capacity=portion, now_ns=now_ns)
            if self._rate is None:  # earlier reads without a limit are no debt
                self._bucket.fill_up()
        elif rate is not None:
            self._bucket.fill(now_ns)
        self._rate = rate

    def _rate_beside(self) -> float | None:
        return self.beside_clients if self._share is None else self._share.rate
