"""How long a new owner delays its first delivery because of leases of earlier owners. Pure.

``LastOwner.wait_ns`` covers one owner with complete records; this module covers the other cases.
"""

from __future__ import annotations

from proxy.core.records.record import Own
from proxy.core.records.replay import LastOwner


def wait_ns(own: Own, last: LastOwner | None, *, end: int, broker_lock_expiry_s: float) -> int:
    """Return how long leases of *last*, the owner before *own*, may live after it lost its lock.

    *end* is the number of records. Records without *last* mean that retention deleted them.
    """
    if last is None:
        return longest_ns(own) if end else 0
    wait = last.wait_ns(
        broker_start_ms=own.broker_start_ms, broker_lock_expiry_s=broker_lock_expiry_s
    )
    if last.damage is not None:
        wait = max(wait, longest_ns(own))  # the last owner may have been a different one
    return wait


def longest_ns(own: Own) -> int:
    """Return how long leases as long as ours may live under a lock that is still trusted."""
    return (own.trust_ms + own.longest_lease_ms) * 1_000_000
