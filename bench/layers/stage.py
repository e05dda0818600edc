"""A consumer service over owned queues with a backlog, without brokers."""

from __future__ import annotations

from collections.abc import Sequence

from broker_core.client.pulling import decoded
from broker_core.client.results import PulledRecords, PullStatus
from broker_core.names import Topic
from broker_core.remoting.message import StoredMessage
from broker_core.time_slices import TimeSlices
from proxy.core.jobs.window import Budget
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.downstream.consumer_service import ConsumerService
from proxy.downstream.port.server import ThriftServer
from proxy.lane.group_lane import GroupLane
from proxy.lane.lanes import Lanes
from proxy.lane.topic_rules import rules_of
from proxy.net.wakeup import Signal
from proxy.settings.groups import GroupSettings
from proxy.settings.proxy_settings import LimitSettings
from testkit.lanes import Listener, group_settings, make_lane
from testkit.messages import message, record
from testkit.pipelines import Budgets, pipeline, queue

QUEUES = 8
_KEYS = 100_000
_BODY_BYTES = 256
_MOST_BYTES = 1 << 40
_SETTLED_WITHIN_S = 0.005  # as the proxy's


class _Wakes(Listener):
    """Serves waiting pulls, and wakes readers as the proxy does; there are none."""

    def __init__(self) -> None:
        super().__init__()
        self._settled = Signal()
        self._service: ConsumerService | None = None

    def serve(self, service: ConsumerService) -> None:
        """Serve the waiting pulls of *service*."""
        self._service = service

    def on_ready(self, lane: GroupLane) -> None:
        if self._service is not None:
            self._service.dispatch(lane)

    def on_settled(self) -> None:
        self._settled.fire_soon(_SETTLED_WITHIN_S)


def backlog(messages: int) -> list[list[bytes]]:
    """Return the records of *messages* in as many queues as a topic has, as a broker stores them:
    keys in turn, bodies of 256 bytes.
    """
    return [
        [
            record(
                message(
                    offset,
                    body=bytes(_BODY_BYTES),
                    key=f"key-{(offset * QUEUES + number) % _KEYS}",
                    queue_id=number,
                    UNIQ_KEY=f"{number:04x}{offset:028x}",
                    WAIT="true",
                )
            )
            for offset in range(messages // QUEUES)
        ]
        for number in range(QUEUES)
    ]


def decode(records: Sequence[bytes], *, first: int) -> Sequence[StoredMessage]:
    """Return the messages of one answer to a pull at offset *first*, checked as a proxy does."""
    end = first + len(records)
    pulled = PulledRecords(
        status=PullStatus.FOUND,
        records=b"".join(records),
        next_offset=end,
        min_offset=0,
        max_offset=end,
        life=None,
        damage="",
    )
    return decoded(pulled, first).messages


class Stage:
    """A proxy's consumer service, which owns ``QUEUES`` empty queues of one group."""

    def __init__(self, *, turns: bool = True) -> None:
        """*turns*: requests wait for another pass of the event loop after a time slice."""
        self._listener = _Wakes()
        self._memory = Budget(_MOST_BYTES)
        self._lanes = Lanes(self._make_lane)
        settings = group_settings(
            max_jobs_in_memory=1_000_000, visibility_timeout_s=30, max_leased_jobs=1_000_000
        )
        #: The lane of the group.
        self.lane: GroupLane = self._lanes.add(settings)
        limits = LimitSettings()
        #: The service that serves it.
        self.service = ConsumerService(self._lanes, limits)
        self._listener.serve(self.service)
        #: The port of the service; it does not listen.
        slices = TimeSlices() if turns else TimeSlices(clock=lambda: 0)
        self.server = ThriftServer(self.service.entries(), limits, time_slices=slices)
        wanted = [Topic(topic.name) for topic in settings.topics]
        self.lane.presence.show(wanted, shows_all=True)
        #: The owned queues.
        self.queues: list[QueuePipeline] = []
        for number in range(QUEUES):
            owned = pipeline(
                rules_of(settings.topics[0]),
                of=queue(number),
                budgets=Budgets(self._memory, self.lane.leases_of_group),
            )
            self.lane.add(owned)
            self.queues.append(owned)

    def read(self, records: Sequence[Sequence[bytes]]) -> None:
        """Read all *records*, those of each queue at once."""
        for owned, each in zip(self.queues, records, strict=True):
            end = len(each)
            self.lane.on_messages(owned, decode(each, first=0), next_offset=end)

    def close(self) -> None:
        """Stop the timers."""
        self.lane.close()

    def _make_lane(self, settings: GroupSettings) -> GroupLane:
        return make_lane(
            settings, listener=self._listener, memory=self._memory, open_connections={1}
        )
