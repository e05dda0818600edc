"""How long what must happen soon may take: the parameters of the timed invariants."""

from __future__ import annotations

from dataclasses import dataclass

NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Limits:
    """All in seconds. The defaults are for machines that are slow, and busy with other things."""

    commit_s: float = 30.0
    """C3: until a commit covers what is finished without a gap. Above ``commit_every_s``."""
    delivery_s: float = 20.0
    """N3: until a message that nothing holds up is handed out, while a pull waits."""
    successor_s: float = 10.0
    """N4: the same for the next message of a key whose head has finished."""
    demand_s: float = 120.0
    """N5, N6: until a ready message reaches a pull for its topic, at whichever proxy. Above share +
    hand-over + lease of the group's settings."""
    isolation_s: float = 10.0
    """N1: the same for any message while another key of its queue is stuck for so long."""
    retry_s: float = 10.0
    """R1: until a failed message is handed out again once its retry is due, while a pull waits."""
    lease_s: float = 10.0
    """X1: how long a lease may outlive its deadline."""
    durable_s: float = 10.0
    """D4: until a finish is written down. Above ``ownership.record_every_s``."""
    early_s: float = 0.25
    """R1, R2: how much too early an event may seem to be, for it is written after its cause.
    N7: how much too long a take-over may seem to wait."""
    settle_s: float = 20.0
    """How long after a fault nothing timed is judged."""


def ns(seconds: float) -> int:
    """*seconds* as nanoseconds."""
    return int(seconds * NS)
