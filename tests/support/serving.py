"""The Thrift port with lanes whose queues a test owns and feeds by hand: no broker, no reader."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from broker_core.names import QueueName, Topic
from broker_core.remoting.message import StoredMessage
from proxy.core.flow_window import Budget
from proxy.core.ids import Epoch
from proxy.core.job_chains import Job
from proxy.core.queue_pipeline import QueuePipeline
from proxy.downstream.consumer_service import ConsumerService
from proxy.downstream.thrift_server import ThriftServer
from proxy.group_lane import GroupLane
from proxy.history.record import History, NullHistory
from proxy.lanes import Lanes
from proxy.settings import GroupSettings, LimitSettings
from proxy.topic_rules import rules_of
from tests.support.eventually import eventually
from tests.support.pipelines import FOR_EVER_NS
from tests.support.thrift_client import ThriftClient, our_pull

GROUP, TOPIC = "billing", "orders"


def group_settings(
    name: str = GROUP, *, topics: tuple[str, ...] = (TOPIC,), **others: Any
) -> GroupSettings:
    """A group ordered by message key, with quick retries; *others* are settings of its topics,
    or of the group itself where it has one of that name.
    """
    of_group = {key: others.pop(key) for key in list(others) if key in GroupSettings.model_fields}
    of_topic = {"order_key": "KEY", "retry_intervals_ms": (10,), **others}
    return GroupSettings.model_validate(
        {"name": name, "topics": [{"name": topic, **of_topic} for topic in topics], **of_group}
    )


class Notes:
    """A history that keeps what is written."""

    enabled = True

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    def write(self, event: str, **fields: Any) -> None:
        self.events.append((event, fields))

    def write_many(self, event: str, each: Any) -> None:
        self.events += [(event, dict(fields)) for fields in each]

    def close(self) -> None:
        """Nothing is open."""

    def of(self, event: str) -> list[dict[str, Any]]:
        """The events of one kind."""
        return [fields for name, fields in self.events if name == event]


@dataclass(slots=True)
class Serving:
    """What a test drives. It is the lanes' listener, and keeps what it was told."""

    limits: LimitSettings
    history: History
    auto_create: bool
    memory: Budget = field(default_factory=lambda: Budget(1 << 40))
    told: Counter[str] = field(default_factory=Counter)
    dead_letters: list[Job] = field(default_factory=list)
    port: int = 0
    lanes: Lanes = field(init=False)
    consumers: ConsumerService = field(init=False)
    server: ThriftServer = field(init=False)

    def __post_init__(self) -> None:
        self.lanes = Lanes(self._make, auto_create=self.auto_create)
        self.consumers = ConsumerService(self.lanes, self.limits)
        self.server = ThriftServer(self.consumers.entries(), self.limits)

    def lane(self, group: str = GROUP) -> GroupLane:
        """The lane of a group that must be there."""
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
        """A queue of the group, trusted for ever; *times* are the pipeline's own, in ns."""
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
        """The reader brought *messages*."""
        next_offset = messages[-1].queue_offset + 1
        self.lane(group).on_messages(pipeline, messages, next_offset=next_offset)

    def leased(self, group: str = GROUP) -> int:
        """Live leases of the group."""
        return self.lane(group).leases_of_group.used

    def _make(self, settings: GroupSettings) -> GroupLane:
        return GroupLane(
            settings=settings,
            memory=self.memory,
            history=self.history,
            listener=self,
            open_connections=self.server.open,
        )

    # ---- the lanes' listener --------------------------------------------------------------------

    def on_ready(self, lane: GroupLane) -> None:
        self.told["ready"] += 1
        self.consumers.dispatch(lane)

    def on_dead_letter(self, lane: GroupLane, pipeline: QueuePipeline, job: Job) -> None:
        self.dead_letters.append(job)

    def on_wanted(self, lane: GroupLane) -> None:
        self.told["wanted"] += 1

    def on_settled(self) -> None:
        self.told["settled"] += 1


async def parked(serving: Serving, client: ThriftClient, **fields: Any) -> None:
    """Send a pull of ours, and return once it waits."""
    before = serving.lane().waiting_pulls
    client.send("pull", our_pull(GROUP, **{"linger_ms": 20_000, **fields}))
    await eventually(lambda: serving.lane().waiting_pulls == before + 1)


@asynccontextmanager
async def serving(
    *groups: GroupSettings,
    limits: Mapping[str, int] | None = None,
    history: History | None = None,
    auto_create: bool = False,
) -> AsyncIterator[Serving]:
    """A server on any free port with *groups* (one plain group by default)."""
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
