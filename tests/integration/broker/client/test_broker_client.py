"""BrokerClient against scripted brokers and a real nameserver."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from structlog.testing import capture_logs

from broker_core.client import BrokerClient, PullStatus, SendStatus, TopicLife, routes
from broker_core.client.connection_pool import ConnectionPool
from broker_core.client.queue_moves import is_in_doubt
from broker_core.errors import (
    BrokerError,
    ConnectionLost,
    InvalidCommand,
    LocalProtocolError,
    NotConnected,
    RemotingError,
    RequestTimeout,
)
from broker_core.names import Group, QueueName, Topic
from broker_core.nameserver.server import NameServer
from broker_core.remoting import bodies
from broker_core.remoting.codes import RequestCode, ResponseCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.headers import (
    ConsumerGroupHeader,
    OffsetResponse,
    PullMessageHeader,
    PullMessageResponse,
    SendMessageHeader,
    SendMessageResponse,
    UpdateConsumerOffsetHeader,
)
from broker_core.remoting.message import OutgoingMessage, decode_properties, encode_host
from broker_core.remoting.message_batch import decode_batch
from broker_core.remoting.record_encoding import BatchEntry, Envelope, encode_stored
from broker_core.remoting.route_bodies import Perm
from broker_core.remoting_channel import Answer, RemotingChannel
from testkit.eventually import eventually
from tests.integration.broker.client.scripted_broker import ScriptedBroker, scripted_broker

ORDERS = Topic("orders")
GROUP = Group("billing")
QUEUE = QueueName(ORDERS, "broker-a", 1)


@pytest.fixture
async def nameserver() -> AsyncIterator[NameServer]:
    nameserver = NameServer()
    await nameserver.start()
    yield nameserver
    await nameserver.close()


@pytest.fixture
async def broker(nameserver: NameServer) -> AsyncIterator[ScriptedBroker]:
    async with scripted_broker(nameserver.address) as broker:
        await broker.add_topic("orders", queues=2)
        yield broker


@pytest.fixture
async def client(nameserver: NameServer) -> AsyncIterator[BrokerClient]:
    client = BrokerClient(
        nameservers=[nameserver.address], client_id="me@1", request_timeout_s=20.0
    )
    await client.start()
    yield client
    await client.close()


async def until_queues(client: BrokerClient, count: int) -> None:
    """Return once the known route has *count* readable queues."""
    async with asyncio.timeout(30):
        while len(await client.queues(ORDERS)) != count:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def stored(body: bytes, offset: int) -> bytes:
    host = encode_host("127.0.0.1", 10911)
    envelope = Envelope(ORDERS, 1, host, host)
    entry = BatchEntry(0, body, b"KEYS\x01k1\x02")
    return bytes(encode_stored(envelope, entry, queue_offset=offset, store_ms=7))


# -- routes ------------------------------------------------------------------------------------


async def test_queues_come_by_broker_and_id_and_only_with_permission(
    nameserver: NameServer, broker: ScriptedBroker, client: BrokerClient
) -> None:
    async with scripted_broker(nameserver.address, "broker-0") as other:
        await other.add_topic("orders", queues=1, perm=Perm.READ)
        first = QueueName(ORDERS, "broker-0", 0)
        own = [QueueName(ORDERS, "broker-a", 0), QueueName(ORDERS, "broker-a", 1)]
        assert await client.queues(ORDERS) == [first, *own]
        assert await client.writable_queues(ORDERS) == own
        assert await client.broker_names(ORDERS) == ["broker-0", "broker-a"]
        assert await client.topics() == [ORDERS]


async def test_a_cached_route_is_renewed_on_demand_only(
    broker: ScriptedBroker, client: BrokerClient
) -> None:
    assert len(await client.queues(ORDERS)) == 2
    await broker.add_topic("orders", queues=3)
    assert len(await client.queues(ORDERS)) == 2
    assert len(await client.queues(ORDERS, fresh=True)) == 3
    assert len(await client.queues(ORDERS)) == 3


async def test_routes_are_refreshed_in_the_background_and_kept_while_no_nameserver_has_them(
    nameserver: NameServer, broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "REFRESH_S", 0.01)
    client = BrokerClient(nameservers=[nameserver.address], client_id="me@1")
    await client.start()
    assert len(await client.queues(ORDERS)) == 2
    await broker.add_topic("orders", queues=3)
    await until_queues(client, 3)
    await nameserver.close()
    with capture_logs() as logs:
        await eventually(lambda: len(logs) > 1)
    assert {line["event"] for line in logs} == {"route not refreshed"}
    assert len(await client.queues(ORDERS)) == 3
    await client.close()


async def test_a_broker_that_is_missing_is_looked_for_until_it_is_back(
    nameserver: NameServer, broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It mostly restarts, and its queues stand still until its clients see it."""
    monkeypatch.setattr(routes, "MISSED_REFRESH_S", 0.01)
    client = BrokerClient(nameservers=[nameserver.address], client_id="me@1")
    async with scripted_broker(nameserver.address, "broker-0") as other:
        await other.add_topic("orders", queues=1)
        assert len(await client.queues(ORDERS)) == 3

    async with asyncio.timeout(30):
        while len(await client.queues(ORDERS, fresh=True)) == 3:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await client.start()
    async with scripted_broker(nameserver.address, "broker-0") as other:
        await other.add_topic("orders", queues=1)
        await until_queues(client, 3)
    await client.close()


async def test_an_unknown_topic_is_error_17(client: BrokerClient, broker: ScriptedBroker) -> None:
    await broker.register()
    with pytest.raises(BrokerError, match="No topic route info") as caught:
        await client.queues(Topic("nope"))
    assert caught.value.code == 17


async def test_the_next_nameserver_is_asked_when_one_is_gone(
    nameserver: NameServer, broker: ScriptedBroker
) -> None:
    client = BrokerClient(nameservers=["127.0.0.1:1", nameserver.address], client_id="me@1")
    assert len(await client.queues(ORDERS)) == 2
    await client.close()


async def test_no_nameserver_is_one_sentence_that_names_them() -> None:
    client = BrokerClient(nameservers=["127.0.0.1:1", "127.0.0.1:2"], client_id="me@1")
    with pytest.raises(ConnectionLost, match=r"no nameserver of 127.0.0.1:1, 127.0.0.1:2 answers"):
        await client.queues(ORDERS)
    await client.close()


async def test_a_broker_that_comes_back_on_another_port_is_found(
    broker: ScriptedBroker, client: BrokerClient
) -> None:
    broker.answer(
        RequestCode.GET_MAX_OFFSET, lambda r: r.response(ext=OffsetResponse(offset=9).to_ext())
    )
    assert await client.max_offset(QUEUE) == 9
    await broker.restart()
    with pytest.raises(ConnectionLost):
        await client.max_offset(QUEUE)
    assert await client.max_offset(QUEUE) == 9


async def test_a_known_broker_is_reached_with_all_nameservers_down(
    nameserver: NameServer, broker: ScriptedBroker, client: BrokerClient
) -> None:
    broker.answer(
        RequestCode.GET_MAX_OFFSET, lambda r: r.response(ext=OffsetResponse(offset=9).to_ext())
    )
    assert await client.max_offset(QUEUE) == 9
    await nameserver.close()
    broker.on[RequestCode.GET_MIN_OFFSET] = lambda _, channel: channel.abort()
    with pytest.raises(ConnectionLost):
        await client.min_offset(QUEUE)
    assert await client.max_offset(QUEUE) == 9


async def test_an_unknown_broker_is_a_lost_connection(
    broker: ScriptedBroker, client: BrokerClient
) -> None:
    with pytest.raises(ConnectionLost, match="broker broker-z is not registered at 127"):
        await client.max_offset(QueueName(ORDERS, "broker-z", 0))


# -- reading -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (0, PullStatus.FOUND),
        (19, PullStatus.NO_NEW),
        (20, PullStatus.NO_MATCH),
        (21, PullStatus.OFFSET_ILLEGAL),
    ],
)
async def test_a_pull_reports_status_messages_and_offsets(
    broker: ScriptedBroker, client: BrokerClient, code: int, status: PullStatus
) -> None:
    place = PullMessageResponse(next_begin_offset=12, min_offset=3, max_offset=40)
    body = stored(b"one", 10) + stored(b"two", 11)
    broker.answer(
        RequestCode.PULL_MESSAGE, lambda r: r.response(code, ext=place.to_ext(), body=body)
    )
    result = await client.pull(QUEUE, group=GROUP, offset=10, max_messages=32, tags="a || b")

    assert (result.status, result.next_offset) == (status, 12)
    assert (result.min_offset, result.max_offset) == (3, 40)
    expected = [(10, b"one", "k1"), (11, b"two", "k1")] if code == 0 else []
    assert [(m.queue_offset, m.body, m.key) for m in result.messages] == expected
    asked = PullMessageHeader.from_ext(broker.asked[-1].ext)
    assert asked == PullMessageHeader(
        consumer_group=GROUP,
        topic=ORDERS,
        queue_id=1,
        queue_offset=10,
        max_msg_nums=32,
        sys_flag=4 + 2,
        commit_offset=0,
        suspend_timeout_millis=15_000,
        subscription="a || b",
        sub_version=0,
        expression_type="TAG",
    )


async def test_a_pull_without_waiting_does_not_ask_to_be_held(
    broker: ScriptedBroker, client: BrokerClient
) -> None:
    place = PullMessageResponse(next_begin_offset=0, min_offset=0, max_offset=0)
    broker.answer(RequestCode.PULL_MESSAGE, lambda r: r.response(19, ext=place.to_ext()))
    await client.pull(QUEUE, group=GROUP, offset=0, suspend_ms=0)
    assert broker.asked[-1].ext["sysFlag"] == "4"


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        (lambda r: r.response(24, "no such group"), BrokerError, "code 24: no such group"),
        (lambda r: r.response(), InvalidCommand, "header field nextBeginOffset is missing"),
        (
            lambda r: r.response(
                ext={"nextBeginOffset": "1", "minOffset": "0", "maxOffset": "1"}, body=b"garbage"
            ),
            RemotingError,
            "stored message at byte 0",
        ),
    ],
)
async def test_a_bad_answer_to_a_pull_is_a_clear_error(
    broker: ScriptedBroker,
    client: BrokerClient,
    answer: object,
    error: type[Exception],
    text: str,
) -> None:
    broker.answer(RequestCode.PULL_MESSAGE, answer)  # type: ignore[arg-type]
    with pytest.raises(error, match=text):
        await client.pull(QUEUE, group=GROUP, offset=0)


async def test_offsets_are_asked_for_by_queue(broker: ScriptedBroker, client: BrokerClient) -> None:
    for code, offset in ((30, 40), (31, 3), (29, 17), (14, 5)):
        broker.answer(code, lambda r, offset=offset: r.response(ext={"offset": str(offset)}))
    assert await client.max_offset(QUEUE) == 40
    assert await client.min_offset(QUEUE) == 3
    assert await client.offset_at(QUEUE, 1_700_000_000_000) == 17
    assert broker.asked[-1].ext["timestamp"] == "1700000000000"
    assert await client.committed_offset(GROUP, QUEUE) == 5
    broker.answer(14, lambda r: r.response(22, "not found"))
    assert await client.committed_offset(GROUP, QUEUE) is None


async def test_a_topic_without_a_life_is_known_from_one_that_is_not_there(
    broker: ScriptedBroker, client: BrokerClient
) -> None:
    broker.answer(30, lambda r: r.response(ext={"offset": "40"}))  # as Apache's brokers
    assert await client.topic_life(QUEUE) == TopicLife(None, {})
    broker.answer(30, lambda r: r.response(ext={"offset": "0", "noTopic": "true"}))
    with pytest.raises(BrokerError, match="topic 'orders' does not exist on broker") as missing:
        await client.topic_life(QUEUE)
    assert missing.value.code == ResponseCode.TOPIC_NOT_EXIST
    assert await client.life(QUEUE) is None


@pytest.mark.parametrize("epoch", [None, 77])
async def test_a_commit_waits_for_its_answer_and_carries_the_epoch(
    broker: ScriptedBroker, client: BrokerClient, epoch: int | None
) -> None:
    broker.answer(RequestCode.UPDATE_CONSUMER_OFFSET, lambda r: r.response())
    await client.commit_offset(GROUP, QUEUE, 6, epoch=epoch)
    (asked,) = broker.asked
    assert not asked.is_oneway
    header = UpdateConsumerOffsetHeader.from_ext(asked.ext)
    assert (header.commit_offset, header.queue_id, header.epoch) == (6, 1, epoch)
    broker.answer(RequestCode.UPDATE_CONSUMER_OFFSET, lambda r: r.response(1, "older epoch"))
    with pytest.raises(BrokerError, match=r"UPDATE_CONSUMER_OFFSET .* code 1: older epoch"):
        await client.commit_offset(GROUP, QUEUE, 6, epoch=epoch)


# -- groups ------------------------------------------------------------------------------------


def grant(request: RemotingCommand) -> RemotingCommand:
    """Grant the queues with an even id, and one that was not requested."""
    batch = bodies.LockBatch.from_json(request.body)
    granted = [queue for queue in batch.queues if queue.queue_id % 2 == 0]
    return request.response(body=bodies.locked_to_json([*granted, QueueName(ORDERS, "x", 0)]))


async def test_locks_are_requested_at_all_brokers_at_once_and_a_failure_is_not_a_refusal(
    nameserver: NameServer, broker: ScriptedBroker, client: BrokerClient
) -> None:
    async with (
        scripted_broker(nameserver.address, "broker-b") as second,
        scripted_broker(nameserver.address, "broker-c") as third,
    ):
        both = asyncio.Barrier(2)

        async def wait_then_grant(request: RemotingCommand, _: RemotingChannel) -> Answer:
            await asyncio.wait_for(both.wait(), 15)  # returns only if both requests are concurrent
            return grant(request)

        for each in (second, third):
            await each.add_topic("orders", queues=2)
        broker.on[RequestCode.LOCK_BATCH_MQ] = wait_then_grant
        second.on[RequestCode.LOCK_BATCH_MQ] = wait_then_grant
        third.answer(RequestCode.LOCK_BATCH_MQ, lambda r: r.response(2, "busy"))
        answer = await client.lock(GROUP, await client.queues(ORDERS))

    assert answer.granted == {QueueName(ORDERS, "broker-a", 0), QueueName(ORDERS, "broker-b", 0)}
    assert answer.unanswered == {QueueName(ORDERS, "broker-c", n) for n in (0, 1)}
    batch = bodies.LockBatch.from_json(broker.asked[-1].body)
    assert (batch.client_id, batch.group) == ("me@1", GROUP)


async def test_unlocking_asks_all_brokers_and_raises_the_first_failure(
    nameserver: NameServer, broker: ScriptedBroker, client: BrokerClient
) -> None:
    async with scripted_broker(nameserver.address, "broker-b") as second:
        await second.add_topic("orders", queues=1)
        broker.answer(RequestCode.UNLOCK_BATCH_MQ, lambda r: r.response(2, "busy"))
        second.answer(RequestCode.UNLOCK_BATCH_MQ, lambda r: r.response())
        with pytest.raises(BrokerError, match="busy"):
            await client.unlock(GROUP, await client.queues(ORDERS))
        assert second.codes() == [RequestCode.UNLOCK_BATCH_MQ]


async def test_members_of_a_group_and_none(broker: ScriptedBroker, client: BrokerClient) -> None:
    code = RequestCode.GET_CONSUMER_LIST_BY_GROUP
    broker.answer(code, lambda r: r.response(body=bodies.consumer_ids_to_json(["a", "b"])))
    assert await client.consumer_ids(GROUP, ORDERS) == ["a", "b"]
    broker.answer(code, lambda r: r.response(1, "no consumer for this group"))
    assert await client.consumer_ids(GROUP, ORDERS) == []
    broker.answer(code, lambda r: r.response(1, "disk on fire"))
    with pytest.raises(BrokerError, match="disk on fire"):
        await client.consumer_ids(GROUP, ORDERS)


async def test_a_change_notice_reaches_the_callback(
    nameserver: NameServer, broker: ScriptedBroker
) -> None:
    noticed: asyncio.Queue[Group] = asyncio.Queue()
    client = BrokerClient(
        nameservers=[nameserver.address],
        client_id="me@1",
        on_consumers_changed=noticed.put_nowait,
    )
    broker.answer(30, lambda r: r.response(ext={"offset": "0"}))
    await client.max_offset(QUEUE)
    (channel,) = broker.server.channels
    header = ConsumerGroupHeader(consumer_group=GROUP)
    channel.send_oneway(RemotingCommand(40, ext=header.to_ext()))
    assert await asyncio.wait_for(noticed.get(), 30) == GROUP
    await client.close()


# -- administration ----------------------------------------------------------------------------


async def test_a_created_topic_is_there_when_create_topic_returns(
    broker: ScriptedBroker, client: BrokerClient
) -> None:
    async def create(request: RemotingCommand, _: RemotingChannel) -> Answer:
        asyncio.get_running_loop().call_later(0.1, registered.set)
        return request.response()

    async def register_later() -> None:
        await registered.wait()
        await broker.add_topic("late", queues=5)

    registered = asyncio.Event()
    broker.on[RequestCode.UPDATE_AND_CREATE_TOPIC] = create
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(register_later())
        await client.create_topic(Topic("late"), queues=5)

    assert len(await client.queues(Topic("late"))) == 5
    (asked,) = broker.asked
    assert (asked.ext["readQueueNums"], asked.ext["perm"]) == ("5", "6")


async def test_a_broker_s_start_time(broker: ScriptedBroker, client: BrokerClient) -> None:
    table = bodies.table_to_json({"bootTimestamp": "1700000000123"})
    broker.answer(RequestCode.GET_BROKER_RUNTIME_INFO, lambda r: r.response(body=table))
    assert await client.broker_start_ms("broker-a") == 1_700_000_000_123
    broker.answer(RequestCode.GET_BROKER_RUNTIME_INFO, lambda r: r.response(body=b'{"table":{}}'))
    with pytest.raises(BrokerError, match="bootTimestamp is ''"):
        await client.broker_start_ms("broker-a")


# -- sending -----------------------------------------------------------------------------------


async def test_a_message_is_sent_with_its_properties_and_an_id(
    broker: ScriptedBroker, client: BrokerClient
) -> None:
    place = SendMessageResponse(msg_id="7F" * 16, queue_id=1, queue_offset=33)
    broker.answer(RequestCode.SEND_MESSAGE_V2, lambda r: r.response(ext=place.to_ext()))
    message = OutgoingMessage(ORDERS, b"body", key="k1", tag="t", properties={"a": "b"}, born_ms=5)
    receipt = await client.send(QUEUE, message)

    (asked,) = broker.asked
    header = SendMessageHeader.from_v2(asked.ext)
    properties = decode_properties((header.properties or "").encode())
    assert asked.body == b"body"
    assert (header.topic, header.queue_id, header.born_timestamp) == (ORDERS, 1, 5)
    assert properties == {"a": "b", "KEYS": "k1", "TAGS": "t", "UNIQ_KEY": receipt.message_id}
    assert (receipt.queue, receipt.offset) == (QUEUE, 33)
    assert (receipt.offset_message_id, receipt.status) == ("7F" * 16, SendStatus.OK)
    assert len(receipt.message_id) == 32


@pytest.mark.parametrize("code", [10, 11, 12])
async def test_stored_but_not_yet_safe_counts_as_stored(
    broker: ScriptedBroker, client: BrokerClient, code: int
) -> None:
    place = SendMessageResponse(msg_id="x", queue_id=1, queue_offset=33)
    broker.answer(RequestCode.SEND_MESSAGE_V2, lambda r: r.response(code, ext=place.to_ext()))
    receipt = await client.send(QUEUE, OutgoingMessage(ORDERS, b""))
    assert receipt.status.value == code


async def test_a_batch_keeps_its_order_and_every_message_has_an_id(
    broker: ScriptedBroker, client: BrokerClient
) -> None:
    place = SendMessageResponse(msg_id="A,B,C", queue_id=1, queue_offset=33)
    broker.answer(RequestCode.SEND_BATCH_MESSAGE, lambda r: r.response(ext=place.to_ext()))
    messages = [OutgoingMessage(ORDERS, body, key="k") for body in (b"1", b"2", b"3")]
    receipts = await client.send_batch(QUEUE, messages)

    assert [(r.offset, r.offset_message_id) for r in receipts] == [(33, "A"), (34, "B"), (35, "C")]
    assert len({r.message_id for r in receipts}) == 3
    assert [entry.body for entry in decode_batch(broker.asked[-1].body)] == [b"1", b"2", b"3"]
    assert broker.asked[-1].ext["m"] == "true"
    assert await client.send_batch(QUEUE, []) == []
    with pytest.raises(LocalProtocolError, match="one topic, here orders"):
        await client.send_batch(QUEUE, [OutgoingMessage(Topic("other"), b"")])


async def test_a_request_that_was_never_sent_is_known_to_have_no_effect(
    nameserver: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its caller may send it again, or say that nothing is stored."""
    message = OutgoingMessage(ORDERS, b"")

    def silent(_request: RemotingCommand, _channel: RemotingChannel) -> Answer:
        return None

    async with scripted_broker(nameserver.address, "nameserver") as unheard:
        unheard.on[RequestCode.GET_BROKER_CLUSTER_INFO] = silent
        client = BrokerClient(nameservers=[unheard.address], client_id="me@1#1")
        with pytest.raises(RequestTimeout, match="no nameserver returned broker-a") as late:
            await client.send(QUEUE, message, timeout_s=0.05)
        await client.close()
        impatient = BrokerClient(
            nameservers=[unheard.address], client_id="me@1#2", request_timeout_s=0.05
        )
        with pytest.raises(NotConnected, match=r"no nameserver of .* answers") as unfound:
            await impatient.send(QUEUE, message, timeout_s=5)
        await impatient.close()

    async def never(*_: object, **__: object) -> None:
        await asyncio.sleep(3600)

    pool = ConnectionPool()
    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", never)
    with pytest.raises(RequestTimeout, match="not connected to 127") as unreached:
        await pool.request("127.0.0.1:1", RemotingCommand(1), timeout_s=0.05)
    await pool.close()
    for caught in (late, unfound, unreached):
        assert caught.value.unsent
        assert not is_in_doubt(caught.value)


async def test_a_silent_broker_is_a_time_out_that_names_the_request(
    broker: ScriptedBroker, client: BrokerClient
) -> None:
    broker.on[RequestCode.SEND_MESSAGE_V2] = lambda request, _: None
    broker.answer(30, lambda r: r.response(ext={"offset": "0"}))
    await client.max_offset(QUEUE)  # connected now: that takes none of the time
    with pytest.raises(RequestTimeout, match="SEND_MESSAGE_V2: no answer from 127"):
        await client.send(QUEUE, OutgoingMessage(ORDERS, b""), timeout_s=0.05)
