"""Names of leases and ownership periods, and the text form of a queue that clients see. Pure."""

from __future__ import annotations

from typing import NewType

from broker_core.names import QueueName, Topic, parse_qid

LeaseId = NewType("LeaseId", int)
ConnectionId = NewType("ConnectionId", int)
Epoch = NewType("Epoch", int)

#: Suffixes repeat, because DDMQ's Java client keeps an entry per qid for ever.
PERIODS = 64
_SUFFIXES = {str(period): period for period in range(PERIODS)}  # one text form each


def qid_text(place: str, period: int) -> str:
    """``broker-a_3#k``: the queue and its ownership *period* modulo 64, opaque to clients."""
    return f"{place}#{period % PERIODS}"


def parse_qid_text(topic: str, text: str) -> tuple[QueueName, int]:
    """Queue and suffix of ``broker-a_3#k``; raises ValueError on anything else."""
    qid, _, suffix = text.rpartition("#")
    if suffix not in _SUFFIXES:
        raise ValueError(f"qid {text!r} has no ownership suffix '#0' to '#{PERIODS - 1}'")
    return parse_qid(Topic(topic), qid), _SUFFIXES[suffix]
