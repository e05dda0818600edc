"""Raw commands that only other clients send (Java's, DDMQ's), and invalid ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker_core.broker import Broker, BrokerSettings
from broker_core.broker.topics.topics import SYSTEM_TOPICS
from broker_core.client.connection_pool import ConnectionPool
from broker_core.clock import now_ns
from broker_core.names import Topic
from broker_core.nameserver.server import NameServer
from broker_core.remoting.bodies import ConsumerData, Heartbeat, Subscription
from broker_core.remoting.codes import RequestCode
from broker_core.remoting.command import RemotingCommand, SerializeType
from broker_core.remoting.headers import PullMessageHeader
from broker_core.remoting.message import (
    SYS_TRANSACTION_PREPARED,
    OutgoingMessage,
    decode_messages,
    encode_properties,
)
from broker_core.remoting.message_batch import encode_batch
from broker_core.remoting.route_bodies import BrokerRegistration
from testkit.broker_process import run_broker
from tests.integration.broker.raw_requests import GROUP, TOPIC, Raw, send_header


@pytest.fixture
async def raw(tmp_path: Path) -> AsyncIterator[Raw]:
    async with run_broker(tmp_path) as cluster:
        await cluster.create_topic(TOPIC)
        connection = Raw(cluster)
        yield connection
        await connection.pool.close()


@pytest.mark.parametrize("serialize", list(SerializeType))
async def test_a_send_with_long_names_in_either_header_form(
    raw: Raw, serialize: SerializeType
) -> None:
    properties = encode_properties({"KEYS": "k", "UNIQ_KEY": "U1"}).decode().rstrip("\x02")
    header = send_header(properties=properties, reconsume_times=2)
    answer = await raw.ask(RequestCode.SEND_MESSAGE, header.to_ext(), b"body", serialize=serialize)
    assert (answer.code, answer.serialize) == (0, serialize)
    assert (answer.ext["queueOffset"], answer.ext["queueId"]) == ("0", "0")
    assert (answer.ext["transactionId"], answer.ext["TRACE_ON"]) == ("U1", "true")
    (message,) = decode_messages((await raw.pull()).body)
    assert (message.body, message.key, message.reconsume_times) == (b"body", "k", 2)
    assert message.offset_message_id == answer.ext["msgId"]


async def test_a_queue_below_zero_lets_the_broker_choose(raw: Raw) -> None:
    answer = await raw.ask(RequestCode.SEND_MESSAGE_V2, send_header(queue_id=-1).to_v2(), b"x")
    assert int(answer.ext["queueId"]) in range(4)


async def test_a_batch_gets_the_properties_of_its_header_that_its_messages_lack(raw: Raw) -> None:
    batch = encode_batch([OutgoingMessage(TOPIC, b"a", key="k"), OutgoingMessage(TOPIC, b"b")])
    header = send_header(batch=True, properties="CLUSTER\x01c1\x02KEYS\x01of-all\x02")
    answer = await raw.ask(RequestCode.SEND_BATCH_MESSAGE, header.to_v2(), batch)
    assert len(answer.ext["msgId"].split(",")) == 2
    messages = decode_messages((await raw.pull()).body)
    assert [m.properties for m in messages] == [
        {"KEYS": "k", "CLUSTER": "c1"},
        {"CLUSTER": "c1", "KEYS": "of-all"},
    ]


async def test_properties_too_long_to_store_are_refused(raw: Raw) -> None:
    header = send_header(properties=f"K\x01{'v' * 40_000}")
    answer = await raw.ask(RequestCode.SEND_MESSAGE_V2, header.to_v2(), b"x")
    assert (answer.code, "at most 32767" in (answer.remark or "")) == (13, True)


@pytest.mark.parametrize("way", ["plain", "batch", "delayed", "transactional"])
async def test_properties_that_look_like_a_lost_sector_of_the_disk_are_refused(
    raw: Raw, way: str
) -> None:
    """A start would end the log at them, and lose all later messages; slaves would stop copying."""

    async def send(zeros: int) -> RemotingCommand:
        value = "\0" * zeros
        if way == "batch":
            batch = encode_batch([OutgoingMessage(TOPIC, b"a", properties={"K": value})])
            return await raw.ask(
                RequestCode.SEND_BATCH_MESSAGE, send_header(batch=True).to_v2(), batch
            )
        more = {"delayed": "DELAY\x013\x02", "transactional": "TRAN_MSG\x01true\x02PGROUP\x01p\x02"}
        header = send_header(
            properties=f"{more.get(way, '')}K\x01{value}\x02",
            sys_flag=SYS_TRANSACTION_PREPARED if way == "transactional" else 0,
        )
        return await raw.ask(RequestCode.SEND_MESSAGE_V2, header.to_v2(), b"a")

    answer = await send(511)
    assert (answer.code, "zero bytes in a row" in (answer.remark or "")) == (13, True)
    assert (await send(510)).code == 0


async def test_the_filter_of_a_heartbeat_serves_pulls_that_name_none(raw: Raw) -> None:
    batch = [OutgoingMessage(TOPIC, b"r", tag="red"), OutgoingMessage(TOPIC, b"b", tag="blue")]
    await raw.ask(RequestCode.SEND_BATCH_MESSAGE, send_header().to_v2(), encode_batch(batch))
    assert (await raw.pull(sys_flag=0)).code == 24
    subscription = Subscription.of_tags(TOPIC, "blue", version=5)
    consumer = ConsumerData(group=GROUP, subscriptions=(subscription,))
    heartbeat = Heartbeat(client_id="one", consumers=(consumer,))
    assert (await raw.ask(RequestCode.HEART_BEAT, body=heartbeat.to_json())).code == 0
    assert (await raw.pull(sys_flag=0, sub_version=6)).code == 25
    found = await raw.pull(sys_flag=0, sub_version=5)
    assert [m.body for m in decode_messages(found.body)] == [b"b"]
    assert found.ext["nextBeginOffset"] == "2"
    assert (await raw.pull(expression_type="XPATH", subscription="a > 1")).code == 1
    assert (await raw.pull(subscription=" || ")).code == 23


async def test_a_pull_may_commit_by_the_way(raw: Raw) -> None:
    await raw.pull(sys_flag=5, commit_offset=3)
    query = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "setZeroIfNotFound": "false"}
    answer = await raw.ask(RequestCode.QUERY_CONSUMER_OFFSET, query)
    assert answer.ext["offset"] == "3"
    other = await raw.ask(RequestCode.QUERY_CONSUMER_OFFSET, query | {"consumerGroup": "new"})
    assert other.code == 22


async def test_a_pull_is_limited_in_messages_and_bytes(raw: Raw) -> None:
    batch = encode_batch([OutgoingMessage(TOPIC, b"x" * 100) for _ in range(5000)])
    await raw.ask(RequestCode.SEND_BATCH_MESSAGE, send_header().to_v2(), batch)
    found = await raw.pull(max_msg_nums=100_000)
    assert found.ext["nextBeginOffset"] == "4096"
    few = await raw.pull(max_msg_nums=100_000, max_msg_bytes=1)
    assert few.ext["nextBeginOffset"] == "1"


async def test_the_brokers_topics_can_be_listed(raw: Raw) -> None:
    answer = await raw.ask(RequestCode.GET_ALL_TOPIC_CONFIG)
    body = b'{"topicConfigSerializeWrapper":' + bytes(answer.body) + b"}"
    assert set(BrokerRegistration.from_json(body).topics) == {TOPIC, *SYSTEM_TOPICS}


async def test_a_broker_registers_at_a_nameserver_that_starts_later(tmp_path: Path) -> None:
    late = NameServer()
    await late.start()
    address = late.address
    await late.close()
    broker = Broker(
        BrokerSettings(
            data=tmp_path / "data",
            listen="127.0.0.1:0",
            nameserver=(address,),
            segment_bytes=8 * 1024 * 1024,
        )
    )
    await broker.start()  # does not wait for it
    host, _, port = address.rpartition(":")
    late = NameServer(host, int(port))
    await late.start()
    pool = ConnectionPool()
    started = now_ns()
    try:
        while True:
            answer = await pool.request(
                address, RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO), timeout_s=20
            )
            if b"broker-a" in bytes(answer.body):
                break
            assert now_ns() - started < 30e9
            await asyncio.sleep(0.05)
    finally:
        await pool.close()
        await broker.close()
        await late.close()


async def test_a_new_group_starts_at_0_while_the_queue_is_whole_unless_it_forbids(
    raw: Raw,
) -> None:
    """Like Apache's brokers for Java's consumers, whose default is to start at the end."""
    ask = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0"}
    answer = await raw.ask(RequestCode.QUERY_CONSUMER_OFFSET, ask)
    assert (answer.code, answer.ext["offset"]) == (0, "0")
    ask["setZeroIfNotFound"] = "false"
    assert (await raw.ask(RequestCode.QUERY_CONSUMER_OFFSET, ask)).code == 22


async def test_a_heartbeat_makes_the_retry_topic_that_it_subscribes(raw: Raw) -> None:
    retry = Topic(f"%RETRY%{GROUP}")
    for subscribed in ([TOPIC], [TOPIC, retry]):
        consumer = ConsumerData(
            group=GROUP,
            subscriptions=tuple(Subscription.of_tags(topic, "*") for topic in subscribed),
        )
        heartbeat = Heartbeat(client_id="c", consumers=(consumer,))
        answer = await raw.ask(RequestCode.HEART_BEAT, body=heartbeat.to_json())
        made = raw.cluster.broker.components.directory.topics.find(retry)
        assert (answer.code, made is not None) == (0, retry in subscribed)
    assert made is not None
    assert (made.read_queues, made.write_queues) == (1, 1)


async def test_lite_pulls_are_pulls(raw: Raw) -> None:
    await raw.ask(RequestCode.SEND_MESSAGE_V2, send_header().to_v2(), b"x")
    pull = PullMessageHeader(
        consumer_group=GROUP, topic=TOPIC, queue_id=0, queue_offset=0, max_msg_nums=32,
        sys_flag=16 + 4, commit_offset=0, suspend_timeout_millis=0, subscription="*", sub_version=0,
    )  # fmt: skip
    answer = await raw.ask(RequestCode.LITE_PULL_MESSAGE, pull.to_ext())
    assert (answer.code, len(decode_messages(answer.body))) == (0, 1)
