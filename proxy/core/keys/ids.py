"""Names of leases and ownership periods, and the text form of a queue that clients see. Pure."""

from __future__ import annotations

from typing import NewType

LeaseId = NewType("LeaseId", int)
Epoch = NewType("Epoch", int)

#: Suffixes repeat, because DDMQ's Java client keeps an entry per qid for ever.
PERIODS = 64


def qid_text(place: str, period: int) -> str:
    """``broker-a_3#k``: the queue and its ownership *period* modulo 64, opaque to clients."""
    return f"{place}#{period % PERIODS}"
