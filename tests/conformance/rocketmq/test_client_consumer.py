"""RocketMQ's own concurrent push and pull consumers on our broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from broker_core.clock import wall_ms
from broker_core.names import Group, QueueName
from broker_core.remoting.message import OutgoingMessage
from testkit.eventually import eventually
from testkit.rocketmq import VERSIONS
from tests.conformance.rocketmq.java_client import ORDERLY, TOLD, JavaClients, Stage, stage

pytestmark = pytest.mark.parametrize("version", VERSIONS)


@pytest.fixture
async def scene(version: str, java_clients: JavaClients, tmp_path: Path) -> AsyncIterator[Stage]:
    async with stage(java_clients.shared(version, TOLD), tmp_path) as opened:
        yield opened


def queue(scene: Stage, queue_id: int) -> QueueName:
    return QueueName(scene.topic, scene.cluster.broker_name, queue_id)


async def send(scene: Stage, queue_id: int, *bodies: str, tag: str | None = None) -> None:
    messages = [OutgoingMessage(scene.topic, body.encode(), tag=tag) for body in bodies]
    await scene.ours.send_batch(queue(scene, queue_id), messages)


async def committed(scene: Stage) -> list[int | None]:
    return [await scene.ours.committed_offset(Group("billing"), queue(scene, q)) for q in range(4)]


async def until(read: Callable[[], Awaitable[object]], wanted: object) -> None:
    """Return once *read* returns *wanted*."""
    async with asyncio.timeout(60):
        while await read() != wanted:  # noqa: ASYNC110  # nothing there to be notified by
            await asyncio.sleep(0.02)


async def until_assigned(scene: Stage, wanted: dict[str, list[int]], op: str = "") -> None:
    """Wait until these consumers have these queues."""
    for name, queues in wanted.items():
        ask = partial(scene.java.call, op, name) if op else partial(scene.queues_of, name)
        await until(ask, queues)


@pytest.mark.feature("concurrent: tags")
async def test_only_wanted_tags_arrive_and_the_offset_skips_the_others(scene: Stage) -> None:
    # "Aa" and "BB" have the same hash: the client can distinguish them, the broker cannot.
    tags = ["red", "green", "blue", None, "Aa", "BB"]
    for n, tag in enumerate(tags * 10):
        await send(scene, n % 4, f"{tag} {n}", tag=tag)
    await scene.start("push", "c", tags="red || blue||Aa", persistMs=500)
    await scene.handled(30)
    assert sorted(s.body.split()[0] for s in scene.java.seen("c")) == (
        ["Aa"] * 10 + ["blue"] * 10 + ["red"] * 10
    )
    # The offset at closing is not enough: the last handled messages may not be included yet.
    await until(partial(committed, scene), [15] * 4)


@pytest.mark.feature("concurrent: tags")
async def test_a_changed_subscription_applies_to_later_messages(scene: Stage) -> None:
    await scene.start("push", "c", tags="red")
    await send(scene, 0, "red 1", tag="red")
    await scene.handled(1)
    await scene.java.call("subscribe", "c", topic=scene.topic, tags="blue")
    # A waiting pull was sent with the old tags: its messages, even blue ones, are judged by these.
    # The broker learns of the change by a heartbeat, which the client skips while another is in
    # flight: then by the next, up to 30 s later.
    number = 2
    async with asyncio.timeout(60):
        while not any(body.startswith("blue") for body in scene.java.bodies("c")):
            await send(scene, 0, f"red {number}", tag="red")
            await send(scene, 0, f"blue {number}", tag="blue")
            number += 1
            await asyncio.sleep(0.5)
    await send(scene, 0, "late red", tag="red")
    await send(scene, 0, "late blue", tag="blue")
    await eventually(lambda: "late blue" in scene.java.bodies("c"), within_s=20)
    assert "late red" not in scene.java.bodies("c")


@pytest.mark.feature("concurrent: rebalance on the broker's notice of a change")
async def test_members_learn_at_once_of_joining_and_leaving_members(scene: Stage) -> None:
    """These clients rebalance by themselves only every ten minutes."""
    await scene.start("push", "a", tags="*")
    await until_assigned(scene, {"a": [0, 1, 2, 3]})
    await scene.start("push", "b", tags="*", unit="east")
    await until_assigned(scene, {"a": [0, 1], "b": [2, 3]})
    for n in range(40):
        await send(scene, n % 4, f"{n}")
    await scene.handled(40)
    assert {s.queue for s in scene.java.seen("a")} == {0, 1}
    assert {s.queue for s in scene.java.seen("b")} == {2, 3}
    await scene.java.call("close", "a")
    await until_assigned(scene, {"b": [0, 1, 2, 3]})
    await send(scene, 0, "last")
    await scene.handled(41)
    assert scene.java.bodies("b")[-1] == "last"


@pytest.mark.feature("broadcasting")
async def test_every_member_gets_every_message(scene: Stage) -> None:
    for name in ("a", "b"):
        await scene.start("push", name, tags="*", broadcast=True)
        await until_assigned(scene, {name: [0, 1, 2, 3]})
    for n in range(40):
        await send(scene, n % 4, f"{n}")
    for name in ("a", "b"):
        await scene.handled(40, name)
        assert sorted(map(int, scene.java.bodies(name))) == list(range(40))
    assert await committed(scene) == [None] * 4


@pytest.mark.feature("consumeFromWhere: first, last, timestamp")
async def test_a_new_group_of_an_old_queue_starts_where_configured(
    version: str, java_clients: JavaClients, tmp_path: Path
) -> None:
    java = java_clients.shared(version, ORDERLY)
    small = {"segment_bytes": 256 * 1024, "max_message_bytes": 128 * 1024, "retention_bytes": 1}
    async with stage(java, tmp_path, queues=1, **small) as scene:
        for n in range(4):
            await send(scene, 0, f"{n}" + "x" * 100_000)
        await scene.cluster.broker.components.retention.run()
        oldest = await scene.ours.min_offset(queue(scene, 0))
        assert 0 < oldest <= 3
        second = wall_ms() // 1000 + 1
        await asyncio.sleep(second + 0.01 - wall_ms() / 1000)  # the setting is in seconds
        await send(scene, 0, "since")
        since = datetime.fromtimestamp(second).strftime("%Y%m%d%H%M%S")
        wheres = {"FIRST_OFFSET": "first", "TIMESTAMP": "since", "LAST_OFFSET": "last"}
        for where, name in wheres.items():
            start = {"from": where, "timestamp": since, "group": name}
            await scene.start("push", name, tags="*", **start)
        await scene.handled(5 - oldest, "first")
        await scene.handled(1, "since")
        await until_assigned(scene, {"last": [0]})
        # Each pull is held at the broker, so it has its first offset.
        await eventually(lambda: len(scene.cluster.broker.components.long_polls) >= 3, within_s=20)
        await send(scene, 0, "now")
        for name in wheres.values():
            await scene.handled(1, name)
        await scene.handled(6 - oldest, "first")
        await scene.handled(2, "since")
        assert scene.java.bodies("since") == ["since", "now"]
        assert scene.java.bodies("last") == ["now"]


async def polled(scene: Stage, name: str, count: int) -> list[dict[str, Any]]:
    """Return at least the next *count* messages of lite pull consumer *name*."""
    found: list[dict[str, Any]] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            found += await scene.java.call("poll", name, ms=500)
    return found


def places(messages: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return sorted((m["queue"], m["offset"]) for m in messages)


@pytest.mark.feature("lite pull: subscribe, commit, rebalance")
async def test_a_subscriber_polls_commits_and_continues_there(scene: Stage) -> None:
    for n in range(40):
        await send(scene, n % 4, f"{n}", tag="even" if n % 2 == 0 else "odd")
    await scene.start("lite", "a", tags="even")
    first = await polled(scene, "a", 20)
    assert places(first) == [(q, n) for q in (0, 2) for n in range(10)]

    async def commit() -> list[int | None]:
        await scene.java.call("commit", "a")  # may not know a queue without messages yet
        return await committed(scene)

    await until(commit, [10, 0, 10, 0])
    assert await scene.java.call("committed", "a", queue=2) == 10
    await scene.start("lite", "b", tags="even")
    await until_assigned(scene, {"a": [0, 1], "b": [2, 3]}, "assignment")
    await send(scene, 2, "new", tag="even")
    assert [m["body"] for m in await polled(scene, "b", 1)] == ["new"]


@pytest.mark.feature("lite pull: assign, seek")
async def test_assigned_queues_are_read_from_the_sought_offset(scene: Stage) -> None:
    for n in range(40):
        await send(scene, n % 4, f"{n}")
    await scene.start("lite", "a", queues=[1, 2])
    assert await scene.java.call("queues", "a") == [0, 1, 2, 3]
    assert places(await polled(scene, "a", 20)) == [(q, n) for q in (1, 2) for n in range(10)]
    await scene.java.call("seek", "a", queue=1, offset=7)
    assert places(await polled(scene, "a", 3)) == [(1, 7), (1, 8), (1, 9)]
    await scene.java.call("seekToBegin", "a", queue=2)
    assert places(await polled(scene, "a", 10)) == [(2, n) for n in range(10)]
    await scene.java.call("seekToEnd", "a", queue=2)
    await send(scene, 2, "end")
    assert [m["body"] for m in await polled(scene, "a", 1)] == ["end"]
    at = await scene.java.call("offsetForTimestamp", "a", queue=1, ms=wall_ms() - 60_000)
    assert at == 0


@pytest.mark.feature("classic pull")
async def test_the_classic_pull_consumer_works(scene: Stage) -> None:
    await send(scene, 1, *map(str, range(10)), tag="red")
    await scene.start("pull", "c")
    ask = {"queue": 1, "tags": "*"}
    assert await scene.java.call("queues", "c") == [0, 1, 2, 3]
    found = await scene.java.call("pull", "c", offset=4, **ask)
    assert [m["body"] for m in found.pop("messages")] == ["4", "5", "6", "7", "8", "9"]
    assert found == {"status": "FOUND", "next": 10, "min": 0, "max": 10}
    for offset, tags, status, begin in (
        (10, "*", "NO_NEW_MSG", 10),
        (10_000, "*", "OFFSET_ILLEGAL", 10),
        (0, "blue", "NO_MATCHED_MSG", 10),
    ):
        found = await scene.java.call("pull", "c", queue=1, tags=tags, offset=offset)
        assert (found["status"], found["next"]) == (status, begin)
    offsets = await scene.java.call("offsets", "c", queue=1, ms=wall_ms() - 60_000)
    assert offsets == {"min": 0, "max": 10, "at": 0}
    await scene.java.call("commit", "c", queue=1, offset=6)
    assert await scene.java.call("committed", "c", queue=1) == 6
    held = asyncio.gather(scene.java.call("pullBlocking", "c", offset=10, **ask))
    await asyncio.sleep(0.1)
    await send(scene, 1, "late")
    ((late,),) = [each["messages"] for each in await held]
    assert late["body"] == "late"
