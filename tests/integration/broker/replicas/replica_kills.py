"""A master and two slaves in their own processes, killed and stopped while producers send."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from broker_core.client.broker_client import BrokerClient
from broker_core.client.connection_pool import ConnectionPool
from broker_core.client.results import SendStatus
from broker_core.errors import RemotingError
from broker_core.names import QueueName, Topic
from broker_core.nameserver.server import NameServer
from broker_core.remoting.codes import RequestCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.headers import PullFlag, PullMessageHeader
from broker_core.remoting.message import OutgoingMessage, decode_messages
from testkit.eventually import until
from tests.support.forked_broker import ForkedBroker, forked_brokers

TOPIC = Topic("orders")
QUEUES = 4
SENDERS = 8
SEGMENT_BYTES = 128 * 1024


@dataclass(slots=True)
class Processes:
    """Brokers by number; ``answered`` has bodies by queue and offset of sends answered OK."""

    folder: Path
    nameserver: NameServer
    forks: list[ForkedBroker]
    chooser: random.Random
    addresses: dict[int, str] = field(default_factory=dict)
    answered: dict[int, dict[int, bytes]] = field(default_factory=dict)
    pool: ConnectionPool = field(default_factory=ConnectionPool)

    async def start(self, number: int, role: str, **settings: Any) -> None:
        """Start a broker and wait until it serves."""
        await self.forks[number].start(
            data=self.folder / str(number),
            listen=self.addresses.get(number, "127.0.0.1:0"),
            nameserver=[self.nameserver.address],
            role=role,
            broker_id=0 if role == "master" else number + 1,
            segment_bytes=SEGMENT_BYTES,
            max_message_bytes=50_000,
            **settings,
        )
        self.addresses[number] = await self.forks[number].ready()

    async def kill(self, number: int) -> None:
        """Kill a broker with SIGKILL."""
        await self.forks[number].kill()

    async def client(self) -> BrokerClient:
        client = BrokerClient(nameservers=[self.nameserver.address], client_id="c")
        await client.start()
        return client

    async def create_topic(self) -> None:
        client = await self.client()
        await client.create_topic(TOPIC, queues=QUEUES)
        await client.close()

    async def send_until_it_ends(self, sender: int) -> None:
        """Send to the master, one message after the other, until it is gone."""
        chooser = random.Random(self.chooser.random())
        client = await self.client()
        queue = QueueName(TOPIC, "broker-a", sender % QUEUES)
        with suppress(RemotingError):
            while True:
                body = chooser.randbytes(chooser.randint(16, 2000))
                receipt = await client.send(queue, OutgoingMessage(TOPIC, body), timeout_s=8)
                if receipt.status is SendStatus.OK:
                    self.answered.setdefault(queue.queue_id, {})[receipt.offset] = body
        await client.close()

    @property
    def count(self) -> int:
        """Number of sends answered OK."""
        return sum(map(len, self.answered.values()))

    async def served(self, number: int) -> dict[int, dict[int, bytes]]:
        """Return all messages that a broker serves: bodies by queue and offset."""
        return {queue_id: await self._queue(number, queue_id) for queue_id in range(QUEUES)}

    async def _queue(self, number: int, queue_id: int) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        while True:
            header = PullMessageHeader(
                consumer_group="readers",
                topic=TOPIC,
                queue_id=queue_id,
                queue_offset=len(found),
                max_msg_nums=4096,
                sys_flag=PullFlag.SUBSCRIPTION,
                commit_offset=0,
                suspend_timeout_millis=0,
                subscription="*",
                sub_version=0,
            )
            answer = await self.pool.request(
                self.addresses[number],
                RemotingCommand(RequestCode.PULL_MESSAGE, ext=header.to_ext()),
                timeout_s=10,
            )
            if answer.code != 0:
                return found
            for message in decode_messages(answer.body, check_crc=True):
                found[message.queue_offset] = message.body

    def lost(self, served: dict[int, dict[int, bytes]]) -> int:
        """Return the number of sends answered OK that are not served as they were sent."""
        return sum(
            served.get(queue_id, {}).get(offset) != body
            for queue_id, sent in self.answered.items()
            for offset, body in sent.items()
        )

    async def until_all_served(self, number: int) -> None:
        """Return once a broker serves all messages answered OK."""
        await self.until_served(number, but=0)

    async def until_served(self, number: int, *, but: int) -> None:
        """Return once a broker serves all messages answered OK, except *but* at most."""

        async def there() -> bool:
            try:
                return self.lost(await self.served(number)) <= but
            except RemotingError:  # it is starting, or reopening its store
                return False

        await until(there)

    def log_bytes(self, number: int) -> bytes:
        """Return a broker's log, without the space allocated after its end."""
        files = sorted((self.folder / str(number) / "commitlog").glob("[0-9]*"))
        return b"".join(path.read_bytes() for path in files if path.name.isdigit()).rstrip(b"\0")


@asynccontextmanager
async def processes(folder: Path, *, seed: int, brokers: int = 3) -> AsyncIterator[Processes]:
    """Start *brokers* processes that fork brokers, and a nameserver here."""
    nameserver = NameServer("127.0.0.1", 0)
    await nameserver.start()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(nameserver.close)
        forks = [await stack.enter_async_context(forked_brokers()) for _ in range(brokers)]
        running = Processes(folder, nameserver, forks, random.Random(seed))
        stack.push_async_callback(running.pool.close)
        yield running
        await asyncio.sleep(0)
