"""Brokers in memory and their clients: the requests of upstream without sockets or disks.

A test can run code between two steps of a client with ``before``: the entry of a method's name is
awaited, with the method's arguments, before each call.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from broker_core.client import (
    LockAnswer,
    LogSpan,
    PullResult,
    PullStatus,
    QueueRange,
    SendReceipt,
    TopicLife,
)
from broker_core.errors import BrokerError
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.codes import ResponseCode
from broker_core.remoting.message import OutgoingMessage, StoredMessage
from broker_core.remoting.route_bodies import Perm, QueueData, TopicRoute
from testkit.messages import message as stored

Step = Callable[..., Awaitable[None]]


class MemoryBrokers:
    """Shared state of all brokers. Locks never expire by themselves."""

    def __init__(self) -> None:
        self.topics: dict[Topic, list[QueueName]] = {}
        self.logs: defaultdict[QueueName, list[bytes]] = defaultdict(list)
        # number of first messages deleted by retention
        self.deleted: Counter[QueueName] = Counter()
        self.damaged: set[tuple[QueueName, int]] = set()  # offsets
        self.committed: dict[tuple[Group, QueueName], int] = {}
        self.holders: dict[tuple[Group, QueueName], str] = {}
        self.start_ms = 1
        self.lives: dict[Topic, int] = {}  # of topics; others have no known life
        self.missing: set[Topic] = set()  # deleted topics that proxies still have in their routes

    def add_topic(self, topic: str, queues: int, *, broker: str = "broker-a") -> list[QueueName]:
        """Create or grow a topic at one broker; return its queues there."""
        name = Topic(topic)
        there = [QueueName(name, broker, number) for number in range(queues)]
        known = self.topics.setdefault(name, [])
        known += [queue for queue in there if queue not in known]
        return there

    def define_topic(self, topic: Topic, queues: int, *, broker: str) -> None:
        """Create a topic at one broker, or change it: with fewer queues the others are hidden."""
        known = self.topics.get(topic, [])
        self.topics[topic] = [queue for queue in known if queue.broker != broker]
        self.add_topic(topic, queues, broker=broker)


class MemoryClient:
    """The parts of ``BrokerClient`` that upstream needs, and a ``Membership`` of one."""

    def __init__(self, brokers: MemoryBrokers, client_id: str = "us@1#1") -> None:
        self.brokers = brokers
        self.client_id = client_id
        self.before: dict[str, Step] = {}
        self.asked: Counter[str] = Counter()
        self.signs: set[Group] = set()

    async def _step(self, method: str, *arguments: Any) -> None:
        await asyncio.sleep(0)
        self.asked[method] += 1
        if (step := self.before.get(method)) is not None:
            await step(*arguments)

    async def queues(self, topic: Topic, *, fresh: bool = False) -> list[QueueName]:
        await self._step("queues", topic)
        if topic not in self.brokers.topics:
            raise BrokerError(ResponseCode.TOPIC_NOT_EXIST, f"no topic {topic}")
        return sorted(self.brokers.topics[topic])

    async def broker_names(self, topic: Topic) -> list[str]:
        return sorted({queue.broker for queue in await self.queues(topic)})

    async def log_span(self, broker: str) -> LogSpan:
        """Return a range with all messages in one file, which retention never deletes."""
        await self._step("log_span", broker)
        return LogSpan(begin=0, end=1 << 20)

    async def log_file_bytes(self, broker: str) -> int:
        await self._step("log_file_bytes", broker)
        return 1 << 30

    async def create_topic(self, topic: Topic, *, queues: int, broker: str = "broker-a") -> None:
        await self._step("create_topic", topic)
        self.brokers.define_topic(topic, queues, broker=broker)

    async def topic_route(self, topic: Topic) -> TopicRoute:
        """Return the numbers of queues; without addresses of brokers."""
        await self._step("topic_route", topic)
        if topic not in self.brokers.topics:
            raise BrokerError(ResponseCode.TOPIC_NOT_EXIST, f"no topic {topic}")
        queues = Counter(queue.broker for queue in self.brokers.topics[topic])
        data = (
            QueueData(broker=broker, read_queues=count, write_queues=count, perm=Perm.READ_WRITE)
            for broker, count in queues.items()
        )
        return TopicRoute(queues=tuple(data))

    async def send(
        self, queue: QueueName, message: OutgoingMessage, *, life: int | None = None
    ) -> SendReceipt:
        await self._step("send", queue, message)
        self._require(queue)
        if life not in (None, now := self.brokers.lives.get(queue.topic)):
            raise BrokerError(ResponseCode.SYSTEM_ERROR, f"{queue.topic} is in life {now}")
        self.brokers.logs[queue].append(message.body)
        return SendReceipt(
            queue=queue,
            offset=len(self.brokers.logs[queue]) - 1,
            message_id="",
            offset_message_id="",
        )

    async def pull(
        self, queue: QueueName, *, offset: int, suspend_ms: int = 15_000, **_others: Any
    ) -> PullResult:
        await self._step("pull", queue, offset)
        low, end = self.brokers.deleted[queue], len(self.brokers.logs[queue])
        if offset == end and suspend_ms:
            await asyncio.Event().wait()
        messages: list[StoredMessage] = []
        if not low <= offset <= end:
            status, next_offset = PullStatus.OFFSET_ILLEGAL, low if offset < low else end
        elif offset == end:
            status, next_offset = PullStatus.NO_NEW, end
        elif (queue, offset) in self.brokers.damaged:
            status, next_offset = PullStatus.DAMAGED, offset + 1
        else:
            status, next_offset = PullStatus.FOUND, min(end, offset + 32)
            for each in range(offset, next_offset):
                if (queue, each) in self.brokers.damaged:
                    next_offset = each
                    break
            messages = [
                stored(each, body=self.brokers.logs[queue][each], place=0)  # there is no log
                for each in range(offset, next_offset)
            ]
        return PullResult(
            status=status,
            messages=messages,
            next_offset=next_offset,
            min_offset=low,
            max_offset=end,
            life=self.brokers.lives.get(queue.topic),
            damage="damaged on disk" if status is PullStatus.DAMAGED else "",
        )

    async def life(self, queue: QueueName) -> int | None:
        await self._step("life", queue)
        return self.brokers.lives.get(queue.topic)

    async def topic_life(self, queue: QueueName) -> TopicLife:
        life = await self.life(queue)
        if queue.topic in self.brokers.missing:
            raise BrokerError(ResponseCode.TOPIC_NOT_EXIST, f"no topic {queue.topic}")
        return TopicLife(life, {})

    async def queue_ranges(
        self, queues: Iterable[QueueName], *, group: Group | None = None
    ) -> dict[QueueName, QueueRange]:
        wanted = list(queues)
        await self._step("queue_ranges", wanted)
        of, committed = self.brokers, self.brokers.committed
        return {
            queue: QueueRange(
                of.deleted[queue],
                len(of.logs[queue]),
                None if group is None else committed.get((group, queue)),
                of.lives.get(queue.topic),
            )
            for queue in wanted
        }

    async def max_offset(self, queue: QueueName) -> int:
        await self._step("max_offset", queue)
        self._require(queue)
        return len(self.brokers.logs[queue])

    async def min_offset(self, queue: QueueName) -> int:
        await self._step("min_offset", queue)
        return self.brokers.deleted[queue]

    async def committed_offset(self, group: Group, queue: QueueName) -> int | None:
        await self._step("committed_offset", group, queue)
        return self.brokers.committed.get((group, queue))

    async def has_committed(self, group: Group, queue: QueueName) -> bool:
        return await self.committed_offset(group, queue) is not None

    async def commit_offset(
        self,
        group: Group,
        queue: QueueName,
        offset: int,
        *,
        life: int | None = None,
        if_none: bool = False,
        **_: Any,
    ) -> None:
        await self._step("commit_offset", group, queue, offset)
        if if_none and (group, queue) in self.brokers.committed:
            return
        if life not in (None, now := self.brokers.lives.get(queue.topic)):
            raise BrokerError(ResponseCode.SYSTEM_ERROR, f"{queue.topic} is in life {now}")
        self.brokers.committed[group, queue] = offset

    async def locks_since_ms(self, broker: str) -> int:
        await self._step("locks_since_ms", broker)
        return self.brokers.start_ms

    async def lock(
        self, group: Group, queues: Iterable[QueueName], *, timeout_s: float | None = None
    ) -> LockAnswer:
        wanted = list(queues)
        await self._step("lock", group, wanted)
        for queue in wanted:
            self.brokers.holders.setdefault((group, queue), self.client_id)
        granted = {q for q in wanted if self.brokers.holders[group, q] == self.client_id}
        return LockAnswer(granted=frozenset(granted))

    async def unlock(
        self, group: Group, queues: Iterable[QueueName], *, timeout_s: float | None = None
    ) -> None:
        wanted = list(queues)
        await self._step("unlock", group, wanted)
        for queue in wanted:
            if self.brokers.holders.get((group, queue)) == self.client_id:
                del self.brokers.holders[group, queue]

    async def consumer_ids(self, group: Group, topic: Topic) -> list[str]:
        await self._step("consumer_ids", group, topic)
        return [self.client_id]

    async def subscribed(self, group: Group, client_id: str, topic: Topic) -> frozenset[Topic]:
        """Answer for a member that wants *topic* only."""
        await self._step("subscribed", group, client_id, topic)
        return frozenset({topic})

    async def producer_ids(self, group: Group, topic: Topic) -> list[str]:
        await self._step("producer_ids", group, topic)
        return [self.client_id] if group in self.signs else []

    async def join(
        self, group: Group, topics: Iterable[Topic], *, signs: Iterable[Group] = ()
    ) -> None:
        await self._step("join", group)
        self.signs = set(signs)

    def unlisted(self) -> None:
        pass

    async def leave(self, group: Group) -> None:
        await self._step("leave", group)

    def _require(self, queue: QueueName) -> None:
        if queue not in self.brokers.topics.get(queue.topic, ()):
            raise BrokerError(ResponseCode.SYSTEM_ERROR, f"there is no queue {queue}")
