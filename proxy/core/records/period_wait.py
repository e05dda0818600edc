"""How long a new owner of a queue holds its first hand-out back, for leases of owners before. Pure.

``LastOwner.wait_ns`` says it of one owner whose records are whole; here are the other cases.
"""

from __future__ import annotations

from proxy.core.records.record import Own
from proxy.core.records.replay import LastOwner


def wait_ns(own: Own, last: LastOwner | None, *, end: int, broker_lock_expiry_s: float) -> int:
    """How long leases of the owner before *own*, *last*, may live; counted from now.

    *end*: how many records there were. Without *last* but with records, retention deleted them.
    """
    if last is None:
        return longest_ns(own) if end else 0
    wait = last.wait_ns(
        broker_start_ms=own.broker_start_ms, broker_lock_expiry_s=broker_lock_expiry_s
    )
    if last.damage is not None:
        wait = max(wait, longest_ns(own))  # the last owner may have been another one
    return wait


def longest_ns(own: Own) -> int:
    """How long leases may live under a lock that is trusted still, if they are as long as ours."""
    return (own.trust_ms + own.longest_lease_ms) * 1_000_000
