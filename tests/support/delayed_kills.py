"""Kill a broker repeatedly while delayed messages wait, come due, are moved and recalled.

1. A delayed message with a confirmed send arrives exactly once, at any time of the kill.

2. No message arrives early.

3. A message with a confirmed recall never arrives.

Sends and recalls without a reply may or may not have happened.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from structlog.testing import capture_logs

from broker_core.client.broker_client import BrokerClient
from broker_core.clock import wall_ms
from broker_core.errors import BrokerError, RemotingError
from broker_core.names import DELAY_TOPICS, TIMER_TOPIC, Group, QueueName, Topic
from broker_core.nameserver.server import NameServer
from broker_core.remoting.codes import ResponseCode
from broker_core.remoting.message import OutgoingMessage, decode_messages
from broker_core.store.message_store import MessageStore
from broker_core.tasks import spawn
from tests.support.forked_broker import ForkedBroker, forked_brokers

TOPIC = Topic("orders")
GROUP = Group("billing")
QUEUES = 4
SENDERS = 6
SEGMENT_BYTES = 256 * 1024
KEEP_BYTES = 1_500_000  # written over several starts, or a check would miss deleted files


@dataclass(slots=True)
class DelayedKills:
    """Consecutive starts on one data folder."""

    folder: Path
    chooser: random.Random
    longest_delay_ms: int = 8000
    kills: int = 0
    answered: set[int] = field(default_factory=set)
    recalled: set[int] = field(default_factory=set)
    in_doubt: set[int] = field(default_factory=set)  # recalls without a reply
    came: Counter[int] = field(default_factory=Counter)
    moved: int = 0  # copies made for retention
    killed_while_waiting: int = 0
    _read_to: Counter[int] = field(default_factory=Counter)
    _timer_read_to: int = 0
    _numbers: itertools.count[int] = field(default_factory=itertools.count)
    _broker: ForkedBroker = field(init=False)
    _nameserver: NameServer = field(init=False)

    async def run(self, kills: int) -> None:
        """Kill the broker *kills* times, check after each kill, then wait for the remaining
        messages.
        """
        self._nameserver = NameServer("127.0.0.1", 0)
        await self._nameserver.start()
        try:
            async with forked_brokers() as self._broker:
                await self._life(senders=0)  # creates the topic
                while self.kills < kills:
                    await self._life(senders=SENDERS)
                    self.kills += 1
                    self._check()
                await self._last_life()
        finally:
            await self._nameserver.close()
        assert self._check() == 0, "all came due"
        missing = self.answered - self.recalled - self.in_doubt - self.came.keys()
        assert not missing, f"{len(missing)} of {len(self.answered)} answered messages are lost"

    @property
    def repeats(self) -> int:
        """Return the number of duplicate arrivals."""
        return sum(count - 1 for count in self.came.values())

    async def _life(self, *, senders: int) -> None:
        client = await self._start()
        if not senders:
            await client.create_topic(TOPIC, queues=QUEUES)
        sending = [spawn(self._send(client), name=f"sender {n}") for n in range(senders)]
        if senders:
            await asyncio.sleep(self.chooser.uniform(0.02, 0.4))
        await self._broker.kill()
        await client.close()
        await asyncio.gather(*sending)

    async def _last_life(self) -> None:
        client = await self._start()
        await asyncio.sleep(self.longest_delay_ms / 1000)
        queues = [QueueName(TOPIC, "broker-a", n) for n in range(QUEUES)]
        before = -1
        while before != (now := sum([await client.max_offset(queue) for queue in queues])):
            before = now
            await asyncio.sleep(0.5)
        await self._broker.kill()
        await client.close()

    async def _start(self) -> BrokerClient:
        await self._broker.start(
            data=self.folder,
            listen="127.0.0.1:0",
            nameserver=[self._nameserver.address],
            segment_bytes=SEGMENT_BYTES,
            max_message_bytes=50_000,
            retention_bytes=KEEP_BYTES,
            message_delay_level="1s",
        )
        await self._broker.ready()
        client = BrokerClient(nameservers=[self._nameserver.address], client_id=str(self.kills))
        await client.start()
        return client

    async def _send(self, client: BrokerClient) -> None:
        """Send delayed messages with plain ones in between, and recall one now and then."""
        chooser = random.Random(self.chooser.random())
        queue = QueueName(TOPIC, "broker-a", chooser.randrange(QUEUES))
        with suppress(RemotingError):
            while True:
                number = next(self._numbers)
                delay_ms = chooser.choice((1, 50, 300, 1000, self.longest_delay_ms))
                due_ms = wall_ms() + delay_ms
                how = {"TIMER_DELIVER_MS": str(due_ms)}
                if delay_ms == 1000:
                    how = {"DELAY": "1"}
                body = b"%d %d " % (number, due_ms) + bytes(chooser.randint(16, 2000))
                receipt = await client.send(
                    queue, OutgoingMessage(TOPIC, body, properties=how), timeout_s=5
                )
                self.answered.add(number)
                if receipt.recall_handle and chooser.random() < 0.1:
                    await self._recall(client, number, receipt.recall_handle)
                await client.send(queue, OutgoingMessage(TOPIC, bytes(2000)), timeout_s=5)
                await asyncio.sleep(chooser.uniform(0, 0.02))

    async def _recall(self, client: BrokerClient, number: int, handle: str) -> None:
        self.in_doubt.add(number)
        try:
            await client.delays.recall("broker-a", TOPIC, handle, group=GROUP, timeout_s=5)
        except BrokerError as error:
            if error.code != ResponseCode.ILLEGAL_OPERATION:
                raise AssertionError("a recall is granted, or refused as too late") from error
        else:
            self.recalled.add(number)
        self.in_doubt.discard(number)

    def _check(self) -> int:
        """Read the folder as the next start will find it, and return the number of waiting
        messages.
        """
        with capture_logs():
            store = MessageStore(self.folder, segment_bytes=SEGMENT_BYTES)
        try:
            for queue_id in range(QUEUES):
                self._read_on(store, queue_id)
            waiting = sum(1 for _ in store.delays.waiting({}))
            self._count_moved(store)
            self.killed_while_waiting += waiting > 0
        finally:
            store.abandon()
        assert not self.recalled & self.came.keys(), "a recalled message came"
        assert self.repeats == 0, f"{self.repeats} messages came again"
        return waiting

    def _count_moved(self, store: MessageStore) -> None:
        """Assert that copies in the timer's queue replace another copy, and that recall marks have
        no body.
        """
        start, end = self._timer_read_to, store.reader.end_offset(TIMER_TOPIC, 0)
        for offset in range(max(start, store.reader.min_offset(TIMER_TOPIC, 0)), end):
            (message,) = decode_messages(
                store.reader.read(TIMER_TOPIC, 0, offset, max_messages=1).body
            )
            self.moved += message.prepared_offset < 0 and bool(message.body)
        self._timer_read_to = end

    def _read_on(self, store: MessageStore, queue_id: int) -> None:
        offset = self._read_to[queue_id]
        while offset < (end := store.reader.end_offset(TOPIC, queue_id)):
            found = store.reader.read(TOPIC, queue_id, offset, max_messages=end - offset)
            assert found.messages, f"retention deleted {offset} before it was looked at"
            for message in decode_messages(found.body):
                assert message.topic not in DELAY_TOPICS
                if message.body[:1] != b"\0":
                    number, due_ms = map(int, message.body.split()[:2])
                    assert message.store_ms >= due_ms, f"{due_ms - message.store_ms} ms early"
                    self.came[number] += 1
            offset = found.next_offset
        self._read_to[queue_id] = offset
