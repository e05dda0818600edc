"""Sends of producers without a RocketMQ client, over loopback, to queues in memory."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from itertools import groupby
from typing import Any

import pytest

from broker_core.client import BrokerClient, SendStatus
from broker_core.clock import wall_ms
from broker_core.errors import (
    BrokerError,
    ConnectionLost,
    NotConnected,
    NotSentInTime,
    RequestTimeout,
)
from broker_core.names import QueueName, Topic
from broker_core.nameserver.server import NameServer
from broker_core.remoting.codes import RequestCode, ResponseCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.key_hash import java_hash
from broker_core.remoting_channel import RemotingChannel
from broker_core.tasks import spawn
from proxy.downstream.port.server import ThriftServer
from proxy.downstream.producer_service import ProducerService
from proxy.history.record import NullHistory
from proxy.settings.proxy_settings import LimitSettings
from testkit.eventually import eventually
from testkit.lanes import Notes
from testkit.thrift_client import ThriftClient, connect
from tests.integration.broker.client.scripted_broker import scripted_broker
from tests.support.fake_broker_client import FakeBrokerClient, queue
from tests.support.producing import counted, sending
from thrift_idl import producer


def outgoing(**fields: Any) -> Any:
    return producer.Message(**{"topic": "orders", "body": b"body", **fields})


async def send(client: ThriftClient, *, timeout_ms: int = 0, **fields: Any) -> Any:
    return await client.call("sendSync", outgoing(**fields), timeout_ms)


def queue_ids(broker: FakeBrokerClient) -> list[int]:
    """Return the queue of each message, in sending order."""
    return [queue.queue_id for queue, messages in broker.sent for _ in messages]


# ---- a message ----------------------------------------------------------------------------------


@pytest.fixture
def no_time_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker_core.client.producer.now_ns", lambda: 0)


@pytest.mark.usefixtures("no_time_passes")
async def test_a_message_is_stored_as_it_was_given_with_an_id_of_its_own() -> None:
    broker = FakeBrokerClient(orders=1)
    async with sending(broker) as client:
        result = await send(client, key="k", tags="t", properties={"a": "b"}, timeout_ms=2500)
        assert (result.code, result.msg) == (0, "OK")
    ((_, (message,)),) = broker.sent
    assert (message.topic, message.key, message.tag, message.body) == ("orders", "k", "t", b"body")
    assert message.properties["a"] == "b"
    assert len(message.properties["UNIQ_KEY"]) == 32
    assert message.born_ms > 0
    assert broker.timeouts == [pytest.approx(2.5)]


async def test_the_body_is_field_7_or_the_text_of_field_3() -> None:
    broker = FakeBrokerClient(orders=1)
    async with sending(broker) as client:
        await send(client, value="ignored")
        await send(client, body=None, value="naïve")
    assert [messages[0].body for _, messages in broker.sent] == [b"body", "naïve".encode()]


async def test_a_client_may_set_the_id_so_that_its_repetition_is_known() -> None:
    broker = FakeBrokerClient(orders=1)
    async with sending(broker) as client:
        await send(client, properties={"UNIQ_KEY": "mine"})
    assert broker.sent[0][1][0].properties == {"UNIQ_KEY": "mine"}


@pytest.mark.usefixtures("no_time_passes")
@pytest.mark.parametrize(("timeout_ms", "given_s"), [(-5, 3.0), (0, 3.0), (2**62, 60.0)])
async def test_a_timeout_out_of_bounds_is_set_right(timeout_ms: int, given_s: float) -> None:
    broker = FakeBrokerClient(orders=1)
    async with sending(broker) as client:
        assert (await send(client, timeout_ms=timeout_ms)).code == 0
    assert broker.timeouts == [pytest.approx(given_s)]


async def test_send_async_answers_when_the_message_is_stored() -> None:
    broker = FakeBrokerClient(orders=1)
    async with sending(broker) as client:
        assert (await client.call("sendAsync", outgoing())).code == 0
    assert queue_ids(broker) == [0]


# ---- its queue ----------------------------------------------------------------------------------


async def test_a_keys_messages_go_to_the_queue_of_javas_hash() -> None:
    broker = FakeBrokerClient(orders=7)
    keys = [f"key-{number}" for number in range(50)] + ["naïve", "😀", "polygenelubricants"]
    async with sending(broker) as client:
        for key in keys:
            await send(client, key=key)
    assert queue_ids(broker) == [abs(java_hash(key)) % 7 for key in keys]


async def test_a_hash_id_goes_before_the_key_and_keeps_its_sign() -> None:
    broker = FakeBrokerClient(orders=7)
    hash_ids = [0, 1, 8, -1, -8, 2**63 - 1, -(2**63)]
    async with sending(broker) as client:
        for hash_id in hash_ids:
            await send(client, key="k", hashId=hash_id)
    assert queue_ids(broker) == [abs(hash_id) % 7 for hash_id in hash_ids]


async def test_a_partition_goes_before_the_hash_id() -> None:
    broker = FakeBrokerClient(orders=7)
    async with sending(broker) as client:
        for partition in (0, 6):
            await send(client, hashId=3, partitionId=partition)
    assert queue_ids(broker) == [0, 6]


async def test_a_partition_that_the_topic_does_not_have_is_refused() -> None:
    broker = FakeBrokerClient(orders=7)
    async with sending(broker) as client:
        for partition in (7, 99, 2**31 - 1):
            result = await send(client, partitionId=partition)
            assert (result.code, result.msg) == (
                11,
                f"topic orders has no queue {partition}: expected a number from 0 to 6",
            )
        messages = [outgoing(partitionId=number) for number in (1, 9, 2)]
        result = await client.call("sendBatchSync", messages)
        assert result.code == 11
        assert [each.code for each in result.messages] == [0, 11, 0]
    assert sorted(queue_ids(broker)) == [1, 2]


async def test_a_queue_named_goes_before_all_and_has_to_exist() -> None:
    broker = FakeBrokerClient(orders=7)
    async with sending(broker) as client:
        assert (await send(client, hashId=3, partitionId=2, qid="broker-a_6")).code == 0
        for name in ("broker-a_7", "broker-b_0", ""):
            result = await send(client, qid=name)
            assert (result.code, result.msg) == (
                11,
                f"topic orders has no queue {name}: expected one of its 7 queues, as in broker-a_0",
            )
        messages = [outgoing(qid=name) for name in ("broker-a_1", "broker-a_9", "broker-a_2")]
        result = await client.call("sendBatchSync", messages)
        assert [each.code for each in result.messages] == [0, 11, 0]
    assert sorted(queue_ids(broker)) == [1, 2, 6]


async def test_the_queues_of_a_topic_are_told_in_the_order_of_their_numbers() -> None:
    broker = FakeBrokerClient(orders=3)
    async with sending(broker) as client:
        answer = await client.call("writableQueues", producer.QueuesRequest("orders"))
        assert (answer.code, answer.qids) == (0, ["broker-a_0", "broker-a_1", "broker-a_2"])


@pytest.mark.parametrize(
    ("topic", "failure", "code", "reason"),
    [
        ("no spaces", None, 11, "is not a legal name"),
        ("%OWN%0123456789abcdef", None, 11, "is internal"),
        ("orders", BrokerError(17, "no topic"), 14, "no topic"),
        ("orders", ConnectionLost("gone"), 10, "gone"),
    ],
)
async def test_why_nothing_can_be_sent_to_a_topic_is_told(
    topic: str, failure: Exception | None, code: int, reason: str
) -> None:
    broker = FakeBrokerClient(orders=1, TBW102=0)
    if failure is not None:
        broker.fails["writable_queues", Topic("orders")] = failure
    async with sending(broker) as client:
        answer = await client.call("writableQueues", producer.QueuesRequest(topic))
        assert (answer.code, answer.qids) == (code, None)
        assert reason in answer.msg
        assert (await client.call("writableQueues", None)).code == 11


async def test_without_a_key_and_with_partition_minus_2_queues_take_turns() -> None:
    broker = FakeBrokerClient(orders=4)
    async with sending(broker) as client:
        for _ in range(4):
            await send(client)
            await send(client, key="k", hashId=1, partitionId=-2)
    assert queue_ids(broker) == [0, 1, 2, 3, 0, 1, 2, 3]


# ---- batches ------------------------------------------------------------------------------------


async def test_a_batch_keeps_the_order_inside_each_queue() -> None:
    broker = FakeBrokerClient(orders=3)
    messages = [outgoing(key=f"k{n % 5}", body=str(n).encode()) for n in range(40)]
    async with sending(broker) as client:
        assert (await client.call("sendBatchSync", messages)).code == 0
    assert len(broker.sent) == len({queue for queue, _ in broker.sent})
    for _, sent in broker.sent:
        numbers = [int(each.body) for each in sent]
        assert numbers == sorted(numbers)
    assert sum(len(sent) for _, sent in broker.sent) == 40


async def test_a_long_batch_goes_in_parts_of_a_size_that_brokers_take() -> None:
    """512 messages, or a million bytes of bodies and properties, unless a single one is larger."""
    broker = FakeBrokerClient(orders=1)
    async with sending(broker) as client:
        for count, body, properties, parts in (
            (1100, 1, 0, [512, 512, 76]),
            (5, 400_000, 0, [2, 2, 1]),
            (3, 1_200_000, 0, [1, 1, 1]),
            (70, 1, 30_000, [33, 33, 4]),
        ):
            extra = {"p": "x" * properties} if properties else None
            messages = [outgoing(body=bytes(body), properties=extra) for _ in range(count)]
            assert (await client.call("sendBatchSync", messages)).code == 0
            assert [len(sent) for _, sent in broker.sent] == parts
            broker.sent.clear()


async def test_the_first_failure_is_the_batchs_result_and_ends_its_queue_alone() -> None:
    broker = FakeBrokerClient(orders=2)
    broker.fails["send", queue(0)] = BrokerError(13, "I cannot read that")
    messages = [outgoing(partitionId=n % 2, body=bytes(600_000)) for n in range(6)]
    async with sending(broker) as client:
        result = await client.call("sendBatchSync", messages)
    assert result.code == 11
    assert result.msg.startswith("3 of 6 messages were not stored: ")
    assert "I cannot read that" in result.msg
    assert queue_ids(broker) == [1, 1, 1]
    assert [each.code for each in result.messages] == [11, 0, 70, 0, 70, 0]
    assert "I cannot read that" in result.messages[0].msg
    assert "an earlier message" in result.messages[2].msg


async def test_a_batch_with_a_message_in_doubt_has_its_code_whatever_failed_before() -> None:
    """A client that does not read the results of the messages must not take them for unsent."""
    broker = FakeBrokerClient(orders=3)
    broker.fails["send", queue(0)] = BrokerError(13, "I cannot read that")
    broker.fails["send", queue(1)] = RequestTimeout("no answer")
    messages = [outgoing(partitionId=n) for n in range(3)]
    async with counted(broker) as (client, counts):
        result = await client.call("sendBatchSync", messages)
    assert result.code == 12
    assert result.msg == "2 of 3 messages are not known to be stored: no answer"
    assert [each.code for each in result.messages] == [11, 12, 0]
    assert counts.failures == {"timed_out": 1}


async def test_a_reason_is_said_once_for_messages_in_a_row() -> None:
    broker = FakeBrokerClient(orders=1)
    broker.fails["send"] = BrokerError(13, "no")
    async with sending(broker) as client:
        result = await client.call("sendBatchSync", [outgoing(hashId=1) for _ in range(3)])
    assert [each.code for each in result.messages] == [11, 11, 11]
    assert [each.msg is None for each in result.messages] == [False, True, True]


async def test_a_batch_that_is_stored_whole_needs_no_results() -> None:
    async with sending(FakeBrokerClient(orders=2)) as client:
        result = await client.call("sendBatchSync", [outgoing() for _ in range(3)])
    assert (result.code, result.messages) == (0, None)


async def test_nothing_of_a_batch_is_sent_if_one_message_is_illegal() -> None:
    broker = FakeBrokerClient(orders=1)
    async with sending(broker) as client:
        result = await client.call("sendBatchSync", [outgoing(), outgoing(body=b"")])
        assert (result.code, result.msg.partition(":")[0]) == (11, "message 2 of 2")
        assert (await client.call("sendBatchSync", None)).code == 0
    assert broker.sent == []


# ---- refusals -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"topic": None}, "topic '' is not a legal name"),
        ({"topic": "no spaces"}, "topic 'no spaces' is not a legal name"),
        ({"topic": "x" * 5000}, "is not a legal name"),
        (
            {"topic": "%OWN%0123456789abcdef"},
            "topic '%OWN%0123456789abcdef' is internal: producers cannot send",
        ),
        ({"topic": "%DLQ%billing"}, "cannot send to topics whose names begin with '%'"),
        ({"body": None}, "a body of 0 bytes: expected 1 to 100"),
        ({"body": bytes(101)}, "a body of 101 bytes"),
        ({"key": "k" * 256}, "a key of 256 characters: the limit is 255"),
        ({"tags": "t" * 256}, "a tag of 256 characters"),
        ({"properties": {"TAGS": "t"}}, "property 'TAGS' is reserved by the broker"),
        ({"properties": {"": "v"}}, "neither may be empty"),
        ({"properties": {"n": ""}}, "neither may be empty"),
        ({"properties": {"n": "a\x01b"}}, "must not contain the characters 0x01 and 0x02"),
        ({"key": "a\x02b"}, "must not contain the characters 0x01 and 0x02"),
        ({"properties": {"n": "v" * 32_767}}, "a message may carry 32767"),
    ],
)
async def test_a_message_that_no_broker_takes_is_refused_with_code_11(
    fields: dict[str, Any], reason: str
) -> None:
    broker = FakeBrokerClient(orders=1)
    async with sending(broker, max_body_bytes=100) as client:
        result = await send(client, **fields)
        assert (result.code, reason in result.msg) == (11, True), result.msg
        result = await client.call("sendSync", None, 0)
        assert (result.code, result.msg) == (11, "the request has no message")
    assert broker.sent == []


#: ``MessageConst.STRING_HASH_SET`` of RocketMQ 5.3 without UNIQ_KEY, and further properties that
#: its brokers act on.
NAMES_OF_ROCKETMQ = (
    "TRACE_ON MSG_REGION KEYS TAGS WAIT DELAY RETRY_TOPIC REAL_TOPIC REAL_QID TRAN_MSG PGROUP"
    " MIN_OFFSET MAX_OFFSET BUYER_ID ORIGIN_MESSAGE_ID TRANSFER_FLAG CORRECTION_FLAG MQ2_FLAG"
    " RECONSUME_TIME MAX_RECONSUME_TIMES CONSUME_START_TIME POP_CK POP_CK_OFFSET 1ST_POP_TIME"
    " TRAN_PREPARED_QUEUE_OFFSET DUP_INFO EXTEND_UNIQ_INFO INSTANCE_ID CORRELATION_ID"
    " REPLY_TO_CLIENT TTL ARRIVE_TIME PUSH_REPLY_TIME CLUSTER MSG_TYPE INNER_MULTI_QUEUE_OFFSET"
    " TIMER_DELAY_MS TIMER_DELAY_SEC TIMER_DELIVER_MS TIMER_ENQUEUE_MS TIMER_DEQUEUE_MS"
    " TIMER_ROLL_TIMES TIMER_OUT_MS TIMER_DEL_UNIQKEY TIMER_DELAY_LEVEL __BORNHOST BORN_TIMESTAMP"
    " DLQ_ORIGIN_TOPIC DLQ_ORIGIN_MESSAGE_ID __CRC32# INNER_NUM INNER_BASE INNER_MULTI_DISPATCH"
    " CHECK_IMMUNITY_TIME_IN_SECONDS TRANSACTION_CHECK_TIMES __transactionId__ __SHARDINGKEY"
    " __RMQ.TRANSIENT.TOPIC_SYS_FLAG"
).split()


@pytest.mark.parametrize("name", NAMES_OF_ROCKETMQ)
async def test_a_property_that_brokers_act_on_is_refused_however_it_is_sent(name: str) -> None:
    broker = FakeBrokerClient(orders=1)
    async with sending(broker) as client:
        reason = f"property {name!r} is reserved by the broker: rename it"
        result = await send(client, properties={name: "2000"})
        assert (result.code, result.msg) == (11, reason)
        bad = outgoing(properties={"colour": "red", name: "2000"})
        result = await client.call("sendBatchSync", [outgoing(), bad])
        assert (result.code, result.msg) == (11, f"message 2 of 2: {reason}")
        delayed = producer.DelayMessage(
            topic="orders",
            body=b"x",
            action=1,
            timestamp=wall_ms() // 1000 + 60,
            properties={name: "2000"},
        )
        if name != "KEYS":  # a delayed message has no other field for its key
            result = await client.call("sendDelaySync", delayed, 0)
            assert (result.code, result.msg) == (11, f"{reason}: nothing was done")
    assert broker.sent == []


@pytest.mark.parametrize(
    "name", ["delay", "TIMER", "TIMER_DELAY", "UNIQ_KEYS", "traceparent", "PRIORITY"]
)
async def test_a_name_that_only_looks_like_theirs_is_taken(name: str) -> None:
    broker = FakeBrokerClient(orders=1)
    async with sending(broker) as client:
        assert (await send(client, properties={name: "2000"})).code == 0
    assert len(broker.sent) == 1


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RequestTimeout("no answer"), 12),
        (BrokerError(17, "no such topic"), 14),
        (BrokerError(13, "too large"), 11),
        (BrokerError(2, "busy"), 70),
        (BrokerError(4711, "never heard of"), 70),
        (ConnectionLost("gone"), 10),
    ],
)
async def test_failures_of_a_broker_have_ddmqs_codes(error: Exception, code: int) -> None:
    broker = FakeBrokerClient(orders=1)
    broker.fails["send"] = error
    async with sending(broker) as client:
        result = await send(client, timeout_ms=40)
        assert (result.code, str(error) in result.msg) == (code, True)


async def test_a_message_stored_but_not_flushed_is_a_failure() -> None:
    broker = FakeBrokerClient(orders=1)
    async with sending(broker) as client:
        broker.status = SendStatus.FLUSH_DISK_TIMEOUT
        assert (await send(client)).code == 12
        broker.status = SendStatus.SLAVE_NOT_AVAILABLE
        assert (await send(client)).code == 0


async def test_ddmqs_heartbeat_topic_is_answered_without_a_send() -> None:
    broker = FakeBrokerClient()
    async with sending(broker) as client:
        assert (await send(client, topic="carrera_heartbeat")).code == 0
    assert broker.sent == []


# ---- counts ---------------------------------------------------------------------------------


async def test_sends_are_counted_with_their_bytes_and_the_reasons_of_failures() -> None:
    broker = FakeBrokerClient(orders=2)
    async with counted(broker) as (client, counts):
        await send(client, body=b"12345")
        broker.fails["send", queue(0)] = BrokerError(13, "no")
        await client.call("sendBatchSync", [outgoing(partitionId=n % 2) for n in range(4)])
        await send(client, topic="")
        await send(client, topic="nowhere")
        await send(client, topic="carrera_heartbeat")  # nothing is sent
    assert (counts.requests, counts.messages, counts.body_bytes) == (4, 3, 5 + 2 * 4)
    assert counts.failures == {"illegal": 2, "no_topic": 1}
    assert sum(counts.seconds.counts) == 4


async def test_a_message_that_is_not_on_disk_counts_as_failed() -> None:
    broker = FakeBrokerClient(orders=1)
    broker.status = SendStatus.FLUSH_DISK_TIMEOUT
    async with counted(broker) as (client, counts):
        await send(client)
    assert (counts.messages, counts.failures) == (0, {"timed_out": 1})


# ---- unknown topics -------------------------------------------------------------------------


async def test_an_unknown_topic_is_code_14_where_brokers_do_not_create_topics() -> None:
    broker = FakeBrokerClient(orders=1)
    async with sending(broker) as client:
        assert (await send(client, topic="other")).code == 14
    assert broker.created == []


async def test_an_unknown_topic_is_created_once_and_whole_where_brokers_allow_it() -> None:
    """If the first send created it, its number of queues would change between two messages of a
    key.
    """
    broker = FakeBrokerClient(TBW102=2)
    broker.go_on.clear()
    broker.stored[QueueName(Topic("TBW102"), "broker-b", 0)] = []
    service = ProducerService(broker, NullHistory(), max_body_bytes=100)  # type: ignore[arg-type]
    server = ThriftServer(service.entries(), LimitSettings())
    port = await server.listen("127.0.0.1", 0)

    async def one(key: str) -> int:
        async with connect(port) as client:
            return int((await send(client, topic="new", key=key)).code)

    sends = [spawn(one(key), name="send") for key in "abc"]
    await eventually(lambda: len(broker.created) == 2)  # it has an incomplete route
    sends += [spawn(one(key), name="send") for key in "def"]
    await eventually(lambda: len(server.open) == 6)
    broker.go_on.set()
    await eventually(lambda: all(each.done() for each in sends))
    await server.close()
    assert [each.result() for each in sends] == [0] * 6
    assert broker.created == [("new", 2, "broker-a"), ("new", 1, "broker-b")]
    where = Counter(queue for queue, _ in broker.sent)
    expected = Counter(abs(java_hash(key)) % 3 for key in "abcdef")
    queues = sorted(queue for queue in broker.stored if queue.topic == "new")
    assert {queues.index(queue): count for queue, count in where.items()} == dict(expected)


async def test_a_topic_without_a_writable_queue_is_an_error_and_no_crash() -> None:
    broker = FakeBrokerClient(orders=1)
    broker.fails["writable_queues"] = BrokerError(16, "no permission")
    async with sending(broker) as client:
        assert (await send(client)).code == 70


# ---- order --------------------------------------------------------------------------------------


async def test_a_message_that_is_tried_again_is_not_overtaken_on_another_connection() -> None:
    """A client that lost its connection resends: both are stored before its next message."""
    broker = FakeBrokerClient(orders=4)
    broker.fails["send"] = BrokerError(2, "busy")
    service = ProducerService(broker, NullHistory(), max_body_bytes=100)  # type: ignore[arg-type]
    server = ThriftServer(service.entries(), LimitSettings())
    port = await server.listen("127.0.0.1", 0)
    async with connect(port) as lost, connect(port) as client:
        first = spawn(send(lost, key="k", body=b"1", timeout_ms=9000), name="first")
        await eventually(lambda: broker.timeouts != [])
        again = spawn(send(client, key="k", body=b"1", timeout_ms=9000), name="again")
        del broker.fails["send"]
        assert (await again).code == 0
        assert (await send(client, key="k", body=b"2")).code == 0
        await first
    await server.close()
    assert [each[0].body for _, each in broker.sent] == [b"1", b"1", b"2"]


# ---- histories ----------------------------------------------------------------------------------


async def test_a_stored_message_is_in_the_history_with_its_place() -> None:
    notes = Notes()
    async with sending(FakeBrokerClient(orders=2), history=notes) as client:
        await send(client, partitionId=1, properties={"UNIQ_KEY": "id-1"})
    assert notes.of("send_ok") == [
        {"msg": "id-1", "topic": "orders", "queue": "broker-a_1", "offset": 0}
    ]


async def test_a_try_without_an_answer_is_in_the_history() -> None:
    """The message may be in the log twice: the checker must not report a violation."""
    notes = Notes()
    broker = FakeBrokerClient(orders=1)
    broker.fails["send"] = ConnectionLost("gone")
    async with sending(broker, history=notes) as client:
        result = await send(client, properties={"UNIQ_KEY": "id-1"}, timeout_ms=40)
    assert result.code == 10
    assert notes.of("send_info") == [{"msg": "id-1", "topic": "orders", "error": "gone"}]


async def test_a_slow_broker_delays_no_other_ones_producer_groups() -> None:
    """Nor does one group wait for another to be joined."""
    nameserver = NameServer()
    await nameserver.start()
    known: list[set[str]] = []

    def heard(request: RemotingCommand) -> RemotingCommand:
        known.append(
            {each["groupName"] for each in json.loads(bytes(request.body))["producerDataSet"]}
        )
        return request.response(0)

    async def silent(_request: RemotingCommand, _channel: RemotingChannel) -> None:
        return None

    async with (
        scripted_broker(nameserver.address, "broker-a") as slow,
        scripted_broker(nameserver.address, "broker-b") as quick,
    ):
        await slow.add_topic("orders", queues=1)
        await quick.add_topic("orders", queues=1)
        slow.on[RequestCode.HEART_BEAT] = silent
        quick.answer(RequestCode.HEART_BEAT, heard)
        quick.answer(RequestCode.UNREGISTER_CLIENT, lambda request: request.response(0))
        client = BrokerClient(
            nameservers=[nameserver.address], client_id="me@1", request_timeout_s=20
        )
        service = ProducerService(client, NullHistory(), max_body_bytes=1024)
        server = ThriftServer(service.entries(), LimitSettings())
        port = await server.listen("127.0.0.1", 0)
        async with connect(port) as one, connect(port) as other:
            for group, of in (("pay", one), ("ship", other)):
                request = producer.ChecksRequest(group, ["orders"], 0)
                assert (await of.call("transactionChecks", request)).code == 0
                await eventually(lambda group=group: bool(known) and group in known[-1], within_s=2)
            # Each new connection, also to the slow broker, causes another heartbeat.
            assert [each for each, _ in groupby(known)] == [{"pay"}, {"pay", "ship"}]
            await other.close()
            await eventually(lambda: RequestCode.UNREGISTER_CLIENT in quick.codes(), within_s=2)
        await service.transactions.close()
        await server.close()
        await client.close()
    await nameserver.close()


async def test_a_delayed_message_to_a_topic_without_writable_queues_is_refused() -> None:
    """As other messages are."""

    class ReadOnly(FakeBrokerClient):
        async def writable_queues(self, topic: Topic, *, fresh: bool = False) -> list[QueueName]:
            return []

    async with sending(ReadOnly(orders=1)) as client:
        due_s = wall_ms() // 1000 + 60
        delayed = producer.DelayMessage(topic="orders", body=b"x", action=1, timestamp=due_s)
        result = await client.call("sendDelaySync", delayed, 1000)
        plain = await send(client)
    assert result.code == plain.code
    assert "topic orders has no writable queue" in result.msg


# ---- sends that never began ---------------------------------------------------------------------


class _Times:
    """As ``Delays``: all brokers support delivery times."""

    async def takes_times(self, _broker: str, *, timeout_s: float | None = None) -> bool:
        return True


class _Asked(_Times):
    """As ``Delays``, at a broker that does not answer."""

    async def takes_times(self, _broker: str, *, timeout_s: float | None = None) -> bool:
        raise RequestTimeout("no answer")


class _Delaying(FakeBrokerClient):
    delays = _Times()


class _Unfound(_Delaying):
    """Its nameserver does not answer."""

    async def writable_queues(self, topic: Topic, *, fresh: bool = False) -> list[QueueName]:
        await asyncio.sleep(3600)
        raise AssertionError


class _Lost(_Delaying):
    """The connection to its nameserver ends."""

    async def writable_queues(self, topic: Topic, *, fresh: bool = False) -> list[QueueName]:
        raise ConnectionLost("no nameserver answers")


def broker_that(error: Exception) -> FakeBrokerClient:
    broker = _Delaying(orders=1)
    broker.fails["send"] = error
    return broker


class _Unasked(FakeBrokerClient):
    delays = _Asked()


@pytest.mark.parametrize(
    ("broker", "code"),
    [
        (_Unfound(orders=1), 70),
        (_Lost(orders=1), 70),
        (_Unasked(orders=1), 70),
        (broker_that(NotConnected("refused")), 70),
        (broker_that(NotSentInTime("not connected in time")), 70),
        (broker_that(ConnectionLost("gone")), 10),
        (broker_that(RequestTimeout("no answer")), 12),
    ],
)
async def test_a_delayed_message_is_in_doubt_only_if_it_was_sent(
    broker: FakeBrokerClient, code: int
) -> None:
    due_s = wall_ms() // 1000 + 60
    delayed = producer.DelayMessage(topic="orders", body=b"x", action=1, timestamp=due_s)
    async with sending(broker) as client:
        result = await client.call("sendDelaySync", delayed, 1000)
    assert (result.code, broker.sent) == (code, [])


@pytest.mark.parametrize(
    ("broker", "code"),
    [
        (_Unfound(orders=1), 70),
        (_Lost(orders=1), 70),
        (broker_that(NotConnected("refused")), 70),
        (broker_that(NotSentInTime("not connected in time")), 70),
        (broker_that(ConnectionLost("gone")), 10),
        (broker_that(RequestTimeout("no answer")), 12),
    ],
)
async def test_a_half_message_is_in_doubt_only_if_it_was_sent(
    broker: FakeBrokerClient, code: int
) -> None:
    """One in doubt is never sent again, so its transaction would fail for nothing."""
    request = producer.PrepareRequest(message=outgoing(), group="pay", timeoutMs=1000)
    async with sending(broker) as client:
        result = await client.call("prepareTransaction", request)
    assert (result.code, broker.sent) == (code, [])


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (None, 70),  # rolled back: the client may repeat it
        (BrokerError(ResponseCode.SLAVE_NOT_AVAILABLE, "no slave"), 70),
        (BrokerError(ResponseCode.SYSTEM_BUSY, "busy"), 12),
        (RequestTimeout("no answer"), 12),
    ],
)
async def test_a_half_message_that_is_not_rolled_back_is_in_doubt(
    answer: Exception | None, code: int
) -> None:
    """A repeated one would be a second message, which its transaction commits as well."""
    broker = FakeBrokerClient(orders=1)
    broker.status = SendStatus.SLAVE_NOT_AVAILABLE
    if answer is not None:
        broker.fails["ask"] = answer
    request = producer.PrepareRequest(message=outgoing(), group="pay", timeoutMs=1000)
    async with sending(broker) as client:
        result = await client.call("prepareTransaction", request)
    assert result.code == code
