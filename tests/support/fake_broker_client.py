"""A BrokerClient with queues in memory, for tests of the bulk and producer services."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from broker_core.client import (
    EncodedReceipt,
    PulledRecords,
    PullResult,
    PullStatus,
    QueueRange,
    SendReceipt,
    SendStatus,
    TopicLife,
)
from broker_core.errors import BrokerError
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.codes import RequestCode, ResponseCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.message import OutgoingMessage, StoredMessage
from broker_core.remoting.message_batch import decode_batch
from broker_core.remoting.record_encoding import BatchEntry
from proxy.downstream.bulk.service import BulkService
from testkit.lanes import TOPIC
from testkit.messages import record
from tests.support.serving import Serving, serving

_PRODUCERS = Group("producers")


class FakeBrokerClient:
    """Raises ``fails[method]`` instead of answering; keys are ``method`` or ``(method, queue)``."""

    def __init__(self, **queues: int) -> None:
        """Create topics with their number of queues, all on broker-a."""
        self.stored: dict[QueueName, list[StoredMessage]] = {
            QueueName(Topic(topic), "broker-a", queue_id): []
            for topic, count in queues.items()
            for queue_id in range(count)
        }
        self.sent: list[tuple[QueueName, list[OutgoingMessage]]] = []
        self.encoded: list[tuple[QueueName, list[BatchEntry]]] = []
        self.most_encoded_bytes = 1 << 30
        self.timeouts: list[float | None] = []
        self.committed: dict[tuple[Group, QueueName], int] = {}
        self.commit_lives: dict[QueueName, int | None] = {}
        self.lowest: dict[QueueName, int] = {}
        self.lives: dict[Topic, int] = {}
        self.client_id = "this"
        self.members: list[str] = []
        self.fails: dict[Any, Exception] = {}
        self.pulls: list[dict[str, Any]] = []
        self.most_pulled = 1 << 30
        self.created: list[tuple[Topic, int, str | None]] = []
        self.status = SendStatus.OK
        self.go_on = asyncio.Event()  # while cleared, a second creation of a topic waits
        self.go_on.set()
        self._arrival = asyncio.Event()

    def store(self, *messages: StoredMessage) -> None:
        """Append messages and wake waiting pulls."""
        for each in messages:
            queue = QueueName(each.topic, "broker-a", each.queue_id)
            assert each.queue_offset == len(self.stored[queue])
            self.stored[queue].append(each)
        self._arrival.set()
        self._arrival = asyncio.Event()

    # ---- as BrokerClient ------------------------------------------------------------------------

    async def queues(self, topic: Topic, *, fresh: bool = False) -> list[QueueName]:
        self._check("queues", topic)
        found = sorted(queue for queue in self.stored if queue.topic == topic)
        if not found:
            raise BrokerError(ResponseCode.TOPIC_NOT_EXIST, f"no topic {topic}", request="route")
        return found

    async def writable_queues(self, topic: Topic, *, fresh: bool = False) -> list[QueueName]:
        self._check("writable_queues", topic)
        return await self.queues(topic)

    async def topics(self) -> list[Topic]:
        return sorted({queue.topic for queue in self.stored})

    async def create_topic(
        self, topic: Topic, *, queues: int, broker: str | None = None, perm: int = 6
    ) -> None:
        self.created.append((topic, queues, broker))
        if len(self.created) > 1:
            await self.go_on.wait()
        for queue_id in range(queues):
            self.stored[QueueName(topic, broker or "broker-a", queue_id)] = []

    async def pull(
        self,
        queue: QueueName,
        *,
        group: Group,
        offset: int,
        max_messages: int = 256,
        suspend_ms: int = 15_000,
        tags: str = "*",
        timeout_s: float | None = None,
    ) -> PullResult:
        self.pulls.append({"queue": queue, "offset": offset, "max_messages": max_messages})
        self._check("pull", queue)
        if queue not in self.stored:
            raise BrokerError(ResponseCode.TOPIC_NOT_EXIST, f"no queue {queue}", request="pull")
        end, low = len(self.stored[queue]), self.lowest.get(queue, 0)
        if not low <= offset <= end:
            nearest = min(max(offset, low), end)
            return self._result(queue, PullStatus.OFFSET_ILLEGAL, [], nearest)
        if offset == end and suspend_ms:
            try:
                async with asyncio.timeout(suspend_ms / 1000):
                    while offset == len(self.stored[queue]):
                        await self._arrival.wait()
            except TimeoutError:
                return self._result(queue, PullStatus.NO_NEW, [], offset)
        found = self.stored[queue][offset : offset + max_messages]
        status = PullStatus.FOUND if found else PullStatus.NO_NEW
        return self._result(queue, status, found, offset + len(found))

    async def pull_records(
        self,
        queue: QueueName,
        *,
        group: Group,
        offset: int,
        max_messages: int,
        max_bytes: int | None = None,
        suspend_ms: int = 0,
    ) -> PulledRecords:
        """Return at most ``most_pulled`` messages that fit into *max_bytes*, but at least one."""
        most = min(max_messages, self.most_pulled)
        pulled = await self.pull(
            queue, group=group, offset=offset, max_messages=most, suspend_ms=suspend_ms
        )
        records: list[bytes] = []
        for each in map(record, pulled.messages):
            if records and max_bytes is not None and sum(map(len, records)) + len(each) > max_bytes:
                break
            records.append(each)
        found = pulled.status is PullStatus.FOUND
        return PulledRecords(
            status=pulled.status,
            records=b"".join(records),
            next_offset=offset + len(records) if found else pulled.next_offset,
            min_offset=pulled.min_offset,
            max_offset=pulled.max_offset,
        )

    async def consumer_ids(self, group: Group, topic: Topic) -> list[str]:
        self._check("consumer_ids", topic)
        return self.members

    async def broker_start_ms(self, broker: str) -> int:
        self._check("broker_start_ms", broker)
        return 1

    async def min_offset(self, queue: QueueName) -> int:
        self._check("min_offset", queue)
        return self.lowest.get(queue, 0)

    async def max_offset(self, queue: QueueName) -> int:
        self._check("max_offset", queue)
        return len(self.stored[queue])

    async def queue_ranges(
        self, queues: Iterable[QueueName], *, group: Group | None = None
    ) -> dict[QueueName, QueueRange]:
        return {
            queue: QueueRange(
                await self.min_offset(queue),
                await self.max_offset(queue),
                None if group is None else self.committed.get((group, queue)),
                await self.life(queue),
            )
            for queue in queues
        }

    async def life(self, queue: QueueName) -> int | None:
        return self.lives.get(queue.topic)

    async def topic_life(self, queue: QueueName) -> TopicLife:
        return TopicLife(await self.life(queue), {})

    async def offset_at(self, queue: QueueName, timestamp_ms: int) -> int:
        times = [each.store_ms for each in self.stored[queue]]
        return sum(time < timestamp_ms for time in times)

    async def committed_offset(self, group: Group, queue: QueueName) -> int | None:
        self._check("committed_offset", queue)
        return self.committed.get((group, queue))

    async def commit_offset(
        self, group: Group, queue: QueueName, offset: int, *, life: int | None = None, **_: Any
    ) -> None:
        self._check("commit_offset", queue)
        self.committed[group, queue] = offset
        self.commit_lives[queue] = life

    def serve(self, code: RequestCode, handler: Any) -> None:
        """Serve no requests of brokers: there are none."""

    def call_on_connect(self, call: Any) -> None:
        """Never call *call*: there are no connections."""

    def knows_route(self, topic: Topic) -> bool:
        return True

    async def broker_names(self, topic: Topic) -> list[str]:
        return ["broker-a"]

    async def heartbeat(self, broker: str, said: Any) -> None:
        self._check("heartbeat", broker)

    async def unregister(self, broker: str, **_: Any) -> None:
        self._check("unregister", broker)

    @property
    def requests(self) -> FakeBrokerClient:
        """Return the sender of other requests, which is this client."""
        return self

    async def ask(
        self, broker: str, code: RequestCode, ext: Mapping[str, str], **_: Any
    ) -> RemotingCommand:
        """Answer any request with success."""
        self._check("ask", broker)
        return RemotingCommand(code)

    async def send(
        self,
        queue: QueueName,
        message: OutgoingMessage,
        *,
        group: Group = _PRODUCERS,
        timeout_s: float | None = None,
        life: int | None = None,
    ) -> SendReceipt:
        self.timeouts.append(timeout_s)
        return (await self.send_batch(queue, [message]))[0]

    async def send_batch(
        self,
        queue: QueueName,
        messages: Sequence[OutgoingMessage],
        *,
        group: Group = _PRODUCERS,
        timeout_s: float | None = None,
        life: int | None = None,
    ) -> list[SendReceipt]:
        self._check("send", queue)
        self.sent.append((queue, list(messages)))
        return [
            SendReceipt(
                queue=queue,
                offset=index,
                message_id=message.properties["UNIQ_KEY"],
                offset_message_id="0",
                status=self.status,
            )
            for index, message in enumerate(messages)
        ]

    async def send_encoded(
        self,
        queue: QueueName,
        body: bytes,
        *,
        born_ms: int,
        group: Group = _PRODUCERS,
        timeout_s: float | None = None,
    ) -> EncodedReceipt:
        """Note the messages; a body of more than ``most_encoded_bytes`` is refused."""
        self.timeouts.append(timeout_s)
        self._check("send", queue)
        if len(body) > self.most_encoded_bytes:
            raise BrokerError(ResponseCode.MESSAGE_ILLEGAL, "too large", request="send")
        offset = sum(len(entries) for place, entries in self.encoded if place == queue)
        self.encoded.append((queue, decode_batch(body)))
        return EncodedReceipt(queue, offset, self.status)

    # ---- inside ---------------------------------------------------------------------------------

    def _check(self, method: str, place: object) -> None:
        error = self.fails.get(method) or self.fails.get((method, place))
        if error is not None:
            raise error

    def _result(
        self, queue: QueueName, status: PullStatus, messages: list[StoredMessage], next_offset: int
    ) -> PullResult:
        return PullResult(
            status=status,
            messages=messages,
            next_offset=next_offset,
            min_offset=self.lowest.get(queue, 0),
            max_offset=len(self.stored[queue]),
        )


def queue(queue_id: int, topic: str = TOPIC) -> QueueName:
    """Return a queue on broker-a."""
    return QueueName(Topic(topic), "broker-a", queue_id)


async def _never(_group: Group, _topic: Topic) -> bool:
    return False


@asynccontextmanager
async def bulk(
    client: FakeBrokerClient, *groups: Any, **options: Any
) -> AsyncIterator[tuple[Serving, BulkService]]:
    """Start a server whose bulk service reads from *client*."""
    async with serving(*groups, **options) as it:
        service = BulkService(
            client,  # type: ignore[arg-type]
            it.lanes,
            it.limits,
            served_ns=it.consumers.last_served_ns,
            has_owner=_never,
        )
        it.serve(service.entries())
        yield it, service
