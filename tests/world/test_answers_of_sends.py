"""An answer about a send is true: stored, not stored, or perhaps stored.

A broker that stops leaves no sender in doubt, one whose disk fails does, and one whose disk is full
does not.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from broker_core.client import BrokerClient
from broker_core.client.producer import Producer
from broker_core.client.queue_moves import is_in_doubt
from broker_core.client.results import SendReceipt, SendStatus
from broker_core.client.sending import with_id
from broker_core.clock import wall_ms
from broker_core.errors import RemotingError
from broker_core.names import Topic
from broker_core.remoting.message import UNIQ_KEY, OutgoingMessage
from broker_core.remoting.message_batch import encode_batch
from broker_core.store.log_scan import LogScan, LogView
from testkit.simulation.world import BROKER_PORT, BrokerNode, ClientNode, ProxyNode, World, simulate
from testkit.thrift_client import COMPACT, ThriftClient
from thrift_idl import producer

TOPIC = Topic("orders")
SENDERS = 20


def _message() -> producer.Message:
    return producer.Message(topic=TOPIC, key="k", body=b"x")


#: Methods of a proxy that send, with their arguments.
METHODS: dict[str, Callable[[], tuple[Any, ...]]] = {
    "sendSync": lambda: (_message(), 1000),
    "sendBatchSync": lambda: ([_message()],),
    "sendEncoded": lambda: (encoded(),),
    "sendDelaySync": lambda: (
        producer.DelayMessage(topic=TOPIC, body=b"x", action=1, timestamp=wall_ms() // 1000 + 60),
        1000,
    ),
    "prepareTransaction": lambda: (producer.PrepareRequest(message=_message(), group="billing"),),
}


def encoded() -> producer.EncodedBatch:
    body = encode_batch([with_id(OutgoingMessage(topic=TOPIC, body=b"x"))])
    return producer.EncodedBatch(topic=TOPIC, count=1, body=body, timeoutMs=1000)


class Sending:
    """A process with many senders, each of a key of its own; native ones, without a proxy."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.receipts: list[SendReceipt] = []
        self.doubts: list[str] = []
        self.errors: list[RemotingError] = []
        self._left = 0

    async def start(self) -> None:
        self.node = self.world.add(ClientNode, "producer")
        await self.node.start()
        self.client = BrokerClient(nameservers=[self.world.nameserver.address], client_id="us@1#1")
        await self.node.do(self.client.start())
        self.producer = Producer(self.client, on_doubt=self._in_doubt)

    def _in_doubt(self, messages: Sequence[OutgoingMessage], error: RemotingError) -> None:
        self.doubts.append(str(error))

    async def one(self, key: str = "k", *, timeout_s: float = 3) -> SendReceipt:
        """Send one message; raise as ``Producer.send``."""
        message = OutgoingMessage(topic=TOPIC, body=b"x", key=key)
        return await self.node.do(self.producer.send(message, timeout_s=timeout_s))

    def begin(self, each: int) -> None:
        """Let every sender send *each* messages, one after the other, without pauses."""
        for number in range(SENDERS):
            self._left += each
            self.node.work(self._send(f"k{number}", each))

    async def _send(self, key: str, count: int) -> None:
        for _ in range(count):
            message = OutgoingMessage(topic=TOPIC, body=b"x", key=key)
            try:
                self.receipts.append(await self.producer.send(message, timeout_s=30))
            except RemotingError as error:
                self.errors.append(error)
            self._left -= 1

    async def ended(self) -> None:
        async with asyncio.timeout(120):
            while self._left:  # noqa: ASYNC110  # virtual time costs nothing
                await asyncio.sleep(0.1)


def stored(node: BrokerNode) -> Counter[str]:
    """Return the ids of the messages in the log of *node*, which does not run."""
    log = LogView.of_files(node.folder / "data" / "commitlog")
    found = Counter(
        each.properties[UNIQ_KEY] for each in LogScan(log, start=0) if UNIQ_KEY in each.properties
    )
    log.close()
    return found


def played(main: Callable[[World], Coroutine[Any, Any, None]], *, seed: int) -> None:
    async def run(world: World) -> None:
        await main(world)
        assert world.failures == []

    simulate(run, seed=seed)


@pytest.mark.parametrize("seed", range(1, 6))
def test_a_broker_that_stops_leaves_no_sender_in_doubt(seed: int) -> None:
    async def main(world: World) -> None:
        await world.start({"broker-a": {}})
        await world.make_topic(TOPIC, 4)
        sending = Sending(world)
        await sending.start()
        sending.begin(200)
        (broker,) = world.brokers
        for _ in range(3):
            await asyncio.sleep(0.05)
            began = world.loop.time()
            await broker.stop()
            assert world.loop.time() - began < 0.5
            await broker.start()
        await sending.ended()
        await broker.stop()
        assert (sending.doubts, sending.errors) == ([], [])
        found = stored(broker)
        assert found == dict.fromkeys((each.message_id for each in sending.receipts), 1)

    played(main, seed=seed)


@pytest.mark.parametrize("role", ["master", "elected"])
def test_sends_that_wait_for_replicas_are_confirmed_before_their_broker_stops(role: str) -> None:
    """Their slaves copy on meanwhile, and end their long polls at once."""

    async def main(world: World) -> None:
        voters = tuple(f"{n}@127.0.0.{n + 2}:{BROKER_PORT}" for n in (1, 2, 3))
        common: dict[str, Any] = {"broker_name": "broker-a"}
        if role == "elected":
            common |= {"role": "elected", "voters": voters}
            brokers = {f"a-{n}": {**common, "broker_id": n} for n in (1, 2, 3)}
        else:
            brokers = {
                "a-0": {**common, "replication": "sync"},
                "a-1": {**common, "role": "slave", "broker_id": 1},
            }
        await world.start(brokers)
        async with asyncio.timeout(60):
            while not any(_is_ready(each) for each in world.brokers):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            while True:
                try:
                    await world.make_topic(TOPIC, 4)
                except RemotingError:
                    await asyncio.sleep(0.2)
                else:
                    break
        master = next(each for each in world.brokers if _is_ready(each))
        sending = Sending(world)
        await sending.start()
        await sending.one()
        sending.begin(20)
        await asyncio.sleep(0.03)
        began = world.loop.time()
        await master.stop()
        assert world.loop.time() - began < 0.5
        assert {each.status for each in sending.receipts} == {SendStatus.OK}
        await master.start()
        await sending.ended()
        assert (sending.doubts, sending.errors) == ([], [])

    played(main, seed=1)


def _is_ready(node: BrokerNode) -> bool:
    return node.replica is not None and node.replica.serves and node.replica.available > 1


@pytest.mark.parametrize("how", ["natively", *METHODS])
@pytest.mark.parametrize("is_full", [False, True])
def test_a_send_is_in_doubt_if_the_disk_fails_but_not_if_it_is_full(
    is_full: bool, how: str
) -> None:
    """A start finds the message that could not be synced; later ones are refused, unwritten."""

    async def main(world: World) -> None:
        world.write_settings([])
        await world.start({"broker-a": {}})
        await world.make_topic(TOPIC, 1)
        await world.add(ProxyNode, "proxy").start()
        sending = Sending(world)
        await sending.start()
        await sending.one()
        (broker,) = world.brokers
        (world.disk.fill if is_full else world.disk.fail_syncs)(broker.folder)

        async def is_doubtful() -> bool:
            if how == "natively":
                with pytest.raises(RemotingError) as refused:
                    await sending.one()
                return is_in_doubt(refused.value)
            code = await sending.node.do(_code_of(how, world.proxies[0]))
            assert code in (10, 70)
            return bool(code == 10)

        assert [await is_doubtful(), await is_doubtful()] == [not is_full, False]
        broker.kill()
        world.disk.free(broker.folder)
        world.disk.repair(broker.folder)
        assert len(stored(broker)) == (1 if is_full else 2)

    played(main, seed=1)


async def _code_of(method: str, proxy: ProxyNode) -> int:
    host, _, port = proxy.thrift.partition(":")
    client = ThriftClient(*await asyncio.open_connection(host, int(port)), COMPACT)
    try:
        return int((await client.call(method, *METHODS[method]())).code)
    finally:
        await client.close()
