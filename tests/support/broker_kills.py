"""Kill a broker repeatedly while producers send, and check its data after each kill.

1. Every message with a confirmed send is at its offset, byte-equal, unless retention deleted it.

2. Offsets of a queue have no gaps.

3. Consume queues and log agree: each entry refers to a message of its queue and offset, and each
message has its entry.

4. A second topic is deleted and created again meanwhile: see ``topic_churn``.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from structlog.testing import capture_logs

from broker_core.client.broker_client import BrokerClient
from broker_core.errors import RemotingError
from broker_core.names import Group, QueueName, Topic
from broker_core.nameserver.server import NameServer
from broker_core.remoting.message import OutgoingMessage, decode_message
from broker_core.store.message_store import MessageStore
from broker_core.store.reader import StoreReader
from broker_core.tasks import spawn
from tests.support.forked_broker import ForkedBroker, forked_brokers
from tests.support.topic_churn import TopicChurn

TOPIC = Topic("orders")
GROUP = Group("billing")
QUEUES = 4
SENDERS = 12
SEGMENT_BYTES = 128 * 1024
KEEP_BYTES = 500_000


@dataclass(slots=True)
class BrokerKills:
    """Consecutive starts on one data folder. With *retention*, all but the newest 500 kB are
    deleted.
    """

    folder: Path
    chooser: random.Random
    flush: str = "sync"
    retention: bool = False
    #: Bodies of confirmed sends, by offset.
    answered: dict[QueueName, dict[int, bytes]] = field(default_factory=lambda: defaultdict(dict))
    kills: int = 0
    churn: TopicChurn = field(init=False)
    _broker: ForkedBroker = field(init=False)
    _nameserver: NameServer = field(init=False)

    async def run(self, kills: int) -> None:
        """Kill the broker *kills* times and check after each kill."""
        self.churn = TopicChurn(random.Random(self.chooser.random()))
        self._nameserver = NameServer("127.0.0.1", 0)
        await self._nameserver.start()
        try:
            async with forked_brokers() as self._broker:
                await self._create_topic()
                while self.kills < kills:
                    await self._life()
                    self.kills += 1
                    if self.kills % 10 == 0 or self.kills == kills:
                        check_folder(self.folder, self.answered, retention=self.retention)
        finally:
            await self._nameserver.close()

    @property
    def messages(self) -> int:
        """Return the number of confirmed sends."""
        return sum(map(len, self.answered.values()))

    async def _life(self) -> None:
        if self.chooser.random() < 0.1:  # this start has to read the whole log
            for path in self.folder.glob("checkpoint.json*"):
                path.unlink()
        await self._start()
        if self.chooser.random() < 0.25:  # killed while it starts, maybe in its recovery
            await asyncio.sleep(self.chooser.uniform(0, 0.03))
            await self._broker.kill()
            return
        await self._broker.ready()
        client = BrokerClient(nameservers=[self._nameserver.address], client_id=str(self.kills))
        await client.start()
        for queue, sent in self.answered.items():
            await check_queue(client, queue, sent, tail=100)
        await self.churn.check(client)
        senders = [spawn(self._send(client, n), name=f"sender {n}") for n in range(SENDERS)]
        senders.append(spawn(self.churn.go_on(client), name="churn"))
        await asyncio.sleep(self.chooser.uniform(0.01, 0.25))
        if self.chooser.random() < 0.2:  # killed while it stops
            self._broker.signal(signal.SIGTERM)
            await asyncio.sleep(self.chooser.uniform(0, 0.02))
        await self._broker.kill()
        await client.close()
        await asyncio.gather(*senders)

    async def _start(self) -> None:
        await self._broker.start(
            data=self.folder,
            listen="127.0.0.1:0",
            nameserver=[self._nameserver.address],
            flush=self.flush,
            segment_bytes=SEGMENT_BYTES,
            max_message_bytes=50_000,
            retention_bytes=KEEP_BYTES if self.retention else None,
        )

    async def _create_topic(self) -> None:
        await self._start()
        await self._broker.ready()
        client = BrokerClient(nameservers=[self._nameserver.address], client_id="topic-maker")
        await client.start()
        await client.create_topic(TOPIC, queues=QUEUES)
        await client.close()
        await self._broker.kill()

    async def _send(self, client: BrokerClient, sender: int) -> None:
        """Send batches of one or five messages, each followed by a commit, until the broker is
        gone.
        """
        chooser = random.Random(self.chooser.random())
        queue = QueueName(TOPIC, "broker-a", sender % QUEUES)
        with suppress(RemotingError):
            while True:
                messages = [
                    OutgoingMessage(TOPIC, chooser.randbytes(chooser.randint(16, 8000)))
                    for _ in range(chooser.choice((1, 1, 1, 5)))
                ]
                if len(messages) == 1:
                    receipts = [await client.send(queue, messages[0], timeout_s=5)]
                else:
                    receipts = await client.send_batch(queue, messages, timeout_s=5)
                for receipt, message in zip(receipts, messages, strict=True):
                    self.answered[queue][receipt.offset] = message.body
                await client.commit_offset(GROUP, queue, receipts[-1].offset)


async def check_queue(
    client: BrokerClient, queue: QueueName, sent: dict[int, bytes], *, tail: int
) -> None:
    """Check the newest *tail* messages of *queue* over the wire."""
    low, high = await client.min_offset(queue), await client.max_offset(queue)
    newest = max(sent, default=-1)  # retention may have deleted all
    assert high > newest, f"{queue} ends at {high}, {newest} was answered"
    committed = await client.committed_offset(GROUP, queue)
    assert committed is None or committed <= high
    offset = max(low, high - tail)
    while offset < high:
        pulled = await client.pull(queue, group=GROUP, offset=offset, suspend_ms=0)
        if not pulled.messages:
            assert offset < pulled.next_offset
            offset = pulled.next_offset  # deleted by retention
        for message in pulled.messages:
            assert message.queue_offset == offset
            assert message.body == sent.get(offset, message.body), f"{queue} at {offset}"
            offset += 1


def check_folder(
    folder: Path, answered: dict[QueueName, dict[int, bytes]], *, retention: bool
) -> None:
    """Check the data folder as the next start will find it; no broker runs now."""
    with capture_logs():
        store = MessageStore(folder, segment_bytes=SEGMENT_BYTES)
    try:
        begin, end = store.reader.log_range()
        if begin:
            assert retention
            assert end - begin >= KEEP_BYTES
        entries = 0
        for queue_id in range(QUEUES):
            sent = answered[QueueName(TOPIC, "broker-a", queue_id)]
            low = store.reader.min_offset(TOPIC, queue_id)
            high = store.reader.end_offset(TOPIC, queue_id)
            assert retention or low == 0
            assert high > max(sent, default=-1)
            entries += high - low
            found = store.reader.entries(TOPIC, queue_id, low, count=high - low)
            for offset, (place, size, _) in zip(range(low, high), found, strict=True):
                message = decode_message(store.reader.record(place, size), check_crc=True)
                assert (message.topic, message.queue_id, message.queue_offset, message.size) == (
                    TOPIC, queue_id, offset, size,
                )  # fmt: skip
                assert message.body == sent.get(offset, message.body)
        assert entries == _messages_in_log(store.reader)
    finally:
        store.abandon()


def _messages_in_log(reader: StoreReader) -> int:
    """Count the messages of the topic in the log, record by record."""
    place, end = reader.log_range()
    count = 0
    while place < end:
        message = reader.record_at(place)
        if message is None:  # a filler: continue in the next file
            place = (place // SEGMENT_BYTES + 1) * SEGMENT_BYTES
            continue
        count += message.topic == TOPIC
        place += message.size
    assert place == end
    return count
