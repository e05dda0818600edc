"""Our nameserver with Apache RocketMQ's broker, and our broker with its nameserver."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from broker_core.broker import Broker, BrokerSettings
from broker_core.client.broker_client import BrokerClient
from broker_core.errors import BrokerError, NotConnected
from broker_core.names import Group, QueueName, Topic
from broker_core.nameserver.server import NameServer
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.message import OutgoingMessage
from broker_core.remoting_channel import Answer, RemotingChannel
from proxy.live.group_store import GroupStore
from proxy.live.store_keys import StoreKeys
from proxy.live.stored_group import NAMESPACE, group_of
from testkit.eventually import eventually
from testkit.lanes import group_settings
from testkit.rocketmq import VERSIONS, OfficialCluster

FIRST, SECOND, LAST = Topic("first"), Topic("second"), Topic("last")
GROUP = Group("readers")


class CountingNameServer(NameServer):
    """Our nameserver, counting how often a broker asked whether to register again."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = self.compressed = 0

    @property
    def topics(self) -> list[Topic]:
        return self._routes.topics()

    def _compare_version(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        self.asked += 1
        return super()._compare_version(request, channel)

    def _register(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        self.compressed += bytes(request.body[:1]) == b"\x78"  # zlib's first byte
        return super()._register(request, channel)


@asynccontextmanager
async def client_of(nameserver: str) -> AsyncIterator[BrokerClient]:
    client = BrokerClient(nameservers=[nameserver], client_id="one")
    await client.start()
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def running(settings: BrokerSettings) -> AsyncIterator[None]:
    broker = Broker(settings)
    await broker.start()
    try:
        yield
    finally:
        await broker.close()


async def assert_carries(client: BrokerClient, queue: QueueName, body: bytes) -> None:
    """Check that a message sent to *queue* is pulled from it."""
    sent = await client.send(queue, OutgoingMessage(queue.topic, body, key="k", tag="t"))
    # Wait: their broker may show a message slightly later than it stores it.
    (message,) = (await client.pull(queue, group=GROUP, offset=sent.offset)).messages
    assert (message.body, message.key, message.tag) == (body, "k", "t")


async def gone(client: BrokerClient, topic: Topic) -> bool:
    try:
        return not await client.queues(topic, fresh=True)
    except BrokerError as error:
        return error.code == 17
    except NotConnected:  # the only broker has left
        return True


async def until_gone(client: BrokerClient, topic: Topic) -> None:
    """Wait: 5.x answers a leaving broker before its topics are removed."""
    async with asyncio.timeout(20):
        while not await gone(client, topic):  # noqa: ASYNC110
            await asyncio.sleep(0.05)


@pytest.mark.feature("official broker on our nameserver")
@pytest.mark.parametrize("version", VERSIONS)
async def test_an_official_broker_on_our_nameserver(tmp_path: Path, version: str) -> None:
    """It registers compressed and adds topics one by one; 5.x is killed, 4.9 leaves.

    For 5.x the test also waits for request 322, 10 s after its start.
    """
    newest = version == VERSIONS[0]
    nameserver = CountingNameServer()
    await nameserver.start()
    settings = {"compressedRegister": "true", "forceRegister": "false"}
    official = OfficialCluster(tmp_path, version, settings, lock_expiry_s=60)
    official.nameserver = nameserver.address
    try:
        await asyncio.to_thread(official.start_broker)
        async with client_of(nameserver.address) as client:
            for topic in (FIRST, SECOND):
                await client.create_topic(topic, queues=4)
            for topic in (FIRST, SECOND):
                queues = await client.queues(topic, fresh=True)
                assert queues == [QueueName(topic, "broker-a", each) for each in range(4)]
                await assert_carries(client, queues[3], topic.encode())
            assert nameserver.compressed > 0
            if newest:
                await eventually(lambda: nameserver.asked > 0, within_s=30)

            await asyncio.to_thread(official.stop_broker, crash=newest)
            await eventually(lambda: FIRST not in nameserver.topics)
            await until_gone(client, FIRST)
    finally:
        await asyncio.to_thread(official.close)
        await nameserver.close()


@pytest.mark.feature("our broker on the official nameserver")
@pytest.mark.parametrize("version", VERSIONS)
async def test_our_broker_on_the_official_nameserver(tmp_path: Path, version: str) -> None:
    """Also after a restart with a single topic, which 5.x refuses from a broker it lost."""
    official = OfficialCluster(tmp_path / "official", version, {}, lock_expiry_s=60)
    settings = BrokerSettings.model_validate(
        {"data": tmp_path / "ours", "listen": "127.0.0.1:0", "segment_bytes": 8 * 1024 * 1024}
    )
    try:
        await asyncio.to_thread(official.start_nameserver)
        settings = settings.model_copy(update={"nameserver": (official.nameserver,)})
        for topics, new in (((FIRST,), True), ((FIRST,), False), ((SECOND, LAST), True)):
            async with client_of(official.nameserver) as client:
                async with running(settings):
                    for topic in topics:
                        if new:
                            await client.create_topic(topic, queues=4)
                        queues = await client.queues(topic, fresh=True)
                        assert queues == [QueueName(topic, "broker-a", each) for each in range(4)]
                        await assert_carries(client, queues[0], topic.encode())
                await until_gone(client, FIRST)
    finally:
        await asyncio.to_thread(official.close)


@pytest.mark.feature("groups in the official nameserver's store")
@pytest.mark.parametrize("version", VERSIONS)
async def test_groups_in_the_official_nameservers_store(tmp_path: Path, version: str) -> None:
    """They are written, read by others, and deleted, which is a value too."""
    official = OfficialCluster(tmp_path / "official", version, {}, lock_expiry_s=60)
    group = group_settings(f"billing-{tmp_path.name}", tags="paid || größer")
    try:
        await asyncio.to_thread(official.start_nameserver)
        async with (
            client_of(official.nameserver) as one,
            client_of(official.nameserver) as two,
        ):
            keys = StoreKeys([b"k" * 32])
            here, there = GroupStore(one.key_values, keys), GroupStore(two.key_values, keys)
            await there.refresh()
            written = await here.write(group.name, group, expect=0, by="a test")
            await there.refresh()
            assert there.known[group.name] == written
            assert group_of(group.name, written.settings or {}) == group
            gone = await there.write(group.name, None, expect=1, by="a test")
            await here.refresh()
            assert here.known[group.name] == gone
            await one.key_values.delete(official.nameserver, NAMESPACE, group.name)
            stored = await two.key_values.all_of(official.nameserver, NAMESPACE)
            assert group.name not in stored
    finally:
        await asyncio.to_thread(official.close)
