"""What passes between the lane of a group and those who work with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeVar

from proxy.core.jobs.chains import Job
from proxy.core.jobs.refills import Refill
from proxy.core.keys.ids import LeaseId
from proxy.core.leases.verdicts import Nack
from proxy.core.pipeline.queue_pipeline import QueuePipeline

Lane = TypeVar("Lane", contravariant=True)


class Verdicts(NamedTuple):
    """What a client says of one queue's leases. ``success`` and ``failed`` are offsets (DDMQ)."""

    topic: str
    qid: str
    acked: Sequence[LeaseId] = ()
    nacked: Sequence[Nack] = ()
    released: Sequence[LeaseId] = ()
    success: Sequence[int] = ()
    failed: Sequence[int] = ()

    @property
    def named(self) -> list[int]:
        """All lease ids and offsets in it."""
        nacked = (nack.lease_id for nack in self.nacked)
        return [*self.acked, *nacked, *self.released, *self.success, *self.failed]


class LaneListener(Protocol[Lane]):
    """Receives events of a lane: upstream for dead letters and room, downstream for ready jobs."""

    def on_ready(self, lane: Lane) -> None:
        """Jobs may have become ready."""

    def on_dead_letter(self, lane: Lane, pipeline: QueuePipeline, job: Job) -> None:
        """*job* is given up: store its copy, then call ``lane.dead_lettered``."""

    def on_refill(self, lane: Lane, pipeline: QueuePipeline, refill: Refill) -> None:
        """Read the spilled messages of *refill*, then call ``lane.refilled``."""

    def on_parking(self, lane: Lane, pipeline: QueuePipeline) -> None:
        """Keys of *pipeline*, or of that of its queue, are parked: something may be to do."""

    def on_wanted(self, lane: Lane) -> None:
        """A client came for a topic that this proxy does not take part in yet."""

    def on_settled(self) -> None:
        """Memory was freed, or a lease ended: paused readers and hand-overs look again."""
