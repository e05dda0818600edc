"""A broker killed with SIGKILL while transactions begin, end and are checked.

ORDERLANE_KILLS=80 kills it more often, in half a minute; ORDERLANE_SEED=N chooses another run.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from broker_core.client import BrokerClient, TransactionProducer, TransactionState
from broker_core.errors import RemotingError
from broker_core.names import Group, QueueName, Topic
from broker_core.nameserver.server import NameServer
from broker_core.remoting.message import OutgoingMessage, StoredMessage
from broker_core.tasks import spawn
from tests.support.forked_broker import ForkedBroker, forked_brokers

pytestmark = pytest.mark.sockets

SEED = int(os.environ.get("ORDERLANE_SEED", "1"))
KILLS = int(os.environ.get("ORDERLANE_KILLS", "6"))
TOPIC = Topic("invoices")
GROUP = Group("billing")
HALF = QueueName(Topic("RMQ_SYS_TRANS_HALF_TOPIC"), "broker-a", 0)
DECISIONS = QueueName(Topic("RMQ_SYS_TRANS_OP_HALF_TOPIC"), "broker-a", 0)
COMMIT, ROLLBACK = TransactionState.COMMIT, TransactionState.ROLLBACK


@dataclass
class Work:
    """The producers' own work; none for half messages without an answer."""

    chooser: random.Random
    running: set[str] = field(default_factory=set)
    outcomes: dict[str, TransactionState] = field(default_factory=dict)
    confirmed: set[str] = field(default_factory=set)
    asked: set[str] = field(default_factory=set)
    stored: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    """One for each half message that was stored."""

    async def check(self, half: StoredMessage) -> TransactionState:
        self.asked.add(half.message_id)
        if half.message_id in self.running or self.chooser.random() < 0.3:
            return TransactionState.UNKNOWN
        return self.outcomes.get(half.message_id, ROLLBACK)

    async def send(self, producer: TransactionProducer) -> None:
        """Send until the broker is gone; leave a third of the transactions for its checks."""
        with suppress(RemotingError):
            while True:
                name = self.chooser.randbytes(16).hex().upper()
                message = OutgoingMessage(
                    TOPIC, self.chooser.randbytes(200), properties={"UNIQ_KEY": name}
                )
                self.running.add(name)
                try:
                    transaction = await producer.prepare(message, timeout_s=5)
                    self.stored.release()
                    outcome = self.outcomes[name] = self.chooser.choice((COMMIT, ROLLBACK))
                finally:
                    self.running.discard(name)
                match self.chooser.randrange(3), outcome:
                    case 0, _:
                        continue
                    case _, TransactionState.COMMIT:
                        await transaction.commit(timeout_s=5)
                    case _:
                        await transaction.rollback(timeout_s=5)
                self.confirmed.add(name)


async def start(broker: ForkedBroker, data: Path, nameserver: str) -> None:
    await broker.start(
        data=data,
        listen="127.0.0.1:0",
        nameserver=[nameserver],
        segment_bytes=128 * 1024,
        max_message_bytes=50_000,
        transaction_timeout_s=0.02,
        transaction_check_interval_s=0.05,
        transaction_check_max=10_000,
    )


async def read(client: BrokerClient, queue: QueueName) -> list[StoredMessage]:
    found, offset = [], await client.min_offset(queue)
    while offset < await client.max_offset(queue):
        pulled = await client.pull(queue, group=GROUP, offset=offset, suspend_ms=0)
        found += pulled.messages
        offset = pulled.next_offset
    return found


async def all_decided(client: BrokerClient) -> None:
    """Return once each transaction has its decision."""
    while True:
        ends = await client.max_offset(DECISIONS)
        numbers = {
            half.properties.get("TRAN_PREPARED_QUEUE_OFFSET", str(half.queue_offset))
            for half in await read(client, HALF)
        }
        decided = {record.body.decode() for record in await read(client, DECISIONS)}
        if numbers <= decided and ends == await client.max_offset(DECISIONS):
            return
        await asyncio.sleep(0.05)


@pytest.mark.slow
async def test_transactions_end_as_their_producers_say_over_kills(tmp_path: Path) -> None:
    work, data = Work(random.Random(SEED)), tmp_path / "data"
    nameserver = NameServer("127.0.0.1", 0)
    await nameserver.start()
    async with forked_brokers() as broker:
        for life in range(KILLS + 1):
            await start(broker, data, nameserver.address)
            await broker.ready()
            client = BrokerClient(
                nameservers=[nameserver.address],
                client_id=f"producer-{life}",
                request_timeout_s=20,
            )
            await client.start()
            await client.create_topic(TOPIC, queues=2)
            producer = TransactionProducer(client, group=GROUP, check=work.check)
            await producer.start([TOPIC])
            if life == KILLS:
                break
            senders = [spawn(work.send(producer), name="sender") for _ in range(6)]
            for _ in range(work.chooser.randrange(10, 120)):
                await work.stored.acquire()
            await broker.kill()
            await asyncio.gather(*senders)
            await producer.close()
            await client.close()
        async with asyncio.timeout(60):
            await all_decided(client)
        queues = [QueueName(TOPIC, "broker-a", queue_id) for queue_id in range(2)]
        seen = Counter([m.message_id for queue in queues for m in await read(client, queue)])
        committed = {name for name, outcome in work.outcomes.items() if outcome is COMMIT}
        assert seen == Counter(committed)
        assert len(work.confirmed) > KILLS
        assert work.asked - work.confirmed
        await producer.close()
        await client.close()
    await nameserver.close()
