"""Verdicts on leases, and the resulting outcomes of jobs. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from proxy.core.keys.ids import LeaseId


class Outcome(Enum):
    """How a message finished for its group; the values appear in histories."""

    OK = "ok"
    FILTERED = "filtered"
    DEAD_LETTERED = "dlq"
    PARKED = "parked"  # its copy is stored for a redrive
    SKIPPED = "skipped"  # by a person, recorded in the audit topic
    DELETED = "deleted"  # by the broker's retention, before it could be read again


@dataclass(frozen=True, slots=True)
class Nack:
    """Verdict "failed" on a lease. ``reject``: no retry, apply the group's policy at once."""

    lease_id: LeaseId
    retry_after_ms: int | None = None  # None: the group's retry intervals
    reject: bool = False
    reason: str = ""


def judged_ids(
    acked: Iterable[LeaseId], nacked: Iterable[Nack], released: Iterable[LeaseId]
) -> list[LeaseId]:
    """Return the ids of all leases that have a verdict."""
    return [*acked, *(nack.lease_id for nack in nacked), *released]


@dataclass(frozen=True, slots=True)
class FailedAction:
    """An action failed on a job before its delivery number *attempt*. *origin* is the offset of the
    message itself, for a parked copy.
    """

    offset: int
    origin: int
    key: bytes | None
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class Skip:
    """A skipped message: its record in the audit topic and, for a parked copy, the offset of its
    message if known. ``key`` is None if the message cannot be read.
    """

    audit: str
    key: bytes | None
    origin: int | None = None


@dataclass(frozen=True, slots=True)
class Filtered:
    """A job filtered by the rule *by*: ``tags``, ``shadow traffic``, ``action 1``; *origin* as
    above.
    """

    by: str
    origin: int
