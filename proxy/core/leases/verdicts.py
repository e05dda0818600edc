"""Verdicts on leases, and the outcomes of jobs that follow from them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from proxy.core.keys.ids import LeaseId


class Outcome(Enum):
    """How a message ended for its group; the values stand in histories."""

    OK = "ok"
    FILTERED = "filtered"
    DEAD_LETTERED = "dlq"
    PARKED = "parked"  # its copy is stored, to be redriven
    SKIPPED = "skipped"  # a person gave it up, on record in the audit topic
    DELETED = "deleted"  # by the broker's retention, before it could be read again


@dataclass(frozen=True, slots=True)
class Nack:
    """A client's verdict "failed" on a lease. ``reject``: no retry, straight to the policy."""

    lease_id: LeaseId
    retry_after_ms: int | None = None  # None: the group's retry intervals
    reject: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True)
class FailedAction:
    """An action failed on a job that was about to be handed out: its hand-out number *attempt*.
    *origin* is where the message itself stands, for a parked copy.
    """

    offset: int
    origin: int
    key: bytes | None
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class Skip:
    """Why a message was skipped: the record in the audit topic. Of a parked copy also where its
    message stands, if that is known.
    """

    audit: str
    key: bytes
    origin: int | None = None


@dataclass(frozen=True, slots=True)
class Filtered:
    """The rule *by* ended a job: ``tags``, ``shadow traffic``, ``action 1``; *origin* as above."""

    by: str
    origin: int
