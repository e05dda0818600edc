"""Delayed and redelivered messages of RocketMQ's own clients on our broker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from broker_core.clock import wall_ms
from broker_core.names import QueueName, Topic
from broker_core.remoting.message import OutgoingMessage
from testkit.eventually import eventually
from testkit.rocketmq import VERSIONS
from tests.conformance.rocketmq.java_client import ORDERLY, JavaClients, Stage, stage

pytestmark = pytest.mark.parametrize("version", VERSIONS)
LEVELS = "1s 3s 1s 1s 1s 1s"


@pytest.fixture
async def scene(version: str, java_clients: JavaClients, tmp_path: Path) -> AsyncIterator[Stage]:
    settings: dict[str, Any] = {"queues": 1, "message_delay_level": LEVELS}
    async with stage(java_clients.shared(version, ORDERLY), tmp_path, **settings) as opened:
        yield opened


async def came(scene: Stage, count: int, topic: Topic | None = None) -> list[Any]:
    """Return the messages of a topic, once there are *count*."""
    ours, name = scene.cluster.broker.components.store.reader, topic or scene.topic
    await eventually(lambda: ours.end_offset(name, 0) >= count, within_s=20)
    messages = await scene.stored(name)
    assert len(messages) == count
    return messages


@pytest.mark.feature("producer: delay by level")
async def test_a_level_delays_and_is_removed_at_delivery(scene: Stage) -> None:
    await scene.start("producer", "p")
    began_ms = wall_ms()
    sent = [{"body": f"level {level}", "level": level, "tags": "t"} for level in (2, 1, 0)]
    results = await scene.send("p", sent, how="sync")
    assert [result["status"] for result in results] == ["SEND_OK"] * 3
    quick = wall_ms() - began_ms < 1000  # else later messages may arrive later
    messages = await came(scene, 3)
    if quick:
        assert [m.body.decode() for m in messages] == ["level 0", "level 1", "level 2"]
    by_body = {m.body.decode(): m for m in messages}
    for level, delay_ms in ((0, 0), (1, 1000), (2, 3000)):
        message = by_body[f"level {level}"]
        assert message.store_ms - began_ms >= delay_ms
        assert message.store_ms - message.born_ms < delay_ms + 20_000
        assert message.tag == "t"
        assert message.properties.get("DELAY", "0") == "0"
    assert {m.message_id for m in messages} == {result["msgId"] for result in results}


@pytest.mark.feature("producer: delay by time (5.x), recall (5.3)")
async def test_a_time_delays_and_a_recalled_message_is_not_delivered(
    scene: Stage, version: str
) -> None:
    await scene.start("producer", "p")
    began_ms = wall_ms()
    (kept, recalled, at) = await scene.send(
        "p",
        [
            {"body": "kept", "delayMs": 6000},
            {"body": "recalled", "delayMs": 4000},
            {"body": "at", "deliverMs": began_ms + 700},
        ],
        how="sync",
    )
    if version.startswith("5."):
        recall = {"topic": scene.topic, "handle": recalled["recallHandle"]}
        assert await scene.java.call("recall", "p", **recall) == recalled["msgId"]
        refused = await scene.java.call("recall", "p", **recall)
        assert (refused["code"], "does not wait" in refused["message"]) == (604, True)
    expected = ["at", *([] if version.startswith("5.") else ["recalled"]), "kept"]
    messages = await came(scene, len(expected))
    assert [m.body.decode() for m in messages] == expected
    assert messages[0].store_ms >= began_ms + 700
    assert messages[-1].store_ms >= began_ms + 6000
    assert (messages[0].message_id, messages[-1].message_id) == (at["msgId"], kept["msgId"])
    if version.startswith("5."):
        late = {"topic": scene.topic, "handle": kept["recallHandle"]}
        assert (await scene.java.call("recall", "p", **late))["code"] == 604


@pytest.mark.feature("concurrent: failed messages are retried, then dead letters")
async def test_a_failed_message_is_redelivered_until_it_is_a_dead_letter(scene: Stage) -> None:
    queue = QueueName(scene.topic, scene.cluster.broker_name, 0)
    bodies = ("good 1", "bad", "good 2", "never")
    plan = {"bad": ["RECONSUME_LATER"] * 2, "never": ["RECONSUME_LATER"] * 9}
    await scene.start("push", "c", tags="*", plan=plan, maxReconsumeTimes=2)
    await scene.ours.send_batch(queue, [OutgoingMessage(scene.topic, b.encode()) for b in bodies])
    await scene.handled(2 + 3 + 3)
    (letter,) = await came(scene, 1, Topic("%DLQ%billing"))
    assert (letter.body, letter.reconsume_times) == (b"never", 3)
    assert letter.properties["RETRY_TOPIC"] == scene.topic
    for body in ("bad", "never"):
        seen = [s for s in scene.java.seen("c") if s.body == body]
        assert [s.times for s in seen] == [0, 1, 2]
        assert {s.topic for s in seen} == {scene.topic}, "the client restores the topic"


@pytest.mark.feature("orderly: given up after the maximum, at once a dead letter")
async def test_a_message_given_up_by_an_orderly_consumer_is_a_dead_letter_at_once(
    scene: Stage,
) -> None:
    queue = QueueName(scene.topic, scene.cluster.broker_name, 0)
    bodies = ("first", "never", "last")
    plan = {"never": ["SUSPEND_CURRENT_QUEUE_A_MOMENT"] * 9}
    await scene.ours.send_batch(queue, [OutgoingMessage(scene.topic, b.encode()) for b in bodies])
    await scene.start("push", "c", tags="*", plan=plan, orderly=True, maxReconsumeTimes=2)
    await scene.handled(5)
    assert scene.java.bodies("c") == ["first", "never", "never", "never", "last"]
    (letter,) = await came(scene, 1, Topic("%DLQ%billing"))
    assert (letter.body, letter.properties["RETRY_TOPIC"]) == (b"never", scene.topic)
    reader = scene.cluster.broker.components.store.reader
    assert reader.end_offset(Topic("SCHEDULE_TOPIC_XXXX"), 4) == 0, "no delay"
