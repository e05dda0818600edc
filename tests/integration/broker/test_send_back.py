"""Messages sent back by consumers: retry topics, dead letters, and the shortcut to them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from broker_core.client.broker_client import BrokerClient
from broker_core.client.requests import BrokerRequests
from broker_core.errors import BrokerError
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.codes import RequestCode
from broker_core.remoting.headers import SendMessageHeader
from broker_core.remoting.message import OutgoingMessage, StoredMessage, encode_properties
from broker_core.remoting.retry_headers import SendBackHeader
from testkit.broker_process import Cluster, run_broker
from tests.integration.broker.delayed import Clock, passed, stored
from tests.integration.broker.raw_requests import Raw

TOPIC = Topic("orders")
GROUP = Group("billing")
RETRY = QueueName(Topic("%RETRY%billing"), "broker-a", 0)
DEAD = QueueName(Topic("%DLQ%billing"), "broker-a", 0)
DAY_MS = 86_400_000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock.install(monkeypatch)


@pytest.fixture
async def cluster(tmp_path: Path, clock: Clock) -> AsyncIterator[Cluster]:
    async with run_broker(tmp_path, message_delay_level="1s 5s 10s 30s") as running:
        yield running


async def send_back(
    client: BrokerClient, message: StoredMessage, *, level: int = 0, **fields: Any
) -> None:
    header = SendBackHeader(
        offset=message.physical_offset, group=GROUP, delay_level=level, **fields
    )
    await client.requests.ask("broker-a", RequestCode.CONSUMER_SEND_MSG_BACK, header.to_ext())


async def sent(client: BrokerClient, cluster: Cluster) -> tuple[QueueName, StoredMessage]:
    queue = (await cluster.create_topic(TOPIC))[1]
    await client.send(queue, OutgoingMessage(TOPIC, b"x" * 99, key="k", tag="t", born_ms=5, flag=7))
    return queue, (await stored(client, queue, 1))[0]


async def test_a_message_comes_again_later_each_time_and_is_given_up_at_last(
    cluster: Cluster, clock: Clock
) -> None:
    client = await cluster.client()
    _, original = await sent(client, cluster)
    message, levels_ms = original, [10_000, 30_000, 30_000]
    for attempt, delay_ms in enumerate(levels_ms, 1):
        await send_back(client, message, max_reconsume_times=3)
        clock.advance(delay_ms - 1)
        await passed(cluster)
        assert await client.max_offset(RETRY) == attempt - 1
        clock.advance(1)
        message = (await stored(client, RETRY, attempt))[-1]
        assert (message.reconsume_times, message.body) == (attempt, original.body)
        assert message.message_id == original.message_id
        assert message.properties["RETRY_TOPIC"] == TOPIC
        assert message.properties["ORIGIN_MESSAGE_ID"] == original.offset_message_id
        assert (message.key, message.tag, message.flag, message.born_ms) == ("k", "t", 7, 5)
        assert message.born_host == original.born_host
    await send_back(client, message, max_reconsume_times=3)
    (dead,) = await stored(client, DEAD, 1)
    assert (dead.reconsume_times, dead.body) == (4, original.body)
    assert dead.properties["ORIGIN_MESSAGE_ID"] == original.offset_message_id
    assert "DELAY" not in dead.properties
    clock.advance(DAY_MS)
    await passed(cluster)
    assert await client.max_offset(RETRY) == len(levels_ms)


async def test_the_consumer_may_name_a_level_or_give_up_at_once(
    cluster: Cluster, clock: Clock
) -> None:
    client = await cluster.client()
    _, message = await sent(client, cluster)
    await send_back(client, message, level=1)
    clock.advance(1000)
    assert (await stored(client, RETRY, 1))[0].reconsume_times == 1
    await send_back(client, message, level=-1)
    assert (await stored(client, DEAD, 1))[0].reconsume_times == 1


async def test_what_a_group_is_configured_counts(cluster: Cluster, clock: Clock) -> None:
    client = await cluster.client()
    _, message = await sent(client, cluster)

    async def configure(times: int, queues: int) -> None:
        body = b'{"groupName":"billing","retryMaxTimes":%d,"retryQueueNums":%d}' % (times, queues)
        await client.requests.ask(
            "broker-a", RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body=body
        )

    await configure(0, 1)
    await send_back(client, message)
    assert len(await stored(client, DEAD, 1)) == 1
    await configure(16, 0)  # no retries wanted
    await send_back(client, message)
    clock.advance(DAY_MS)
    await passed(cluster)
    assert (await client.max_offset(RETRY), await client.max_offset(DEAD)) == (0, 1)


@pytest.mark.parametrize("crash", [True, False])
async def test_what_was_sent_back_survives_the_broker(
    cluster: Cluster, clock: Clock, crash: bool
) -> None:
    client = await cluster.client()
    _, message = await sent(client, cluster)
    await send_back(client, message)
    await cluster.restart_broker(crash=crash)
    clock.advance(10_000)
    assert (await stored(client, RETRY, 1))[0].body == message.body


async def test_what_cannot_be_sent_back_is_said(cluster: Cluster, clock: Clock) -> None:
    client = await cluster.client()
    _, message = await sent(client, cluster)
    await send_back(client, message)
    reader = cluster.broker.components.store.reader
    waiting = reader.read(Topic("SCHEDULE_TOPIC_XXXX"), 2, 0, max_messages=1)
    inside = int.from_bytes(waiting.body[28:36], "big")
    for offset in (message.physical_offset + 1, -1, 10**15, inside):
        header = SendBackHeader(offset=offset, group=GROUP, delay_level=0)
        with pytest.raises(BrokerError, match=f"look message by offset failed, {offset}") as caught:
            await client.requests.ask(
                "broker-a", RequestCode.CONSUMER_SEND_MSG_BACK, header.to_ext()
            )
        assert caught.value.code == 1
    with pytest.raises(BrokerError, match="not a legal name") as caught:
        await send_back_as(client.requests, message, group="a/b")
    assert caught.value.code == 26


async def send_back_as(requests: BrokerRequests, message: StoredMessage, *, group: str) -> None:
    header = SendBackHeader(offset=message.physical_offset, group=group, delay_level=0)
    await requests.ask("broker-a", RequestCode.CONSUMER_SEND_MSG_BACK, header.to_ext())


async def test_what_an_orderly_consumer_sends_to_its_retry_topic_is_a_dead_letter_at_once(
    cluster: Cluster, clock: Clock
) -> None:
    client, raw = await cluster.client(), Raw(cluster)
    queue, _ = await sent(client, cluster)

    async def send_again(times: int, version: int = 479) -> None:
        header = SendMessageHeader(
            producer_group="CLIENT_INNER_PRODUCER",
            topic=RETRY.topic,
            queue_id=0,
            born_timestamp=5,
            reconsume_times=times,
            max_reconsume_times=2,
            properties=encode_properties(
                {"DELAY": "1", "RETRY_TOPIC": TOPIC, "TAGS": "t"}
            ).decode(),
        )
        answer = await raw.ask(
            RequestCode.SEND_MESSAGE_V2, header.to_v2(), b"again", version=version
        )
        assert answer.code == 0, answer.remark

    await send_again(2)  # no locks, few attempts: it is retried
    clock.advance(1000)
    assert len(await stored(client, RETRY, 1)) == 1
    await send_again(3)
    await send_again(2, version=409)  # 4.9 sends the number of attempts made
    (dead, _) = await stored(client, DEAD, 2)
    assert (dead.reconsume_times, dead.body) == (3, b"again")
    assert "DELAY" not in dead.properties
    assert (await client.lock(GROUP, [queue])).granted
    await send_again(0)
    await stored(client, DEAD, 3)
    await client.unlock(GROUP, [queue])
    await send_again(0)
    clock.advance(1000)
    await stored(client, RETRY, 2)
    await raw.pool.close()
