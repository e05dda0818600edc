"""RocketMQ's own producer on our broker."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from broker_core.names import Topic
from broker_core.remoting.key_hash import java_hash
from testkit.eventually import eventually
from testkit.rocketmq import VERSIONS
from tests.conformance.rocketmq.java_client import TOLD, JavaClients, JavaError, Stage, stage

pytestmark = pytest.mark.parametrize("version", VERSIONS)
MIB = 1024 * 1024


@pytest.fixture
async def scene(version: str, java_clients: JavaClients, tmp_path: Path) -> AsyncIterator[Stage]:
    async with stage(java_clients.shared(version, TOLD), tmp_path) as opened:
        await opened.start("producer", "p")
        yield opened


def texts(count: int) -> list[dict[str, Any]]:
    return [{"body": f"body {n}", "key": f"key-{n % 20}"} for n in range(count)]


@pytest.mark.feature("producer: sync, async, one-way, batch")
@pytest.mark.parametrize("how", ["sync", "async", "oneway", "batch"])
async def test_sent_messages_are_stored_with_all_fields(scene: Stage, how: str) -> None:
    properties = {"colour": "grün", "é": "ü"}
    fields = {"tags": "red", "keys": "order-1 order-2", "properties": properties}
    sent = [{"body": f"body {n} ü", **fields} for n in range(30)]
    results = await scene.send("p", sent, how=how)
    if how == "oneway":
        ours = scene.cluster.broker.components.store.reader
        await eventually(lambda: sum(ours.end_offset(scene.topic, q) for q in range(4)) == 30)
    stored = await scene.stored()
    assert sorted(m.body.decode() for m in stored) == sorted(m["body"] for m in sent)
    for message in stored:
        assert (message.tag, message.properties["KEYS"]) == ("red", "order-1 order-2")
        assert message.properties.items() >= properties.items()
    if how in ("sync", "async"):
        places = {(m.queue_id, m.queue_offset): m for m in stored}
        for result, message in zip(results, sent, strict=True):
            found = places[result["queue"], result["offset"]]
            assert result["status"] == "SEND_OK"
            assert found.body.decode() == message["body"]
            assert (found.message_id, found.offset_message_id) == (
                result["msgId"],
                result["offsetMsgId"],
            )


@pytest.mark.feature("producer: sync, async, one-way, batch")
async def test_a_batch_is_one_run_of_a_queue_and_names_all_its_messages(scene: Stage) -> None:
    result = await scene.send("p", texts(50), how="batch", queue=2)
    stored = await scene.stored()
    assert [(m.queue_id, m.queue_offset) for m in stored] == [(2, n) for n in range(50)]
    assert [m.body for m in stored] == [b"body %d" % n for n in range(50)]
    assert (result["status"], result["offset"]) == ("SEND_OK", 0)
    assert result["offsetMsgId"].split(",") == [m.offset_message_id for m in stored]
    assert result["msgId"].split(",") == [m.message_id for m in stored]


@pytest.mark.feature("producer: selectors by hash, random, custom")
@pytest.mark.parametrize("how", ["sync", "async", "oneway"])
async def test_a_key_goes_to_the_same_queue_as_with_our_producer(scene: Stage, how: str) -> None:
    await scene.send("p", texts(100), how=how, select="hash")
    ours = scene.cluster.broker.components.store.reader
    await eventually(lambda: sum(ours.end_offset(scene.topic, q) for q in range(4)) == 100)
    of_queue = defaultdict(list)
    for message in await scene.stored():
        number = int(message.body.split()[1])
        of_queue[message.queue_id].append(number)
        assert message.queue_id == abs(java_hash(f"key-{number % 20}")) % 4
    assert len(of_queue) == 4
    if how == "sync":
        assert all(numbers == sorted(numbers) for numbers in of_queue.values())


@pytest.mark.feature("producer: selectors by hash, random, custom")
async def test_random_and_custom_selectors_reach_every_queue(scene: Stage) -> None:
    results = await scene.send("p", texts(60), how="sync", select="random")
    assert {result["queue"] for result in results} == {0, 1, 2, 3}
    wanted = [{"body": "x", "key": str(n % 4)} for n in range(8)]
    results = await scene.send("p", wanted, how="sync", select="custom")
    assert [result["queue"] for result in results] == [3, 2, 1, 0] * 2


@pytest.mark.feature("producer: large and compressed bodies")
async def test_a_compressed_body_is_read_by_both(scene: Stage) -> None:
    sent = [{"body": "abcdefgh", "times": times} for times in (512, 513, 40_000, 524_288)]
    results = await scene.send("p", sent, how="sync")
    assert [result["status"] for result in results] == ["SEND_OK"] * 4
    stored = await scene.stored()
    wanted = sorted(zlib.crc32(b"abcdefgh" * m["times"]) for m in sent)
    assert sorted(zlib.crc32(m.body) for m in stored) == wanted
    await scene.start("push", "c", tags="*")
    await scene.handled(4)
    assert sorted(s.bytes for s in scene.java.seen()) == [4096, 4104, 320_000, 4 * MIB]


@pytest.mark.feature("producer: errors")
async def test_a_body_above_the_limit_is_refused_with_code_13(scene: Stage) -> None:
    (over,) = await scene.send("p", [{"body": "x", "times": 4 * MIB + 1}], how="sync")
    assert "message body size over max value" in over["message"]
    await scene.start("producer", "wide", maxBytes=8 * MIB)
    # In a batch, which is not compressed.
    refused = await scene.send("wide", [{"body": "x", "times": 4 * MIB}], how="batch")
    assert (refused["error"], refused["code"]) == ("MQBrokerException", 13)
    assert "4194304" in refused["message"]
    (after,) = await scene.send("wide", [{"body": "still there"}], how="sync")
    assert after["status"] == "SEND_OK"


@pytest.mark.feature("producer: errors")
@pytest.mark.parametrize("how", ["sync", "async"])
async def test_an_unknown_topic_is_a_clear_error(scene: Stage, how: str) -> None:
    try:
        (result,) = await scene.send("p", [{"body": "x"}], how=how, topic="nowhere")
    except JavaError as error:  # 4.9 throws it to the caller
        (result,) = error.args
    assert "No route info of this topic" in result["message"]


@pytest.mark.feature("producer: a topic made by its first message")
async def test_the_first_message_makes_its_topic(
    version: str, java_clients: JavaClients, tmp_path: Path
) -> None:
    java = java_clients.shared(version, TOLD)
    async with stage(java, tmp_path, auto_create_topics=True, default_queues=6) as scene:
        await scene.start("producer", "p")
        results = await scene.send("p", texts(20), how="sync", topic="fresh")
        assert [result["status"] for result in results] == ["SEND_OK"] * 20
        assert len(await scene.stored(Topic("fresh"))) == 20
        assert len(await scene.ours.queues(Topic("fresh"), fresh=True)) == 4  # the client's default
