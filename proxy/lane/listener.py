"""Events that a group's lane passes to its upstream and downstream."""

from __future__ import annotations

from typing import Protocol, TypeVar

from proxy.core.jobs.chains import Job
from proxy.core.jobs.refills import Refill
from proxy.core.pipeline.queue_pipeline import QueuePipeline

Lane = TypeVar("Lane", contravariant=True)


class LaneListener(Protocol[Lane]):
    """Receives events of a lane: upstream for dead letters and room, downstream for ready jobs."""

    def on_ready(self, lane: Lane) -> None:
        """Wake waiting pulls: jobs may have become ready."""

    def on_dead_letter(self, lane: Lane, pipeline: QueuePipeline, job: Job) -> None:
        """Store the dead letter of *job*, then call ``lane.dead_lettered``."""

    def on_refill(self, lane: Lane, pipeline: QueuePipeline, refill: Refill) -> None:
        """Read the spilled messages of *refill*, then call ``lane.refilled``."""

    def on_parking(self, lane: Lane, pipeline: QueuePipeline) -> None:
        """Process parked keys of *pipeline* or of its queue."""

    def on_wanted(self, lane: Lane) -> None:
        """Join a topic that a client wants and this proxy does not yet take part in."""

    def on_settled(self) -> None:
        """Check paused readers and hand-overs: memory was freed or a lease ended."""
