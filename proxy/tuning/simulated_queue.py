"""A simulated queue: its pipeline, and bookkeeping for the simulator. Pure."""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from proxy.core.jobs.measures import Histogram, Measures
from proxy.core.jobs.starvation import Patience
from proxy.core.keys.order_key import QUEUE_CHAIN, chain_at_clients
from proxy.core.leases.lease_book import Lease
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.core.pipeline.recent_keys import HotKeys
from thin_client.lease import Lease as Delivered
from thrift_idl import consumer

#: Finished messages of a queue between two checks for room to read on.
_LOOK_EVERY = 64


class SimulatedMessage:
    """The part of a message that pipelines use."""

    __slots__ = ("key_bytes", "queue_offset")
    body = raw_properties = b""
    body_is_compressed = False

    def __init__(self, queue_offset: int, key: bytes | None) -> None:
        self.queue_offset, self.key_bytes = queue_offset, key

    @property
    def key(self) -> str | None:
        """Return the key as text."""
        return None if self.key_bytes is None else self.key_bytes.decode(errors="replace")


class SimulatedQueue:
    """One queue of the sample, and its pipeline; offsets count from 0."""

    __slots__ = (
        *("place", "pipeline", "keys", "service_ns", "read_ns", "done_ns", "open", "finished"),
        *("patience", "chained", "window", "context", "_chain"),
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
        #: Time at which a message of a key, as clients get it, last finished.
        self.done_ns: dict[bytes | None, int] = {}
        self.open: dict[bytes, int] = {}  # messages of a key that are read and unfinished
        self.finished = 0  # since the last check for room
        self.patience = Patience()
        self.chained = chained  # messages without a key form a chain
        #: Names the queue to clients.
        self.context = consumer.Context(groupId="simulated", topic=pipeline.topic, qid=pipeline.qid)
        self._chain = chain_at_clients(pipeline.qid)

    @property
    def unread(self) -> bool:
        """Whether some of its messages were not read yet."""
        return self.pipeline.position < len(self.keys)

    def at_client(self, key: bytes | None) -> bytes | None:
        """Return the order key that clients get for *key*."""
        return self._chain if key == QUEUE_CHAIN else key

    def to_client(self, lease: Lease) -> Delivered:
        """Return the message of *lease* as a client gets it, without its contents.

        The session takes such messages as they are: the codec, too, decodes messages to leases.
        """
        delivered: Delivered = Delivered()
        job = lease.job
        delivered.lease_id, delivered.offset, delivered.body = lease.lease_id, job.offset, b""
        if (key := job.key) is not None:
            delivered.wire_order_key = self._chain if key == QUEUE_CHAIN else key
        return delivered

    def finish(self, messages: int) -> bool:
        """Count *messages* finished; return True when it is time to check for room."""
        self.finished += messages
        if self.finished < _LOOK_EVERY and self.window.jobs:
            return False
        self.finished = 0
        return True


def measure_nothing(pipeline: QueuePipeline) -> None:
    """Disable the statistics of *pipeline*: no decision depends on them, and they cost time per
    message.
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
