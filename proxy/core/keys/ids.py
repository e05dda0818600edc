"""Identifiers of leases and ownership periods, and the queue id that clients see. Pure."""

from __future__ import annotations

from typing import NewType

LeaseId = NewType("LeaseId", int)
Epoch = NewType("Epoch", int)

#: Period suffixes repeat because DDMQ's Java client never removes its entry for a qid.
PERIODS = 64


def qid_text(place: str, period: int) -> str:
    """Return ``broker-a_3#k``: queue and ownership *period* modulo 64, opaque to clients."""
    return f"{place}#{period % PERIODS}"
