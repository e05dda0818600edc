"""Three brokers that elect their master: take-over, fencing, and nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

from broker_core.client.broker_client import BrokerClient
from broker_core.errors import RemotingError
from broker_core.names import Group, QueueName
from broker_core.remoting.codes import RequestCode
from broker_core.remoting.headers import PullFlag, PullMessageHeader
from broker_core.remoting.message import OutgoingMessage, decode_messages
from testkit.eventually import eventually
from tests.support.elected_group import TOPIC, ElectedGroup, elected_group


async def sent(
    client: BrokerClient, queue: QueueName, body: bytes, *, within_s: float = 20
) -> bool:
    """Send until it is acknowledged; return whether that was within the time."""
    try:
        async with asyncio.timeout(within_s):
            while True:
                try:
                    await client.send(queue, OutgoingMessage(TOPIC, body))
                    return True
                except RemotingError:
                    await asyncio.sleep(0.1)
    except TimeoutError:
        return False


async def bodies(group: ElectedGroup, number: int) -> list[bytes]:
    """Return the bodies of queue 0 that one broker serves."""
    found: list[bytes] = []
    while True:
        header = PullMessageHeader(
            consumer_group=Group("readers"),
            topic=TOPIC,
            queue_id=0,
            queue_offset=len(found),
            max_msg_nums=1024,
            sys_flag=PullFlag.SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription="*",
            sub_version=0,
        )
        answer = await group.ask(number, RequestCode.PULL_MESSAGE, header.to_ext())
        if answer.code != 0:
            return found
        found += [message.body for message in decode_messages(answer.body)]


async def made_queue(client: BrokerClient) -> QueueName:
    await client.create_topic(TOPIC, queues=1)
    (queue,) = await client.queues(TOPIC, fresh=True)
    return queue


async def test_a_killed_master_is_replaced_and_its_messages_stay(tmp_path: Path) -> None:
    async with elected_group(tmp_path) as group:
        await group.start(1, 2, 3)
        first = await group.until_served()
        client = await group.client()
        queue = await made_queue(client)
        expected = [b"%d" % n for n in range(20)]
        for body in expected:
            assert await sent(client, queue, body)
        loop = asyncio.get_running_loop()
        died_s = loop.time()
        await group.stop(first, crash=True)
        assert await sent(client, queue, b"after")
        assert loop.time() - died_s < 15
        second = await group.until_served()
        assert second != first
        assert await bodies(group, second) == [*expected, b"after"]
        await group.start(first)
        figures = await group.figures(second)
        assert figures["replicaRole"] == "master"
        assert int(figures["masterEpoch"]) > 1
        await eventually(
            lambda: group.brokers[second].components.replica.figures()["inSyncReplicas"] == "1,2,3"
        )


async def test_a_topic_that_was_created_survives_its_master(tmp_path: Path) -> None:
    async with elected_group(tmp_path) as group:
        await group.start(1, 2, 3)
        first = await group.until_served()
        client = await group.client()
        await made_queue(client)
        having = [
            number
            for number, broker in group.brokers.items()
            if broker.components.directory.topics.find(TOPIC) is not None
        ]
        assert len(having) >= 2
        await group.stop(first, crash=True)
        second = await group.until_served()
        assert group.brokers[second].components.directory.topics.find(TOPIC) is not None
