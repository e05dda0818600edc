"""What an event of a queue pipeline leads to, in words that shells and histories share. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from broker_core.names import QueueName
from proxy.core.ids import Epoch, LeaseId
from proxy.core.job_chains import Job
from proxy.core.pull_buffer import Lease


class Outcome(Enum):
    """How a message ended for its group; the values stand in histories."""

    OK = "ok"
    FILTERED = "filtered"
    DEAD_LETTERED = "dlq"


@dataclass(frozen=True, slots=True)
class Nack:
    """A client's verdict "failed" on a lease. ``reject``: no retry, straight to the policy."""

    lease_id: LeaseId
    retry_after_ms: int | None = None  # None: the group's retry intervals
    reject: bool = False
    reason: str = ""


@dataclass(slots=True)
class Effects:
    """What one event led to; the shell writes histories, counts, and stores the dead letters.

    A job in ``dead_letters`` stays running, its key waiting, until ``dead_lettered`` confirms that
    its copy is stored.
    """

    finished: list[tuple[int, Outcome]] = field(default_factory=list)  # offsets
    acked: list[Lease] = field(default_factory=list)
    nacked: list[Lease] = field(default_factory=list)
    released: list[Lease] = field(default_factory=list)
    expired: list[Lease] = field(default_factory=list)
    fenced: list[int] = field(default_factory=list)  # lease ids (offsets from DDMQ's clients)
    dead_letters: list[Job] = field(default_factory=list)
    missing_keys: int = 0


@dataclass(frozen=True, slots=True)
class PipelineStatistics:
    """A moment of a pipeline. Counts are jobs; ``base`` is the committable offset."""

    queue: QueueName
    epoch: Epoch
    unfinished: int
    ready: int
    leased: int
    retrying: int
    blocked: int
    keys: int
    body_bytes: int
    base: int
    committed: int
    position: int
    end: int
    draining: bool
