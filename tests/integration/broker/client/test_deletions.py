"""Deletion of a topic while a broker that has it is away."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from broker_core.client import BrokerClient
from broker_core.errors import BrokersAway
from broker_core.names import Topic
from broker_core.nameserver.server import NameServer
from broker_core.remoting.codes import RequestCode
from tests.integration.broker.client.scripted_broker import ScriptedBroker, scripted_broker

ORDERS = Topic("orders")
SENTENCE = (
    "topic orders was deleted except at broker-b, which was not reached: repeat the deletion when"
    " it is back"
)


@pytest.fixture
async def nameserver() -> AsyncIterator[NameServer]:
    nameserver = NameServer()
    await nameserver.start()
    yield nameserver
    await nameserver.close()


@pytest.fixture
async def pair(nameserver: NameServer) -> AsyncIterator[list[ScriptedBroker]]:
    async with (
        scripted_broker(nameserver.address) as near,
        scripted_broker(nameserver.address, "broker-b") as far,
    ):
        for each in (near, far):
            each.answer(RequestCode.DELETE_TOPIC_IN_BROKER, lambda request: request.response(0))
            await each.add_topic("orders", queues=2)
        yield [near, far]


@pytest.fixture
async def client(nameserver: NameServer, pair: list[ScriptedBroker]) -> AsyncIterator[BrokerClient]:
    client = BrokerClient(nameservers=[nameserver.address], client_id="operator@1#1")
    await client.start()
    assert len(await client.queues(ORDERS)) == 4
    yield client
    await client.close()


async def test_a_broker_that_does_not_answer_is_named_once_all_others_deleted_the_topic(
    client: BrokerClient, pair: list[ScriptedBroker]
) -> None:
    near, far = pair
    await far.server.close(grace_s=0)
    with pytest.raises(BrokersAway) as refused:
        await client.deletions.delete_topic(ORDERS)

    assert str(refused.value) == SENTENCE
    assert refused.value.brokers == ("broker-b",)
    assert near.codes() == [RequestCode.DELETE_TOPIC_IN_BROKER]


async def test_a_broker_that_had_the_topic_and_is_no_longer_registered_is_named(
    client: BrokerClient, pair: list[ScriptedBroker]
) -> None:
    await pair[1].close()
    with pytest.raises(BrokersAway, match=SENTENCE):
        await client.deletions.delete_topic(ORDERS)


async def test_the_deletion_is_repeated_when_the_broker_is_back(
    client: BrokerClient, pair: list[ScriptedBroker]
) -> None:
    far = pair[1]
    await far.server.close(grace_s=0)
    with pytest.raises(BrokersAway):
        await client.deletions.delete_topic(ORDERS)
    assert ORDERS in await client.topics()

    await far.restart()
    await client.deletions.delete_topic(ORDERS)
    assert far.codes() == [RequestCode.DELETE_TOPIC_IN_BROKER]
    assert ORDERS not in await client.topics()


async def test_several_brokers_that_are_away_are_named_together(
    client: BrokerClient, pair: list[ScriptedBroker]
) -> None:
    for each in pair:
        await each.server.close(grace_s=0)
    with pytest.raises(BrokersAway) as refused:
        await client.deletions.delete_topic(ORDERS)
    assert str(refused.value) == (
        "topic orders was deleted except at broker-a, broker-b, which were not reached: repeat the"
        " deletion when they are back"
    )
