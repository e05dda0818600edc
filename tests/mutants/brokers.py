"""A broker in virtual time: locks that run out, commits fenced by epoch, messages with keys."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from broker_core.client import LockAnswer, PullResult, PullStatus, SendReceipt
from broker_core.errors import BrokerError, ConnectionLost
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.codes import ResponseCode
from broker_core.remoting.message import UNIQ_KEY, OutgoingMessage, StoredMessage
from tests.support.memory_broker import MemoryBrokers, MemoryClient
from tests.support.messages import message

LOCK_EXPIRY_S = 10.0
OWNERSHIP_PREFIX = "%OWN%"


class Broker(MemoryBrokers):
    """One broker with one topic, and what it keeps of groups."""

    def __init__(self) -> None:
        super().__init__()
        self.queues = self.add_topic("orders", 2)
        self.messages: defaultdict[QueueName, list[StoredMessage]] = defaultdict(list)
        self.grown: defaultdict[QueueName, asyncio.Event] = defaultdict(asyncio.Event)
        self.locked_until: dict[tuple[Group, QueueName], float] = {}
        self.epochs: dict[tuple[Group, QueueName], int] = {}
        self.members: dict[str, Callable[[Group], None]] = {}

    def append(self, queue: QueueName, key: str) -> StoredMessage:
        """Store one message of *key*."""
        sent = OutgoingMessage(topic=queue.topic, body=b"xyz", key=key)
        sent.properties[UNIQ_KEY] = f"{queue.qid}@{len(self.messages[queue])}"
        return self.store(queue, sent)

    def store(self, queue: QueueName, sent: OutgoingMessage) -> StoredMessage:
        """Store one message."""
        log = self.messages[queue]
        stored = message(
            len(log),
            body=sent.body,
            key=sent.key,
            queue_id=queue.queue_id,
            physical_offset=len(log) * 1000 + queue.queue_id,
            **sent.properties,
        )
        log.append(stored)
        self.logs[queue].append(stored.body)
        self.grown.pop(queue, asyncio.Event()).set()
        return stored


class Client(MemoryClient):
    """The connection of one proxy. Cut off, it hears nothing; dead, it is gone for ever."""

    def __init__(
        self, broker: Broker, client_id: str, on_consumers_changed: Callable[[Group], None]
    ) -> None:
        super().__init__(broker, client_id)
        self.broker = broker
        self.cut_off = self.dead = False
        self._changed = on_consumers_changed

    async def start(self) -> None:
        """There is nothing to be opened."""

    async def close(self) -> None:
        """Nor to be closed."""

    async def _step(self, method: str, *arguments: Any) -> None:
        await super()._step(method, *arguments)
        if self.dead:
            await asyncio.Event().wait()
        if self.cut_off:
            await asyncio.sleep(0.5)
            raise ConnectionLost("cut off")

    async def pull(
        self, queue: QueueName, *, offset: int, suspend_ms: int = 15_000, **others: Any
    ) -> PullResult:
        end = len(self.broker.logs[queue])
        if offset == end and suspend_ms:
            await self._step("pull", queue, offset)
            try:
                async with asyncio.timeout(suspend_ms / 1000):
                    await self.broker.grown[queue].wait()
            except TimeoutError:
                return PullResult(
                    status=PullStatus.NO_NEW,
                    messages=[],
                    next_offset=end,
                    min_offset=0,
                    max_offset=end,
                )
        result = await super().pull(queue, offset=offset, suspend_ms=0)
        if log := self.broker.messages[queue]:
            most = others.get("max_messages", 32)
            found = log[offset : min(result.next_offset, offset + most)]
            result = replace(result, messages=found, next_offset=offset + len(found))
        return result

    async def send(self, queue: QueueName, message: OutgoingMessage) -> SendReceipt:
        if queue.topic.startswith(OWNERSHIP_PREFIX):
            return await super().send(queue, message)
        return (await self.send_batch(queue, [message]))[0]

    async def send_batch(
        self, queue: QueueName, messages: Sequence[OutgoingMessage]
    ) -> list[SendReceipt]:
        """Messages with all that they carry: copies of parked ones are told by that."""
        await self._step("send", queue)
        self._require(queue)
        places = [self.broker.store(queue, each).queue_offset for each in messages]
        return [
            SendReceipt(queue=queue, offset=place, message_id="", offset_message_id="")
            for place in places
        ]

    async def commit_offset(
        self, group: Group, queue: QueueName, offset: int, *, epoch: int | None = None
    ) -> None:
        newest = self.broker.epochs.get((group, queue), -1)
        if epoch is not None and epoch < newest:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, f"epoch {epoch} is older than {newest}")
        await super().commit_offset(group, queue, offset, epoch=epoch)
        if epoch is not None:
            self.broker.epochs[group, queue] = epoch

    async def lock(
        self, group: Group, queues: Iterable[QueueName], *, timeout_s: float | None = None
    ) -> LockAnswer:
        wanted = list(queues)
        if self.cut_off:
            await asyncio.sleep(timeout_s or 0.5)
            return LockAnswer(unanswered=frozenset(wanted))
        now = asyncio.get_running_loop().time()
        for queue in wanted:
            if self.broker.locked_until.get((group, queue), 0) <= now:
                self.broker.holders.pop((group, queue), None)
        answer = await super().lock(group, wanted)
        for queue in answer.granted:
            self.broker.locked_until[group, queue] = now + LOCK_EXPIRY_S
        return answer

    async def consumer_ids(self, group: Group, topic: Topic) -> list[str]:
        await self._step("consumer_ids", group, topic)
        return sorted(self.broker.members)

    async def join(self, group: Group, topics: Iterable[Topic]) -> None:
        await self._step("join", group)
        if self.client_id not in self.broker.members:
            self.broker.members[self.client_id] = self._changed
            self.tell(group)

    async def leave(self, group: Group) -> None:
        await self._step("leave", group)
        self.broker.members.pop(self.client_id, None)
        self.tell(group)

    def stays_alone(self) -> None:
        """The broker drops all other members: nothing is heard of them."""
        self.broker.members = {self.client_id: self._changed}

    def tell(self, group: Group) -> None:
        """The members of *group* have changed."""
        for changed in list(self.broker.members.values()):
            changed(group)


class Member:
    """A proxy's membership in its groups: its client has it all."""

    def __init__(self, client: Client, **_others: Any) -> None:
        self._client = client
        self.join, self.leave = client.join, client.leave

    def unlisted(self) -> None:
        """Its broker lists whoever joined."""

    async def close(self) -> None:
        """Its groups were left one by one."""
