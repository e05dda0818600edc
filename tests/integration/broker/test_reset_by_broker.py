"""Resets requested from a broker: with members, without, and of groups of the gateway."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from broker_core.client.resets import reset_refused
from broker_core.names import Topic
from broker_core.remoting.bodies import ConsumerData, Heartbeat, Subscription
from broker_core.remoting.codes import RequestCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.message import OutgoingMessage
from broker_core.remoting.message_batch import encode_batch
from broker_core.remoting.queue_maps import object_with_queue_map
from broker_core.remoting_channel import RemotingChannel
from testkit.broker_process import Cluster, run_broker
from tests.integration.broker.raw_requests import GROUP, TOPIC, Raw, send_header


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with run_broker(tmp_path) as cluster:
        await cluster.create_topic(TOPIC, queues=2)
        yield cluster


@pytest.fixture
async def raw(cluster: Cluster) -> AsyncIterator[Raw]:
    connection = Raw(cluster)
    batch = encode_batch([OutgoingMessage(TOPIC, b"x")] * 5)
    await connection.ask(RequestCode.SEND_BATCH_MESSAGE, send_header().to_v2(), batch)
    yield connection
    await connection.pool.close()


async def reset(raw: Raw, **fields: str) -> RemotingCommand:
    ext = {"topic": TOPIC, "group": GROUP, "timestamp": "-1", "isForce": "true", **fields}
    return await raw.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext)


async def committed(raw: Raw, queue_id: int = 0) -> str | None:
    ext = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": str(queue_id)}
    ext["setZeroIfNotFound"] = "false"
    return (await raw.ask(RequestCode.QUERY_CONSUMER_OFFSET, ext)).ext.get("offset")


def table(answer: RemotingCommand) -> dict[int, int]:
    assert answer.code == 0, answer.remark
    _, found = object_with_queue_map(bytes(answer.body), "offsetTable", what="resets")
    return {queue.queue_id: offset for queue, offset in found.items()}


async def test_without_members_the_broker_moves_the_offsets(raw: Raw) -> None:
    assert table(await reset(raw)) == {0: 5, 1: 0}
    assert [await committed(raw, each) for each in (0, 1)] == ["5", "0"]
    assert table(await reset(raw, timestamp="0", isForce="false")) == {0: 0, 1: 0}
    assert table(await reset(raw, isForce="false")) == {0: 0, 1: 0}, "only back"
    assert table(await reset(raw, queueId="0", offset="3")) == {0: 3}
    await raw.cluster.restart_broker(crash=True)
    await raw.pool.close()
    again = Raw(raw.cluster)
    assert await committed(again) == "3"
    await again.pool.close()


async def test_what_cannot_be_reset_is_refused(raw: Raw) -> None:
    for fields, code in (
        ({"topic": "nowhere"}, 17), ({"queueId": "7"}, 1), ({"group": "a b"}, 1),
        ({"queueId": "0", "offset": "6"}, 1),
    ):  # fmt: skip
        assert (await reset(raw, **fields)).code == code
    assert await committed(raw) is None


async def test_beyond_max_offsets_nothing_is_moved(tmp_path: Path) -> None:
    async with run_broker(tmp_path, max_offsets=1) as cluster:
        await cluster.create_topic(TOPIC, queues=2)
        raw = Raw(cluster)
        answer = await reset(raw)
        assert (answer.code, "max_offsets" in str(answer.remark)) == (1, True)
        assert [await committed(raw, each) for each in (0, 1)] == [None, None]
        assert table(await reset(raw, queueId="1")) == {1: 0}
        answer = await reset(raw, queueId="0")
        assert (answer.code, await committed(raw, 0)) == (1, None)
        await raw.pool.close()


async def heartbeat(raw: Raw, language: str) -> None:
    subscription = Subscription.of_tags(Topic(TOPIC), "*")
    data = Heartbeat(
        client_id="one", consumers=(ConsumerData(group=GROUP, subscriptions=(subscription,)),)
    )
    answer = await raw.ask(RequestCode.HEART_BEAT, body=data.to_json(), language=language)
    assert answer.code == 0


async def test_members_are_notified_and_the_broker_moves_nothing(raw: Raw) -> None:
    told: asyncio.Queue[RemotingCommand] = asyncio.Queue()

    def reset_told(request: RemotingCommand, channel: RemotingChannel) -> None:
        told.put_nowait(request)

    raw.serve(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, reset_told)
    await heartbeat(raw, "JAVA")
    assert table(await reset(raw)) == {0: 5, 1: 0}
    request = await asyncio.wait_for(told.get(), 30)
    assert (request.ext["topic"], request.ext["group"]) == (TOPIC, GROUP)
    _, offsets = object_with_queue_map(bytes(request.body), "offsetTable", what="reset")
    assert {queue.queue_id: offset for queue, offset in offsets.items()} == {0: 5, 1: 0}
    assert await committed(raw) is None


async def test_a_group_of_the_gateway_is_not_reset_so(raw: Raw) -> None:
    await heartbeat(raw, "PYTHON")
    answer = await reset(raw)
    assert (answer.code, "orderlane offsets reset" in str(answer.remark)) == (1, True)
    ext = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "clientID": "one"}
    await raw.ask(RequestCode.UNREGISTER_CLIENT, ext)
    await raw.ask(RequestCode.UPDATE_CONSUMER_OFFSET, ext | {"commitOffset": "2", "epoch": "4"})
    assert (await reset(raw)).code == 1, "it was here, and has records"
    assert await committed(raw) == "2"


def test_the_gateway_says_why_it_does_not_obey() -> None:
    ext = {"topic": TOPIC, "group": GROUP, "timestamp": "-1", "isForce": "true"}
    request = RemotingCommand(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, ext=ext)
    with capture_logs() as logs:
        reset_refused(request, SimpleNamespace(peer="192.0.2.1:10911"))  # type: ignore[arg-type]
    assert "'orderlane offsets reset' alone; nothing is changed" in logs[0]["event"]
    assert (logs[0]["group"], logs[0]["broker"]) == (GROUP, "192.0.2.1:10911")
