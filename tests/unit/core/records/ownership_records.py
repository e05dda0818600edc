"""Ownership records with defaults for irrelevant fields."""

from __future__ import annotations

from proxy.core.ownership.recording import Recording
from proxy.core.records.record import (
    Own,
    Record,
    Snapshot,
)
from proxy.core.records.snapshot_parts import parts

SECOND = 1_000_000_000


def own(
    *, trust_s: float = 5, longest_lease_s: float = 5, broker_start_ms: int = 1, period: int = 1
) -> Own:
    return Own("client", int(trust_s * 1000), int(longest_lease_s * 1000), broker_start_ms, period)


def whole(snapshot: Snapshot) -> Record:
    (part,) = parts(snapshot)
    return part


def write(records: Recording, at: int, *, now_ns: int = 1) -> list[Record]:
    """Record everything that is due, at offset *at*."""
    due = records.due(now_ns)
    if due:
        records.written(due, at=at)
    return due
