"""Short batches for clients that cannot extend leases, once their leases have expired. Pure.

DDMQ's clients handle the messages of an answer one after the other, and send all verdicts with the
next pull. If that takes longer than the lease, the whole batch expires. A batch of the same size
would expire again and again, and later messages would never have a turn. So batches are halved,
down to one message, and doubled again after a time without expiry.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from proxy.core.leases.lease_book import Lease

#: Time without expiry before batches are doubled, in visibility timeouts.
_PATIENCE = 10
#: Each batch that expires makes that time twice as long, up to this many times.
_MOST_PATIENT = 64


@dataclass(slots=True)
class ShortBatches:
    """Limit of the batches of one topic of a group for clients that cannot extend; there is none
    until one of their batches expires. All times are ns.
    """

    _most: int | None = None
    _full: int = 0  # messages in the batch that expired first
    _since_ns: int = 0  # last change; what was handed out before says nothing about the limit
    _times: int = 1

    def most(self, *, visibility_ns: int, now_ns: int) -> int | None:
        """Return the highest number of messages in the next batch; None without a limit."""
        most, patience_ns = self._most, _PATIENCE * self._times * visibility_ns
        if most is not None and now_ns - self._since_ns >= patience_ns:
            self._most, self._since_ns = 2 * most, now_ns
            if self._most >= self._full:
                self._most, self._times = None, 1
        return self._most

    def expired(self, leases: Iterable[Lease], *, now_ns: int) -> None:
        """Note *leases* that expired although their clients are connected."""
        sizes = Counter(
            (lease.holder.connection, lease.granted_ns)
            for lease in leases
            if not lease.holder.extends and lease.granted_ns >= self._since_ns
        )
        if (size := max(sizes.values(), default=0)) <= 1:
            return  # a message that was alone was not held up by others
        if self._most is None:
            self._full = size
        else:
            self._times = min(2 * self._times, _MOST_PATIENT)
        self._most, self._since_ns = size // 2, now_ns
