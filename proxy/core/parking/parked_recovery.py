"""Recovery of the parked keys of a queue whose ownership records are lost. Pure.

Keys with unfinished copies in the parked twin are parked: later messages of them must wait. One key
too many waits until it is redriven; one too few would lose its order, or even messages whose
originals are committed by now.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from broker_core.remoting.message import StoredMessage
from proxy.core.parking.parked_copy import is_of_its_life, origin_of, parked_chain
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.core.records.parked_key import ParkedKey
from proxy.core.records.record import Snapshot

BY = "recovery"
_REASON = "found among the parked copies, because the ownership records were damaged or deleted"
#: Copies of any epoch count: after a deletion of the records, later epochs may be lower ones.
_FOUND = ParkedKey(0, 0, by=BY, reason=_REASON)


@dataclass(slots=True)
class FoundParked:
    """Finds parked keys of ``queue`` in its twin. ``said`` is the state according to the twin's own
    records, None without any; all copies below ``start`` are finished.
    """

    queue: QueuePipeline
    said: Snapshot | None
    start: int
    keys: dict[bytes, ParkedKey] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.said is None:
            return
        self.start = max(self.start, self.said.base)
        for key, offsets in self.said.spilled.items():
            if offsets[-1] >= self.start:
                self.keys[key] = _FOUND

    @property
    def position(self) -> int:
        """Offset from which the copies must be examined."""
        return self.start if self.said is None else max(self.start, self.said.read)

    def see(self, copy: StoredMessage) -> None:
        """Add a copy found in the twin."""
        origin = origin_of(copy)[0]
        key = parked_chain(copy, self.queue.keys.record.rule_at(origin))
        if key is None or origin < 0:
            return  # not made by the gateway
        if is_of_its_life(copy, self.queue):
            self.keys[key] = _FOUND
