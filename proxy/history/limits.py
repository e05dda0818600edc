"""Parameters of the timed invariants."""

from __future__ import annotations

from dataclasses import dataclass

NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Limits:
    """Time limits in seconds. The defaults suit slow and busy machines."""

    commit_s: float = 30.0
    """C3: until a commit covers messages finished without a gap. Must exceed ``commit_every_s``."""
    delivery_s: float = 20.0
    """N3: until a ready message is delivered while a pull waits."""
    successor_s: float = 10.0
    """N4: the same for the next message of a key after the previous one finished."""
    demand_s: float = 120.0
    """N5, N6: until a ready message reaches a waiting pull for its topic, at any proxy. Must exceed
    the sum of share, hand-over and lease times in the group's settings."""
    isolation_s: float = 10.0
    """N1: until a ready message is delivered while another key of its queue is stuck that long."""
    retry_s: float = 10.0
    """R1: until a failed message is delivered again after its retry is due, while a pull waits."""
    lease_s: float = 10.0
    """X1: how long a lease may outlive its deadline."""
    durable_s: float = 10.0
    """D4: until a finish is recorded. Must exceed ``ownership.record_every_s``."""
    early_s: float = 0.25
    """R1, R2: tolerance for events that seem early because they are written after their cause."""
    take_over_s: float = 0.5
    """N7: tolerance for the answer to an owner's first record. Only then does the owner know of a
    record just before its own, and it waits from then on."""
    settle_s: float = 20.0
    """Time after a fault in which no timed invariant is judged."""


def ns(seconds: float) -> int:
    """Return *seconds* in nanoseconds."""
    return int(seconds * NS)
