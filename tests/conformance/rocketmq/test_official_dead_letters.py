"""Dead letters of RocketMQ's own consumers and brokers are redriven as ours are."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from broker_core.names import Topic
from broker_core.remoting.key_hash import queue_index
from broker_core.remoting.message import OutgoingMessage
from proxy.cli.connect import ask_proxy
from testkit.brokers import Brokers
from testkit.eventually import eventually
from testkit.gateway import Gateway, run_gateway
from testkit.rocketmq import VERSIONS
from tests.conformance.rocketmq.java_client import ORDERLY, JavaClient, JavaClients
from tests.support.consumers import consuming
from thin_client import Message


async def give_up(
    java: JavaClient, gateway: Gateway, name: str, *, bodies: list[str], **how: Any
) -> None:
    """Let a consumer of theirs fail *bodies* until they are dead letters."""
    outcome = "SUSPEND_CURRENT_QUEUE_A_MOMENT" if how.get("orderly") else "RECONSUME_LATER"
    await java.call(
        "start",
        name,
        kind="push",
        group=gateway.group,
        topic=gateway.topic,
        nameserver=gateway.cluster.nameserver,
        broker=gateway.cluster.broker_name,
        tags="*",
        **{"from": "FIRST_OFFSET", "plan": {body: [outcome] * 9 for body in bodies}, **how},
    )


async def dead(gateway: Gateway, count: int) -> list[dict[str, str]]:
    """Return properties of the dead letters, once there are *count*."""
    topic = Topic(gateway.dead_letter_topic)
    async with asyncio.timeout(60):
        while topic not in await gateway.client.topics():  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        (queue,) = await gateway.client.queues(topic, fresh=True)
        while await gateway.client.max_offset(queue) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        pulled = await gateway.client.pull(queue, group=gateway.group, offset=0, suspend_ms=0)
    return [message.properties for message in pulled.messages]


@pytest.mark.feature("dead letters of its own consumers are redriven")
@pytest.mark.parametrize("version", VERSIONS, scope="session")
@pytest.mark.parametrize("orderly", [False, True])
async def test_dead_letters_of_their_consumers_are_redriven(
    version: str,
    orderly: bool,
    running_brokers: Brokers,
    java_clients: JavaClients,
    tmp_path: Path,
) -> None:
    java = java_clients.shared(version, ORDERLY)  # locks are retried often
    back: dict[str | None, Message] = {}
    first: dict[str | None, int] = {}

    async def handle(message: Message) -> None:
        # Their consumer may end before it knows that a message is a dead letter: uncommitted
        # messages then come to ours unchanged, or are dead letters twice.
        if message.offset != first[message.key]:
            back[message.key] = message

    async with run_gateway(tmp_path, brokers=running_brokers, queues=4) as gateway:
        for key in ("a", "b"):
            message = OutgoingMessage(
                gateway.topic, key.encode(), key=key, tag="red", properties={"mine": "yes"}
            )
            queue = gateway.queue(queue_index(key, 4))
            receipt = await gateway.client.send(queue, message)
            first[key] = receipt.offset
        await give_up(
            java, gateway, "theirs", bodies=["a", "b"], orderly=orderly, maxReconsumeTimes=0
        )
        letters = await dead(gateway, 2)
        await java.call("close", "theirs")  # it would fail redriven messages
        await java.clear()
        assert {letter["RETRY_TOPIC"] for letter in letters} == {gateway.topic}
        _, at = await gateway.start_proxy()
        path = f"/api/groups/{gateway.group}/dead-letters/redrive"
        async with consuming(gateway, at.thrift, "ours", handle=handle):
            await asyncio.to_thread(
                ask_proxy, at.http, path, body=b'{"reason": "a test"}', timeout_s=20
            )
            await eventually(lambda: len(back) == 2, within_s=30)
    for key in ("a", "b"):
        message = back[key]
        assert (message.body, message.tag, message.topic) == (key.encode(), "red", gateway.topic)
        assert message.properties == {"mine": "yes"}, "handlers do not see the marks of a redrive"
        assert message.queue.partition("#")[0].endswith(f"_{queue_index(key, 4)}")
