"""Membership and Producer against a scripted broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from broker_core.client import BrokerClient, Membership, Producer
from broker_core.errors import BrokerError, RequestTimeout
from broker_core.names import Group, Topic
from broker_core.nameserver.server import NameServer
from broker_core.remoting.bodies import Heartbeat
from broker_core.remoting.codes import RequestCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.headers import SendMessageHeader, SendMessageResponse
from broker_core.remoting.key_hash import queue_index
from broker_core.remoting.message import OutgoingMessage, decode_properties
from broker_core.remoting.route_bodies import Perm
from tests.support.scripted_broker import ScriptedBroker, scripted_broker

ORDERS = Topic("orders")
GROUP = Group("billing")


@pytest.fixture
async def nameserver() -> AsyncIterator[NameServer]:
    nameserver = NameServer()
    await nameserver.start()
    yield nameserver
    await nameserver.close()


@pytest.fixture
async def broker(nameserver: NameServer) -> AsyncIterator[ScriptedBroker]:
    async with scripted_broker(nameserver.address) as broker:
        await broker.add_topic("orders", queues=4)
        for code in (RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT):
            broker.answer(code, lambda r: r.response())
        yield broker


@pytest.fixture
async def client(nameserver: NameServer) -> AsyncIterator[BrokerClient]:
    client = BrokerClient(nameservers=[nameserver.address], client_id="me@1", request_timeout_s=2.0)
    yield client
    await client.close()


async def heartbeats(broker: ScriptedBroker, count: int) -> list[Heartbeat]:
    """Wait for *count* heartbeats."""
    async with asyncio.timeout(5):
        while broker.codes().count(RequestCode.HEART_BEAT) < count:
            await broker.seen.wait()
    return [Heartbeat.from_json(r.body) for r in broker.asked if r.code == RequestCode.HEART_BEAT]


async def test_joining_tells_the_broker_before_it_returns(
    broker: ScriptedBroker, client: BrokerClient
) -> None:
    membership = Membership(client)
    await membership.join(GROUP, [ORDERS])
    (heartbeat, *_) = await heartbeats(broker, 1)
    await membership.close()

    assert heartbeat.client_id == "me@1"
    (consumer,) = heartbeat.consumers
    assert (consumer.group, consumer.consume_type) == (GROUP, "CONSUME_PASSIVELY")
    assert consumer.message_model == "CLUSTERING"
    (subscription,) = consumer.subscriptions
    assert (subscription.topic, subscription.expression) == (ORDERS, "*")


async def test_heartbeats_go_on_with_one_fixed_subscription_version(
    broker: ScriptedBroker, client: BrokerClient
) -> None:
    membership = Membership(client, heartbeat_s=0.02)
    await membership.join(GROUP, [ORDERS])
    beats = await heartbeats(broker, 4)
    await membership.close()
    assert len({beat.consumers for beat in beats}) == 1


async def test_a_broker_that_forgot_us_hears_from_us_on_the_next_connection(
    broker: ScriptedBroker, client: BrokerClient
) -> None:
    membership = Membership(client, heartbeat_s=3600)
    await membership.join(GROUP, [ORDERS])
    broker.answer(RequestCode.GET_MAX_OFFSET, lambda r: r.response(ext={"offset": "0"}))
    _, port = broker.address.split(":")
    await broker.restart(int(port))
    broker.asked.clear()
    (queue, *_) = await client.queues(ORDERS)
    await client.max_offset(queue)  # anything that connects
    (heartbeat, *_) = await heartbeats(broker, 1)
    await membership.close()
    assert heartbeat.consumers[0].group == GROUP


async def test_leaving_unregisters_and_ends_the_heartbeats(
    broker: ScriptedBroker, client: BrokerClient
) -> None:
    membership = Membership(client)
    await membership.join(GROUP, [ORDERS])
    await membership.join(Group("other"), [ORDERS])
    await membership.leave(GROUP)
    last = broker.asked[-1]
    assert last.code == RequestCode.UNREGISTER_CLIENT
    assert last.ext == {"clientID": "me@1", "consumerGroup": GROUP}
    await membership.join(Group("other"), [ORDERS])
    beat = Heartbeat.from_json(broker.asked[-1].body)
    await membership.close()
    assert [consumer.group for consumer in beat.consumers] == ["other"]


async def test_joining_without_a_broker_does_not_fail(
    broker: ScriptedBroker, client: BrokerClient
) -> None:
    broker.answer(RequestCode.HEART_BEAT, lambda r: r.response(1, "no"))
    membership = Membership(client)
    await membership.join(GROUP, [ORDERS, Topic("nope")])
    await membership.leave(GROUP)
    await membership.close()


# -- producer ----------------------------------------------------------------------------------


class Sends:
    """Answers sends: with the codes of the script first, then with success."""

    def __init__(self, broker: ScriptedBroker, *codes: int) -> None:
        self.codes = list(codes)
        self.queues: list[int] = []
        self.ids: list[str] = []
        broker.answer(RequestCode.SEND_MESSAGE_V2, self.answer)

    def answer(self, request: RemotingCommand) -> RemotingCommand:
        header = SendMessageHeader.from_v2(request.ext)
        self.queues.append(header.queue_id)
        self.ids.append(decode_properties((header.properties or "").encode())["UNIQ_KEY"])
        place = SendMessageResponse(msg_id="x", queue_id=header.queue_id, queue_offset=1)
        return request.response(self.codes.pop(0) if self.codes else 0, ext=place.to_ext())


async def test_a_key_s_queue_is_the_one_of_its_hash(
    broker: ScriptedBroker, client: BrokerClient
) -> None:
    sends = Sends(broker)
    producer = Producer(client)
    for key in ("k1", "k2", "k1"):
        await producer.send(OutgoingMessage(ORDERS, b"", key=key))
    await producer.send(OutgoingMessage(ORDERS, b"", key="k1"), sharding_key="k2")
    by_hash = [queue_index(key, 4) for key in ("k1", "k2", "k1", "k2")]
    assert sends.queues == by_hash
    assert len(set(by_hash)) == 2


async def test_messages_without_a_key_go_round(
    broker: ScriptedBroker, client: BrokerClient
) -> None:
    sends = Sends(broker)
    producer = Producer(client)
    for _ in range(5):
        await producer.send(OutgoingMessage(ORDERS, b""))
    assert sends.queues == [0, 1, 2, 3, 0]


@pytest.mark.parametrize(("key", "queues"), [("k1", [2, 2, 2]), (None, [0, 1, 2])])
async def test_a_retry_keeps_the_id_and_a_key_s_queue(
    broker: ScriptedBroker, client: BrokerClient, key: str | None, queues: list[int]
) -> None:
    assert queue_index("k1", 4) == 2
    sends = Sends(broker, 2, 14)
    receipt = await Producer(client).send(OutgoingMessage(ORDERS, b"", key=key))
    assert sends.queues == queues
    assert sends.ids == [receipt.message_id] * 3


async def test_retries_end(broker: ScriptedBroker, client: BrokerClient) -> None:
    sends = Sends(broker, 2, 2, 2, 2)
    with pytest.raises(BrokerError, match="code 2"):
        await Producer(client, retries=1).send(OutgoingMessage(ORDERS, b""))
    assert len(sends.queues) == 2


async def test_what_cannot_succeed_is_not_tried_again(
    broker: ScriptedBroker, client: BrokerClient
) -> None:
    sends = Sends(broker, 13)
    with pytest.raises(BrokerError, match="code 13"):
        await Producer(client).send(OutgoingMessage(ORDERS, b""))
    assert len(sends.queues) == 1


async def test_a_topic_that_cannot_be_written_is_said_clearly(
    broker: ScriptedBroker, client: BrokerClient
) -> None:
    await broker.add_topic("closed", queues=1, perm=Perm.READ)
    with pytest.raises(BrokerError, match="topic closed has no writable queue"):
        await Producer(client).send(OutgoingMessage(Topic("closed"), b""))


async def test_a_lost_answer_is_retried_and_then_raised(
    broker: ScriptedBroker, client: BrokerClient
) -> None:
    asked = asyncio.Event()
    broker.on[RequestCode.SEND_MESSAGE_V2] = lambda request, _: asked.set()
    with pytest.raises(RequestTimeout):
        await Producer(client, retries=1).send(OutgoingMessage(ORDERS, b""), timeout_s=0.05)
    assert asked.is_set()
    assert broker.codes().count(RequestCode.SEND_MESSAGE_V2) == 2
