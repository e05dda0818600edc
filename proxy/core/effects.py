"""What an event of a queue pipeline leads to, in words that shells and histories share. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from broker_core.names import QueueName
from proxy.core.ids import Epoch, LeaseId
from proxy.core.job_chains import Job
from proxy.core.pull_buffer import Lease
from proxy.core.queue_jobs import Refill


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


@dataclass(slots=True)
class Effects:
    """What one event led to; the shell writes histories, counts, and stores the dead letters.

    A job in ``dead_letters`` stays running, its key waiting, until ``dead_lettered`` confirms that
    its copy is stored. The messages of ``refills`` are to be read again, for ``refilled``.
    ``filtered_by`` says which rule ended each that is finished as filtered. ``parked`` jobs are
    finished as well. ``parking``: parked keys may have to be looked after.
    """

    finished: list[tuple[int, Outcome]] = field(default_factory=list)  # offsets
    acked: list[Lease] = field(default_factory=list)
    nacked: list[Lease] = field(default_factory=list)
    released: list[Lease] = field(default_factory=list)
    expired: list[Lease] = field(default_factory=list)
    revoked: list[Lease] = field(default_factory=list)  # by a person
    unsent: list[Lease] = field(default_factory=list)  # expired, and no client ever had them
    fenced: list[int] = field(default_factory=list)  # lease ids (offsets from DDMQ's clients)
    dead_letters: list[Job] = field(default_factory=list)
    refills: list[Refill] = field(default_factory=list)
    skips: dict[int, Skip] = field(default_factory=dict)  # of those that finished so, by offset
    missing_keys: int = 0
    filtered_by: dict[int, Filtered] = field(default_factory=dict)  # by offset
    failed_actions: list[FailedAction] = field(default_factory=list)
    parked: list[Job] = field(default_factory=list)
    stopped: list[bytes] = field(default_factory=list)  # keys whose redrive failed
    parking: bool = False
    keys_changed: bool = False  # another order key begins to hold, or no older message is left


@dataclass(frozen=True, slots=True)
class PipelineStatistics:
    """A moment of a pipeline. Counts are jobs; ``base`` is the committable offset. ``uncopied`` are
    those of parked keys that have no copy yet, ``trouble`` says why if they cannot get one.
    """

    queue: QueueName
    epoch: Epoch
    unfinished: int
    ready: int
    leased: int
    retrying: int
    blocked: int
    keys: int
    spilled: int
    body_bytes: int
    base: int
    committed: int
    position: int
    end: int
    draining: bool
    uncopied: int = 0
    trouble: str = ""
    paused: int = 0
    """Paused keys."""
    paused_whole: bool = False
    """All of the queue is paused, since its group is."""
    near_retention: int = 0
    """Keys, blocked or parked, whose messages the broker is about to delete."""
    records_damaged: bool = False
    """This period began with damaged ownership records."""
    key_version: int = 1
    older: int = 0
    """Unfinished messages that have their order keys by the rule before."""
    key_change: str = ""
    """What a change of the order key waits for, in words."""

    def __str__(self) -> str:
        return (
            f"{self.queue} epoch={self.epoch} ready={self.ready} leased={self.leased}"
            f" blocked={self.blocked} committed={self.committed}"
        )
