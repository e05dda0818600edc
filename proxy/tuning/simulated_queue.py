"""A queue of a simulation: its pipeline, and what the simulator has to know beside it. Pure."""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from proxy.core.jobs.measures import Histogram, Measures
from proxy.core.jobs.starvation import Patience
from proxy.core.keys.ids import LeaseId
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.core.pipeline.recent_keys import HotKeys

#: Messages of a queue that end between two looks at whether it has room to be read on.
_LOOK_EVERY = 64


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
        *("patience", "acked", "ended", "chained", "window"),
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
        self.service_ns, self.window = service_ns, pipeline.jobs.window
        self.read_ns = array("q", bytes(8 * len(keys)))
        self.done_ns: dict[bytes | None, int] = {}  # when a message of a key ended last
        self.open: dict[bytes, int] = {}  # messages of a key that are read and unfinished
        self.finished = 0  # since the last look at its room
        self.patience = Patience()
        self.acked: list[LeaseId] = []  # leases whose verdicts the client has not sent yet
        self.ended: list[bytes | None] = []  # keys of their messages
        self.chained = chained  # what has no key is a chain

    @property
    def unread(self) -> bool:
        """True if some of its messages were not read yet."""
        return self.pipeline.position < len(self.keys)

    def take_verdicts(self) -> tuple[list[LeaseId], list[bytes | None]]:
        """Remove and return the verdicts that wait, and the keys of their messages."""
        verdicts = self.acked, self.ended
        self.acked, self.ended = [], []
        return verdicts

    def finish(self, messages: int) -> bool:
        """Count *messages* that ended; True when it is time to look at what may be read."""
        self.finished += messages
        if self.finished < _LOOK_EVERY and self.window.jobs:
            return False
        self.finished = 0
        return True


def measure_nothing(pipeline: QueuePipeline) -> None:
    """Keep *pipeline* from noting what nobody will read. No decision depends on it, and it costs
    time at every message.
    """
    pipeline.measured_by(_NOT_MEASURED, hot=_Uncounted())


class _Unread(Histogram):
    def note(self, _value: int, _times: int = 1) -> None:
        pass

    def note_lowest(self, _times: int) -> None:
        pass

    def note_since(self, _began_ns: list[int], _now_ns: int) -> None:
        pass


class _Uncounted(HotKeys):
    def note(self, _keys: Iterable[bytes | None], *, now_ns: int) -> None:
        pass


_NOT_MEASURED = Measures(_Unread(), _Unread(), _Unread(), _Unread())
