"""The Thrift port with lanes whose queues the test owns and fills: no broker, no reader."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from broker_core.names import QueueName, Topic
from broker_core.remoting.message import StoredMessage
from proxy.core.jobs.window import Budget
from proxy.core.keys.ids import Epoch
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.downstream.consumer_service import ConsumerService
from proxy.downstream.port.connection import Entry
from proxy.downstream.port.load import Load
from proxy.downstream.port.server import ThriftServer
from proxy.history.record import History, NullHistory
from proxy.lane.group_lane import GroupLane
from proxy.lane.lanes import Lanes
from proxy.lane.topic_rules import rules_of
from proxy.settings.groups import GroupSettings
from proxy.settings.proxy_settings import LimitSettings
from testkit.eventually import eventually
from testkit.lanes import GROUP, TOPIC, Listener, group_settings, make_lane
from testkit.pipelines import FOR_EVER_NS
from testkit.thrift_client import ThriftClient, our_pull


class Dispatcher(Listener):
    """Serves the waiting pulls, as the proxy does."""

    def __init__(self, consumers: ConsumerService) -> None:
        super().__init__()
        self._consumers = consumers

    def on_ready(self, lane: GroupLane) -> None:
        super().on_ready(lane)
        self._consumers.dispatch(lane)


@dataclass(slots=True)
class Serving:
    """A Thrift server and its lanes, controlled by the test."""

    limits: LimitSettings
    history: History
    auto_create: bool
    memory: Budget = field(default_factory=lambda: Budget(1 << 40))
    listener: Dispatcher = field(init=False)
    port: int = 0
    lanes: Lanes = field(init=False)
    consumers: ConsumerService = field(init=False)
    server: ThriftServer = field(init=False)
    _methods: dict[str, Entry] = field(init=False)

    def __post_init__(self) -> None:
        self.lanes = Lanes(self._make, auto_create=self.auto_create)
        load = Load(self.limits.max_inflight_bytes)
        self.consumers = ConsumerService(self.lanes, self.limits, load)
        self.listener = Dispatcher(self.consumers)
        self._methods = dict(self.consumers.entries())
        self.server = ThriftServer(self._methods, self.limits, load)

    def serve(self, methods: Mapping[str, Entry]) -> None:
        """Let the port serve *methods* as well."""
        self._methods.update(methods)

    def lane(self, group: str = GROUP) -> GroupLane:
        """Return the lane of an existing group."""
        lane = self.lanes.find(group)
        assert lane is not None
        return lane

    def own(
        self,
        queue_id: int = 0,
        *,
        topic: str = TOPIC,
        group: str = GROUP,
        epoch: int = 1,
        **times: int,
    ) -> QueuePipeline:
        """Own a queue of the group with unlimited trust. *times*: the pipeline's own, in ns."""
        lane = self.lane(group)
        settings = lane.settings.topic(topic)
        assert settings is not None
        pipeline = QueuePipeline(
            queue=QueueName(Topic(topic), "broker-a", queue_id),
            epoch=Epoch(epoch),
            period=epoch,
            rules=rules_of(settings),
            start_offset=0,
            committed=0,
            **{"trusted_until_ns": FOR_EVER_NS, **times},
            memory=self.memory,
            leases_of_group=lane.leases_of_group,
        )
        lane.add(pipeline)
        return pipeline

    def feed(self, pipeline: QueuePipeline, *messages: StoredMessage, group: str = GROUP) -> None:
        """Add *messages* as the reader does."""
        next_offset = messages[-1].queue_offset + 1
        self.lane(group).on_messages(pipeline, messages, next_offset=next_offset)

    def leased(self, group: str = GROUP) -> int:
        """Return the live leases of the group."""
        return self.lane(group).leases_of_group.used

    def _make(self, settings: GroupSettings) -> GroupLane:
        return make_lane(
            settings,
            memory=self.memory,
            history=self.history,
            listener=self.listener,
            open_connections=self.server.open,
        )


async def parked(serving: Serving, client: ThriftClient, **fields: Any) -> None:
    """Send a pull and return once it waits."""
    before = serving.lane().presence.waiting_pulls
    client.send("pull", our_pull(GROUP, **{"linger_ms": 20_000, **fields}))
    await eventually(lambda: serving.lane().presence.waiting_pulls == before + 1)


@asynccontextmanager
async def serving(
    *groups: GroupSettings,
    limits: Mapping[str, float] | None = None,
    history: History | None = None,
    auto_create: bool = False,
) -> AsyncIterator[Serving]:
    """Start a server on any free port with *groups* (one plain group by default)."""
    made = Serving(
        LimitSettings.model_validate(limits or {}),
        history or NullHistory(),
        auto_create,
    )
    for settings in groups or (group_settings(),):
        made.lanes.add(settings)
    made.port = await made.server.listen("127.0.0.1", 0)
    try:
        yield made
    finally:
        made.consumers.close()
        for lane in made.lanes:
            lane.close()
        await made.server.close(grace_s=0.5)
