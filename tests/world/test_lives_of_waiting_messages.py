"""A broker's deferred messages belong to the life of the topic in which they were stored.

Delayed messages, half messages of transactions, and copies for a retry are in topics of the
broker's own, which are not deleted with theirs. None may appear in the next life.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker_core.client.broker_client import BrokerClient
from broker_core.errors import BrokerError
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.codes import RequestCode, ResponseCode
from broker_core.remoting.message import OutgoingMessage, StoredMessage
from broker_core.remoting.retry_headers import SendBackHeader
from broker_core.tasks import spawn
from testkit.broker_process import Cluster, run_broker
from testkit.eventually import eventually
from tests.support.transactions import COMMIT, GIVEN_UP, QUICK, Desk, producer, visible

TOPIC, OTHER = Topic("invoices"), Topic("refunds")
GROUP = Group("billing")
RETRY = QueueName(Topic("%RETRY%billing"), "broker-a", 0)
DEAD = QueueName(Topic("%DLQ%billing"), "broker-a", 0)
#: The broker's restart between the deletion and the due time.
RESTARTS = ["none", "clean", "crash"]


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with run_broker(
        tmp_path, auto_create_topics=False, message_delay_level="5s 20s", **QUICK
    ) as running:
        yield running


async def send(client: BrokerClient, queue: QueueName, body: bytes, **properties: str) -> None:
    message = OutgoingMessage(queue.topic, body, key="k", properties=properties)
    await client.send(queue, message)


async def recreate(cluster: Cluster, client: BrokerClient, *, restart: str = "none") -> QueueName:
    await client.deletions.delete_topic(TOPIC)
    queue = (await cluster.create_topic(TOPIC))[0]
    if restart != "none":
        await cluster.restart_broker(crash=restart == "crash")
    return queue


async def bodies(client: BrokerClient, *queues: QueueName) -> list[bytes]:
    return [message.body for message in await visible(client, list(queues))]


async def send_back(client: BrokerClient, message: StoredMessage, *, level: int = 1) -> None:
    header = SendBackHeader(offset=message.physical_offset, group=GROUP, delay_level=level)
    await client.requests.ask("broker-a", RequestCode.CONSUMER_SEND_MSG_BACK, header.to_ext())


# ---- delayed messages ----------------------------------------------------------------------------


@pytest.mark.parametrize("restart", RESTARTS)
@pytest.mark.parametrize("delay", [{"DELAY": "2"}, {"TIMER_DELAY_SEC": "20"}])
async def test_a_delayed_message_does_not_come_in_the_next_life(
    cluster: Cluster, delay: dict[str, str], restart: str
) -> None:
    queue, other = (await cluster.create_topic(TOPIC))[0], (await cluster.create_topic(OTHER))[0]
    client = await cluster.client()
    await send(client, queue, b"old", **delay)
    await send(client, other, b"other", **delay)
    await recreate(cluster, client, restart=restart)
    await send(client, queue, b"new", **delay)
    await eventually(lambda: len(cluster.broker.components.delayed) == 0, within_s=60)
    assert await bodies(client, queue) == [b"new"]
    assert await bodies(client, other) == [b"other"]


async def test_a_delayed_message_of_an_unknown_future_does_not_come_after_several_lives(
    cluster: Cluster,
) -> None:
    queue = (await cluster.create_topic(TOPIC))[0]
    client = await cluster.client()
    for life in range(3):
        await send(client, queue, b"%d" % life, TIMER_DELAY_SEC="30")
        await recreate(cluster, client)
    await send(client, queue, b"last", TIMER_DELAY_SEC="30")
    await eventually(lambda: len(cluster.broker.components.delayed) == 0, within_s=60)
    assert await bodies(client, queue) == [b"last"]


@pytest.mark.failing_tasks
async def test_messages_sent_during_the_deletion_do_not_appear_in_the_next_life(
    cluster: Cluster,
) -> None:
    """It would be stored behind the deletion, which is being written to disk."""
    queue = (await cluster.create_topic(TOPIC))[0]
    client = await cluster.client()
    sends = []
    for number in range(100):
        if number == 20:
            deleting = spawn(client.deletions.delete_topic(TOPIC), name="delete")
        old = send(client, queue, b"old", TIMER_DELAY_SEC="30")
        sends.append(spawn(old, name="send"))
        await asyncio.sleep(0.0002)
    outcomes = await asyncio.gather(*sends, return_exceptions=True)
    await deleting
    assert {type(outcome) for outcome in outcomes} == {type(None), BrokerError}
    await cluster.create_topic(TOPIC)
    await send(client, queue, b"new", TIMER_DELAY_SEC="30")
    await eventually(lambda: len(cluster.broker.components.delayed) == 0, within_s=60)
    assert await bodies(client, queue) == [b"new"]


async def test_retention_carries_nothing_into_the_next_life(tmp_path: Path) -> None:
    """It copies waiting messages to the end of the log, behind the deletion."""
    sizes = {"segment_bytes": 200_000, "max_message_bytes": 100_000, "retention_bytes": 1}
    async with run_broker(tmp_path, auto_create_topics=False, **sizes) as cluster:
        queue = (await cluster.create_topic(TOPIC))[0]
        other = (await cluster.create_topic(OTHER))[0]
        client = await cluster.client()
        await send(client, queue, b"old", TIMER_DELAY_SEC="60")
        await send(client, other, b"kept", TIMER_DELAY_SEC="60")
        await recreate(cluster, client)
        parts = cluster.broker.components
        for number in range(9):
            await send(client, other, b"%d" % number * 50_000)
            await parts.delete_expired()
        assert parts.store.copies.first_offset > 0
        await cluster.restart_broker(crash=True)
        await eventually(lambda: len(cluster.broker.components.delayed) == 0, within_s=90)
        assert await bodies(client, queue) == []
        assert (await bodies(client, other))[-1] == b"kept"


# ---- transactions --------------------------------------------------------------------------------


@pytest.mark.parametrize("restart", RESTARTS)
async def test_a_half_message_of_a_former_life_is_not_committed(
    cluster: Cluster, restart: str
) -> None:
    queues = await cluster.create_topic(TOPIC)
    client, transactions = await producer(cluster, Desk())
    old = await transactions.prepare(OutgoingMessage(TOPIC, b"old"), check_after_s=600)
    await recreate(cluster, client, restart=restart)
    with pytest.raises(BrokerError, match="was deleted since") as refused:
        await old.commit()
    assert refused.value.code == ResponseCode.TOPIC_NOT_EXIST
    new = await transactions.prepare(OutgoingMessage(TOPIC, b"new"), check_after_s=600)
    await new.commit()
    assert await bodies(client, *queues) == [b"new"]
    await eventually(lambda: len(cluster.broker.components.transactions) == 0)
    await transactions.close()


async def test_no_producer_is_asked_about_a_half_message_of_a_former_life(cluster: Cluster) -> None:
    """It is not stored again behind the deletion either: it is rolled back, and given up
    nowhere.
    """
    queues = await cluster.create_topic(TOPIC)
    desk = Desk(answer=lambda _: COMMIT)
    client, transactions = await producer(cluster, desk)
    await transactions.prepare(OutgoingMessage(TOPIC, b"old"), check_after_s=4)
    await recreate(cluster, client)
    await transactions.prepare(OutgoingMessage(TOPIC, b"new"), check_after_s=4)
    await eventually(lambda: bool(desk.asked), within_s=60)
    await eventually(lambda: len(cluster.broker.components.transactions) == 0, within_s=60)
    assert [half.body for half in desk.asked] == [b"new"]
    assert await bodies(client, *queues) == [b"new"]
    assert await bodies(client, GIVEN_UP) == []
    await transactions.close()


async def test_a_half_message_of_a_former_life_may_be_rolled_back(cluster: Cluster) -> None:
    await cluster.create_topic(TOPIC)
    client, transactions = await producer(cluster, Desk())
    old = await transactions.prepare(OutgoingMessage(TOPIC, b"old"), check_after_s=600)
    await recreate(cluster, client)
    await old.rollback()
    await eventually(lambda: len(cluster.broker.components.transactions) == 0)
    await transactions.close()


# ---- retries of RocketMQ's clients ---------------------------------------------------------------


async def _old_message(cluster: Cluster, client: BrokerClient) -> StoredMessage:
    queue = (await cluster.create_topic(TOPIC))[0]
    await send(client, queue, b"old")
    (message,) = await visible(client, [queue])
    return message


@pytest.mark.parametrize("level", [1, -1], ids=["retry", "dead letter"])
async def test_a_message_of_a_former_life_is_done_with_when_it_is_sent_back(
    cluster: Cluster, level: int
) -> None:
    client = await cluster.client()
    message = await _old_message(cluster, client)
    await recreate(cluster, client)
    await send_back(client, message, level=level)
    await asyncio.sleep(30)
    assert await bodies(client, RETRY) == []
    assert await bodies(client, DEAD) == []


@pytest.mark.parametrize("restart", RESTARTS)
async def test_what_waits_for_its_retry_does_not_come_in_the_next_life(
    cluster: Cluster, restart: str
) -> None:
    client = await cluster.client()
    message = await _old_message(cluster, client)
    await send_back(client, message)
    queue = await recreate(cluster, client, restart=restart)
    await send(client, queue, b"new")
    (new,) = await visible(client, [queue])
    await send_back(client, new)
    await asyncio.sleep(30)
    assert await bodies(client, RETRY) == [b"new"]


async def test_messages_in_the_retry_topic_do_not_return(cluster: Cluster) -> None:
    """It belongs to that topic, and is handled once more; its failure does not bring it back."""
    client = await cluster.client()
    await send_back(client, await _old_message(cluster, client))
    await asyncio.sleep(10)
    await recreate(cluster, client)
    (copy,) = await visible(client, [RETRY])
    await send_back(client, copy)
    await asyncio.sleep(30)
    assert len(await visible(client, [RETRY])) == 1
