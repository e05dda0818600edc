"""Producer against scripted brokers and a real nameserver."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from broker_core.client import BrokerClient, Producer, SendReceipt
from broker_core.client.producer import Outbound
from broker_core.errors import (
    BrokerError,
    ConnectionLost,
    LocalProtocolError,
    NotConnected,
    NotSent,
    RequestTimeout,
)
from broker_core.names import QueueName, Topic
from broker_core.nameserver.server import NameServer
from broker_core.remoting.codes import RequestCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.headers import SendMessageHeader, SendMessageResponse
from broker_core.remoting.key_hash import java_hash, queue_index
from broker_core.remoting.message import OutgoingMessage, decode_properties
from broker_core.remoting.message_batch import decode_batch
from broker_core.remoting.route_bodies import Perm
from broker_core.remoting_channel import Answer, RemotingChannel
from broker_core.tasks import spawn
from testkit.eventually import eventually
from tests.integration.broker.client.scripted_broker import ScriptedBroker, scripted_broker

ORDERS = Topic("orders")


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
        yield broker


@pytest.fixture
async def client(nameserver: NameServer) -> AsyncIterator[BrokerClient]:
    client = BrokerClient(nameservers=[nameserver.address], client_id="me@1", request_timeout_s=20)
    yield client
    await client.close()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sends without a timeout get one that tolerates a machine that stands still."""
    for method in (Producer.send, Producer.send_batch):
        monkeypatch.setitem(method.__kwdefaults__, "timeout_s", 30.0)


class Sends:
    """Answers sends with the codes of the script, then with success.

    -1: no answer, -2: end the connection. ``go_on`` clear: wait.
    """

    def __init__(self, broker: ScriptedBroker, *codes: int) -> None:
        self.codes = list(codes)
        self.queues: list[int] = []
        self.ids: list[str] = []
        self.bodies: list[bytes] = []
        self.go_on = asyncio.Event()
        self.go_on.set()
        broker.on[RequestCode.SEND_MESSAGE_V2] = self.answer
        broker.on[RequestCode.SEND_BATCH_MESSAGE] = self.answer

    async def answer(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        header = SendMessageHeader.from_v2(request.ext)
        self.queues.append(header.queue_id)
        body = bytes(request.body)
        self.bodies += [each.body for each in decode_batch(body)] if header.batch else [body]
        if not header.batch:
            properties = decode_properties((header.properties or "").encode())
            self.ids.append(properties["UNIQ_KEY"])
        code = self.codes.pop(0) if self.codes else 0
        await self.go_on.wait()
        if code == -2:
            spawn(channel.close(), name="hang up")
        if code < 0:
            return None
        place = SendMessageResponse(msg_id="x", queue_id=header.queue_id, queue_offset=1)
        return request.response(code, ext=place.to_ext())


def message(body: str = "", *, key: str | None = None) -> OutgoingMessage:
    return OutgoingMessage(ORDERS, body.encode(), key=key)


# -- queues ------------------------------------------------------------------------------------


async def test_a_key_s_queue_is_the_one_of_its_hash(
    broker: ScriptedBroker, client: BrokerClient
) -> None:
    sends = Sends(broker)
    producer = Producer(client)
    for key in ("k1", "k2", "k1"):
        await producer.send(message(key=key))
    await producer.send(message(key="k1"), sharding_key="k2")
    by_hash = [queue_index(key, 4) for key in ("k1", "k2", "k1", "k2")]
    assert sends.queues == by_hash
    assert len(set(by_hash)) == 2


async def test_messages_without_a_key_go_round(
    broker: ScriptedBroker, client: BrokerClient
) -> None:
    sends = Sends(broker)
    producer = Producer(client)
    for _ in range(5):
        await producer.send(message())
    assert sends.queues == [0, 1, 2, 3, 0]


async def test_a_topic_that_cannot_be_written_is_said_clearly(
    broker: ScriptedBroker, client: BrokerClient
) -> None:
    await broker.add_topic("closed", queues=1, perm=Perm.READ)
    with pytest.raises(BrokerError, match="topic closed has no writable queue"):
        await Producer(client).send(OutgoingMessage(Topic("closed"), b""))


# -- retries -----------------------------------------------------------------------------------


async def test_a_retry_keeps_the_id_and_a_key_s_queue(
    broker: ScriptedBroker, client: BrokerClient
) -> None:
    """Also if the number of queues changed meanwhile; the next send uses the new one."""
    sends = Sends(broker, 2, 14, -2)
    sends.go_on.clear()
    producer = Producer(client)
    sending = spawn(producer.send(message(key="k1")), name="send")
    await eventually(lambda: sends.queues == [2])
    await broker.add_topic("orders", queues=7)
    await client.writable_queues(ORDERS, fresh=True)
    sends.go_on.set()
    receipt = await sending
    assert sends.queues == [2, 2, 2, 2]
    assert sends.ids == [receipt.message_id] * 4
    await producer.send(message(key="k1"))
    assert sends.queues[-1] == queue_index("k1", 7) != 2


@pytest.mark.parametrize(
    ("code", "remark"),
    [(17, "no such topic"), (1, "request queueId[2] is illegal, TopicConfig ...")],
)
async def test_a_queue_that_is_gone_is_chosen_again_from_the_route_of_now(
    broker: ScriptedBroker, client: BrokerClient, code: int, remark: str
) -> None:
    """Code 1 as sent by Apache's brokers."""
    sends = Sends(broker)
    await client.writable_queues(ORDERS)
    await broker.add_topic("orders", queues=7)

    async def refuse(request: RemotingCommand, channel: RemotingChannel) -> Answer:
        broker.on[RequestCode.SEND_MESSAGE_V2] = sends.answer
        sends.queues.append(SendMessageHeader.from_v2(request.ext).queue_id)
        return request.response(code, remark)

    broker.on[RequestCode.SEND_MESSAGE_V2] = refuse
    doubtful: list[object] = []
    producer = Producer(client, on_doubt=lambda messages, error: doubtful.append(error))
    await producer.send(message(key="k1"))
    assert sends.queues == [queue_index("k1", 4), queue_index("k1", 7)] == [2, 6]
    assert doubtful == []


async def test_what_may_be_stored_stays_in_doubt_though_its_queue_is_gone_now(
    broker: ScriptedBroker, client: BrokerClient
) -> None:
    Sends(broker, -2, *[17] * 100)
    with pytest.raises(ConnectionLost):
        await Producer(client).send(message(key="k1"), timeout_s=0.5)


@pytest.mark.parametrize("code", [13, 16, 2], ids=["illegal", "forbidden", "busy"])
async def test_what_may_be_stored_stays_in_doubt_though_its_retry_is_refused(
    broker: ScriptedBroker, client: BrokerClient, code: int
) -> None:
    """The refusal concerns the retry alone."""
    Sends(broker, -2, *[code] * 100)
    with pytest.raises(ConnectionLost):
        await Producer(client).send(message(key="k1"), timeout_s=0.5)


async def test_what_never_reached_a_broker_is_not_in_doubt(client: BrokerClient) -> None:
    doubtful: list[object] = []
    lost = QueueName(ORDERS, "unknown", 0)

    async def route(topic: Topic) -> list[QueueName]:
        return [lost]

    producer = Producer(client, find_queues=route, on_doubt=lambda _, error: doubtful.append(error))
    with pytest.raises(NotConnected, match="broker unknown is not registered"):
        await producer.send(message(key="k1"), timeout_s=0.2)
    assert doubtful == []


async def test_a_broker_that_comes_back_in_time_costs_no_send(
    broker: ScriptedBroker, client: BrokerClient
) -> None:
    sends = Sends(broker)
    producer = Producer(client)
    await producer.send(message("1", key="k"))
    await broker.server.close(grace_s=0)
    sending = [spawn(producer.send(message(str(n), key="k")), name="send") for n in (2, 3)]
    await asyncio.sleep(0)
    await broker.restart()
    await asyncio.gather(*sending)
    assert sends.bodies == [b"1", b"2", b"3"]


async def test_retries_end_with_the_time(
    broker: ScriptedBroker, client: BrokerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    sends = Sends(broker, *[2] * 100)
    # By the producer's clock the third answer arrives just before the deadline.
    monkeypatch.setattr(
        "broker_core.client.producer.now_ns",
        lambda: 0 if len(sends.queues) < 3 else 29_990_000_000,
    )
    with pytest.raises(BrokerError, match="code 2"):
        await Producer(client).send(message(), timeout_s=30)
    assert len(sends.queues) == 3


async def test_what_cannot_succeed_is_not_tried_again(
    broker: ScriptedBroker, client: BrokerClient
) -> None:
    sends = Sends(broker, 13)
    with pytest.raises(BrokerError, match="code 13"):
        await Producer(client).send(message())
    assert len(sends.queues) == 1


async def test_silence_is_a_time_out(broker: ScriptedBroker, client: BrokerClient) -> None:
    sends = Sends(broker, 0, -1)
    producer = Producer(client)
    await producer.send(message(key="k"))  # connected now
    with pytest.raises(RequestTimeout):
        await producer.send(message(key="k"), timeout_s=0.1)
    await eventually(lambda: len(sends.queues) > 1)
    assert len(sends.queues) == 2


# -- order -------------------------------------------------------------------------------------


async def test_sends_of_a_key_go_one_at_a_time_and_others_meanwhile(
    broker: ScriptedBroker, client: BrokerClient
) -> None:
    sends = Sends(broker)
    sends.go_on.clear()
    producer = Producer(client)
    sending = [
        spawn(producer.send(message(f"{key}{n}", key=key)), name="send")
        for n in range(3)
        for key in "abc"
    ]
    await eventually(lambda: len(sends.bodies) == 3)
    assert sorted(sends.bodies) == [b"a0", b"b0", b"c0"]
    sends.go_on.set()
    await asyncio.gather(*sending)
    for key in "abc":
        own = [body.decode() for body in sends.bodies if body.decode()[0] == key]
        assert own == [f"{key}{n}" for n in range(3)]


async def test_behind_a_failed_send_nothing_of_its_key_is_sent(
    broker: ScriptedBroker, client: BrokerClient
) -> None:
    sends = Sends(broker, 13)
    producer = Producer(client)
    batch = [Outbound(message("b", key="k"), java_hash("k")), Outbound(message("c"))]
    first, second, third = await asyncio.gather(
        producer.send(message("a", key="k")),
        producer.send_batch(batch),
        producer.send(message("d", key="k")),
        return_exceptions=True,
    )
    assert isinstance(first, BrokerError)
    assert isinstance(second, list)
    assert isinstance(second[0], NotSent)
    assert second[1].queue.topic == ORDERS  # type: ignore[union-attr]
    assert isinstance(third, NotSent)
    await producer.send(message("e", key="k"))
    assert sends.bodies == [b"a", b"c", b"e"]


async def test_independent_callers_go_on_after_another_s_failure(
    broker: ScriptedBroker, client: BrokerClient
) -> None:
    sends = Sends(broker, 13)
    producer = Producer(client, independent=True)
    outcomes = await asyncio.gather(
        *(producer.send(message(body, key="k")) for body in "ab"), return_exceptions=True
    )
    assert [isinstance(each, Exception) for each in outcomes] == [True, False]
    assert sends.bodies == [b"a", b"b"]


async def test_who_waits_for_its_turn_too_long_was_not_sent(
    broker: ScriptedBroker, client: BrokerClient
) -> None:
    sends = Sends(broker)
    sends.go_on.clear()
    producer = Producer(client)
    first = spawn(producer.send(message("a", key="k")), name="send")
    await eventually(lambda: sends.bodies == [b"a"])
    with pytest.raises(NotSent, match="an earlier message of its key"):
        await producer.send(message("b", key="k"), timeout_s=0.05)
    sends.go_on.set()
    await first
    assert sends.bodies == [b"a"]


# -- two brokers -------------------------------------------------------------------------------


async def test_what_has_no_key_goes_round_a_broker_that_failed(
    nameserver: NameServer,
    broker: ScriptedBroker,
    client: BrokerClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A silent broker costs half of a send's time, once; keys of its queues still go to it."""
    async with scripted_broker(nameserver.address, "broker-b") as other:
        await other.add_topic("orders", queues=4)
        silent, good = Sends(broker, -1), Sends(other)
        # Its clock stands still: no rest ends, and each half is as long as the first.
        monkeypatch.setattr("broker_core.client.producer.now_ns", lambda: 0)
        producer = Producer(client)
        await producer.send(message(), timeout_s=5.0)
        for _ in range(5):
            await producer.send(message())
        assert (len(silent.bodies), len(good.bodies)) == (1, 6)
        assert good.ids[0] == silent.ids[0]
        assert queue_index("a", 8) == 1
        await producer.send(message(key="a"))
        assert (len(silent.bodies), len(good.bodies)) == (2, 6)


async def test_what_has_no_key_avoids_a_slow_broker(
    nameserver: NameServer,
    broker: ScriptedBroker,
    client: BrokerClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0

    async def slowly(request: RemotingCommand, channel: RemotingChannel) -> Answer:
        nonlocal now
        now += 600_000_000
        return await slow.answer(request, channel)

    async with scripted_broker(nameserver.address, "broker-b") as other:
        await other.add_topic("orders", queues=4)
        slow, quick = Sends(broker), Sends(other)
        broker.on[RequestCode.SEND_MESSAGE_V2] = slowly
        monkeypatch.setattr("broker_core.client.producer.now_ns", lambda: now)
        producer = Producer(client)
        for _ in range(8):
            await producer.send(message())
        assert (len(slow.bodies), len(quick.bodies)) == (1, 7)


# -- batches -----------------------------------------------------------------------------------


async def test_a_batch_has_an_outcome_for_each_message(
    nameserver: NameServer, broker: ScriptedBroker, client: BrokerClient
) -> None:
    """One queue refuses its second request: earlier messages are stored, later ones were not
    sent.
    """
    sends = Sends(broker, 0, 13)
    large = "x" * 600_000
    batch = [Outbound(message(large), 1) for _ in range(3)]
    outcomes = await Producer(client).send_batch(batch)
    stored, refused, behind = outcomes
    assert stored.queue.queue_id == 1  # type: ignore[union-attr]
    assert isinstance(refused, BrokerError)
    assert isinstance(behind, NotSent)
    assert len(sends.bodies) == 2
    outcomes = await Producer(client).send_batch([*batch, Outbound(message("y"), 2)])
    assert [each.queue.queue_id for each in outcomes] == [1, 1, 1, 2]  # type: ignore[union-attr]


async def test_nothing_of_a_batch_is_sent_with_a_message_that_cannot_be_encoded(
    broker: ScriptedBroker, client: BrokerClient
) -> None:
    sends = Sends(broker)
    bad = OutgoingMessage(ORDERS, b"", properties={"a": "\x01"})
    with pytest.raises(LocalProtocolError, match="0x01"):
        await Producer(client).send_batch([Outbound(message(), 1), Outbound(bad, 1)])
    assert sends.bodies == []


@pytest.mark.parametrize("there", [True, False], ids=["no queue", "no nameserver"])
async def test_a_retry_without_a_route_keeps_its_queue(
    nameserver: NameServer, broker: ScriptedBroker, client: BrokerClient, there: bool
) -> None:
    """Neither the other messages of the batch lose their outcomes, nor does the send end early."""
    async with scripted_broker(nameserver.address, "broker-b") as other:
        await other.add_topic("orders", queues=4)
        busy, good = Sends(broker, 2), Sends(other)
        asked: list[Topic] = []

        async def find_queues(topic: Topic) -> list[QueueName]:
            asked.append(topic)
            if len(asked) == 1:
                return await client.writable_queues(topic)
            if there:
                return []
            raise RequestTimeout("no nameserver answers")

        producer = Producer(client, find_queues=find_queues)
        outcomes = await producer.send_batch([Outbound(message(n)) for n in "ab"])
        assert len(asked) == 2
        assert [type(each) for each in outcomes] == [SendReceipt] * 2
        assert len(busy.bodies) + len(good.bodies) == 3
