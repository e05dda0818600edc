"""One proxy's upstream on brokers in memory, driven step by step by a test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from broker_core.client import LockAnswer
from broker_core.clock import now_ns
from broker_core.names import Group, QueueName, Topic
from broker_core.tasks import cancel_and_wait
from proxy.core.group.group_buffer import PullWish
from proxy.core.jobs.window import Budget
from proxy.core.keys.ids import LeaseId
from proxy.core.leases.lease_book import Holder
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.core.records.codec import encode
from proxy.core.records.record import Own, Record, ownership_topic
from proxy.lane.group_lane import GroupLane
from proxy.settings.proxy_settings import Settings
from proxy.upstream.commits.committer import Committer
from proxy.upstream.context import UpstreamContext
from proxy.upstream.ownership.group_ownership import GroupOwnership
from proxy.upstream.ownership.named_owners import handoffs_of
from proxy.upstream.ownership.owned_queue import OwnedQueue, QueueState
from proxy.upstream.records.ownership_log import OwnershipLog
from proxy.upstream.records.recorder import Recorder
from testkit.eventually import eventually
from testkit.lanes import GROUP, TOPIC, Notes, group_settings, make_lane
from tests.integration.upstream.memory_broker import MemoryBrokers, MemoryClient

BILLING = Group(GROUP)
SECOND = 1_000_000_000
FOR_LONG_NS = 3600 * SECOND
QUICK = {"renewal_s": 0.05, "trust_s": 0.3, "request_timeout_s": 0.05, "broker_lock_expiry_s": 0.6}


@dataclass
class Upstream:
    """One proxy's upstream, with shortcuts for tests."""

    brokers: MemoryBrokers
    lock: dict[str, float] = field(default_factory=dict)
    ownership: dict[str, float] = field(default_factory=dict)
    topics: tuple[str, ...] = (TOPIC,)
    group: dict[str, Any] = field(default_factory=dict)
    client_id: str = "us@1#1"
    #: Leases returned by ``lease``, newest last.
    taken: list[LeaseId] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.client: Any = MemoryClient(self.brokers, self.client_id)
        self.history = Notes()
        log = OwnershipLog(self.client)
        self.context = UpstreamContext(
            client=self.client,
            membership=self.client,
            settings=Settings.model_validate(
                {"lock": self.lock, "ownership": self.ownership, "commit_every_s": 0.01}
            ),
            history=self.history,
            memory=Budget(1 << 30),
            log=log,
            recorder=Recorder(log),
        )
        self.committer = Committer(self.context)
        self.lane = make_lane(
            group_settings(topics=self.topics, **self.group), history=self.history
        )
        self.lock_requests = asyncio.Lock()

    def own(self, queue: QueueName, *, trust_ns: int = FOR_LONG_NS) -> OwnedQueue:
        """Own *queue* as if the broker had granted its lock."""
        self.brokers.holders[BILLING, queue] = self.client_id
        return OwnedQueue(
            self.context,
            self.committer,
            self.lane,
            queue,
            trusted_until_ns=now_ns() + trust_ns,
            hold_until_ns=0,
            lock_requests=self.lock_requests,
            handoffs=handoffs_of(self.context.settings),
        )

    async def owned(self, queue: QueueName) -> tuple[OwnedQueue, QueuePipeline]:
        """Own *queue* and wait until it is taken over."""
        made = self.own(queue)
        await eventually(lambda: made.state is QueueState.OWNED)
        return made, self.pipeline(queue)

    def pipeline(self, queue: QueueName) -> QueuePipeline:
        found = self.lane.buffer.find(queue)
        assert found is not None
        return found

    def ready(self, queue: QueueName) -> bool:
        """Return True if the queue is owned and has jobs to deliver, perhaps later."""
        found = self.lane.buffer.find(queue)
        return found is not None and found.ready > 0

    def lease(self) -> int:
        """Pull as one client; return the number of messages. See ``taken``."""
        wish = PullWish(Holder(1, "c"), None, max_jobs=100, max_bytes=1 << 20)
        leases = [
            lease.lease_id
            for batch in self.lane.lease(wish, now_ns=now_ns())
            for lease in batch.leases
        ]
        self.taken += leases
        return len(leases)

    def ack_last(self, pipeline: QueuePipeline) -> list[int]:
        """Ack the last lease; return it if it was no longer held."""
        return [*self.lane.settle(pipeline.topic, pipeline.qid, acked=[self.taken[-1]])]


@asynccontextmanager
async def upstream(brokers: MemoryBrokers, **others: Any) -> AsyncIterator[Upstream]:
    made = Upstream(brokers, **others)
    yield made
    made.lane.close()
    for pipeline in list(made.lane.buffer):
        queue = pipeline.queue
        await cancel_and_wait(*(t for t in asyncio.all_tasks() if str(queue) in t.get_name()))


def one_queue() -> tuple[MemoryBrokers, QueueName]:
    brokers = MemoryBrokers()
    return brokers, brokers.add_topic(TOPIC, 1)[0]


def twin_of(brokers: MemoryBrokers, queue: QueueName) -> QueueName:
    """Return the queue of its ownership records, creating it if necessary."""
    topic = ownership_topic(BILLING, queue.topic)
    return brokers.add_topic(topic, queue.queue_id + 1, broker=queue.broker)[queue.queue_id]


def write(brokers: MemoryBrokers, queue: QueueName, *records: Record) -> int:
    """Write *records* as another owner; return the offset of the first."""
    log = brokers.logs[twin_of(brokers, queue)]
    log += [encode(record) for record in records]
    return len(log) - len(records)


def rival(period: int = 1) -> Own:
    return Own("rival@1#1", 5000, 5000, broker_start_ms=1, period=period)


def showing(us: Upstream, queue: QueueName, count: int) -> Callable[..., Awaitable[int]]:
    """Return a ``max_offset`` by which only *count* messages of *queue* are visible."""
    real = us.client.max_offset

    async def max_offset(of: QueueName) -> int:
        return count if of == queue else int(await real(of))

    return max_offset


def once(step: Callable[..., Any]) -> Callable[..., Awaitable[None]]:
    """Return a step that runs *step* at its first call only."""
    calls: list[None] = []

    async def do(*arguments: Any) -> None:
        calls.append(None)
        if len(calls) == 1:
            step(*arguments)

    return do


@asynccontextmanager
async def taking_part(us: Upstream, *, stays: bool = True) -> AsyncIterator[GroupOwnership]:
    """*stays*: the group has clients here all the time; otherwise it had one for a moment, which is
    forgotten if the machine pauses.
    """
    topics = frozenset(Topic(topic.name) for topic in us.lane.settings.topics)
    us.lane.presence.deliver(topics if stays else ())
    ownership = GroupOwnership(us.context, us.committer, us.lane)
    us.lane.seen()
    ownership.wake()
    yield ownership
    us.client.before.clear()
    await ownership.close()


def trusting(lane: GroupLane) -> set[str]:
    """Return the brokers whose queues may deliver."""
    return {each.queue.broker for each in lane.buffer if each.trusted_until_ns > now_ns()}


def unanswered() -> Callable[..., Awaitable[Any]]:
    """Return a lock request that no broker answers."""

    async def lock(_group: Group, queues: Any, **_: Any) -> LockAnswer:
        return LockAnswer(unanswered=frozenset(queues))

    return lock
