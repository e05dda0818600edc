"""A queue of a simulation: its pipeline, and what the simulator has to know beside it. Pure."""

from __future__ import annotations

from array import array

from proxy.core.pull_buffer import Lease
from proxy.core.queue_pipeline import QueuePipeline
from proxy.core.starvation import Patience


class SimulatedMessage:
    """What pipelines look at of a message."""

    __slots__ = ("key_bytes", "queue_offset")
    body = raw_properties = b""
    body_is_compressed = False

    def __init__(self, queue_offset: int, key: bytes | None) -> None:
        self.queue_offset, self.key_bytes = queue_offset, key


class SimulatedQueue:
    """One queue of the sample, and its pipeline; offsets count from 0."""

    __slots__ = (
        *("place", "pipeline", "keys", "service_ns", "read_ns", "done_ns", "open", "finished"),
        *("patience", "verdicts", "chained"),
    )

    def __init__(
        self,
        place: int,
        pipeline: QueuePipeline,
        keys: list[bytes | None],
        service_ns: array[int],
        *,
        chained: bool,
    ) -> None:
        self.place, self.pipeline, self.keys = place, pipeline, keys
        self.service_ns = service_ns
        self.read_ns = array("q", bytes(8 * len(keys)))
        self.done_ns: dict[bytes | None, int] = {}  # when a message of a key ended last
        self.open: dict[bytes, int] = {}  # messages of a key that are read and unfinished
        self.finished = 0  # since the last look at its room
        self.patience = Patience()
        self.verdicts: list[Lease] = []
        self.chained = chained  # what has no key is a chain

    @property
    def unread(self) -> bool:
        """True if some of its messages were not read yet."""
        return self.pipeline.position < len(self.keys)
