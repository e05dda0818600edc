"""RocketMQ's own orderly push consumers on our broker: locks, retries in place, rebalance."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from broker_core.clock import now_ns
from broker_core.names import Group, QueueName
from broker_core.remoting.message import OutgoingMessage
from testkit.eventually import eventually
from testkit.rocketmq import VERSIONS
from tests.conformance.rocketmq.java_client import ORDERLY, JavaClients, Seen, Stage, stage

pytestmark = pytest.mark.parametrize("version", VERSIONS)
EXPIRY_S = 6.0
FIRST = {"from": "FIRST_OFFSET", "tags": "*", "orderly": True, "persistMs": 500}


@pytest.fixture
async def scene(version: str, java_clients: JavaClients, tmp_path: Path) -> AsyncIterator[Stage]:
    java = java_clients.shared(version, ORDERLY)
    async with stage(java, tmp_path, lock_expiry_s=EXPIRY_S) as opened:
        yield opened


async def send(scene: Stage, queue_id: int, bodies: list[str]) -> None:
    queue = QueueName(scene.topic, scene.cluster.broker_name, queue_id)
    messages = [OutgoingMessage(scene.topic, body.encode()) for body in bodies]
    await scene.ours.send_batch(queue, messages)


async def consume(scene: Stage, name: str, **fields: Any) -> None:
    await scene.start("push", name, **{**FIRST, **fields})


def holder(scene: Stage, queue_id: int) -> str:
    """Return the consumer that holds the lock, by the broker; empty if it is free."""
    queue = QueueName(scene.topic, scene.cluster.broker_name, queue_id)
    client_id = scene.cluster.broker.components.locks.holder(
        Group("billing"), queue, now_ns=now_ns()
    )
    return (client_id or "").partition("@")[2].partition("-")[0]


async def committed(scene: Stage, queue_id: int) -> int | None:
    queue = QueueName(scene.topic, scene.cluster.broker_name, queue_id)
    return await scene.ours.committed_offset(Group("billing"), queue)


async def until_owned(scene: Stage, wanted: dict[str, list[int]]) -> None:
    """Wait until consumers and broker agree on these locks."""
    async with asyncio.timeout(60):
        while True:
            owned = {name: await scene.queues_of(name, locked=True) for name in wanted}
            by_broker = {q: holder(scene, q) for queues in wanted.values() for q in queues}
            agreed = all(by_broker[q] == name for name, queues in wanted.items() for q in queues)
            if owned == wanted and agreed:
                return
            await asyncio.sleep(0.02)


@pytest.mark.feature("orderly: each queue in its order")
async def test_every_queue_is_handled_in_order(scene: Stage) -> None:
    for queue in range(4):
        await send(scene, queue, [f"{queue}:{n}" for n in range(200)])
    await consume(scene, "c")
    await scene.handled(400)
    for queue in range(4):
        await send(scene, queue, [f"{queue}:{n}" for n in range(200, 400)])
    await scene.handled(1600)
    of_queue = defaultdict(list)
    for seen in scene.java.seen("c"):
        of_queue[seen.queue].append(seen.body)
    assert of_queue == {q: [f"{q}:{n}" for n in range(400)] for q in range(4)}


@pytest.mark.feature("orderly: retry in place (suspend, exception, null)")
async def test_a_suspended_queue_repeats_its_messages_and_others_continue(
    scene: Stage,
) -> None:
    await send(scene, 0, [f"0:{n}" for n in range(10)])
    await send(scene, 1, [f"1:{n}" for n in range(10)])
    suspend = "SUSPEND_CURRENT_QUEUE_A_MOMENT"
    await consume(scene, "c", plan={"0:3": [suspend, suspend], "0:5": ["THROW"], "0:7": ["NULL"]})
    await scene.handled(24)
    seen = [s for s in scene.java.seen("c", "end") if s.queue == 0]
    assert [(s.body, s.times, s.outcome) for s in seen] == [
        *((f"0:{n}", 0, "SUCCESS") for n in range(3)),
        ("0:3", 0, suspend), ("0:3", 1, suspend), ("0:3", 2, "SUCCESS"),
        ("0:4", 0, "SUCCESS"),
        ("0:5", 0, "THROW"), ("0:5", 1, "SUCCESS"),
        ("0:6", 0, "SUCCESS"),
        ("0:7", 0, "NULL"), ("0:7", 1, "SUCCESS"),
        ("0:8", 0, "SUCCESS"), ("0:9", 0, "SUCCESS"),
    ]  # fmt: skip
    assert [s.body for s in scene.java.seen("c") if s.queue == 1] == [f"1:{n}" for n in range(10)]


@pytest.mark.feature("orderly: retry in place (suspend, exception, null)")
async def test_a_suspended_batch_is_redelivered_whole(scene: Stage) -> None:
    await send(scene, 2, [f"{n}" for n in range(6)])
    await consume(scene, "c", batch=3, plan={"4": ["SUSPEND_CURRENT_QUEUE_A_MOMENT"]})
    await scene.handled(9)
    assert scene.java.bodies("c") == ["0", "1", "2", "3", "4", "5", "3", "4", "5"]


@pytest.mark.feature("orderly: manual commit and rollback")
async def test_without_auto_commit_only_a_commit_moves_the_offset(scene: Stage) -> None:
    await send(scene, 0, [f"{n}" for n in range(6)])
    plan = {"2": ["COMMIT"], "4": ["ROLLBACK"]}
    await consume(scene, "c", autoCommit=False, plan=plan)
    await scene.handled(8)
    # The rollback redelivers all uncommitted messages.
    assert scene.java.bodies("c") == ["0", "1", "2", "3", "4", "3", "4", "5"]
    await scene.java.call("close", "c")
    assert await committed(scene, 0) == 3
    await consume(scene, "d")
    await scene.handled(3, "d")
    assert scene.java.bodies("d") == ["3", "4", "5"]


@pytest.mark.feature("orderly: lock renewed past its expiry, unlocked at shutdown")
async def test_a_handler_slower_than_the_lock_keeps_its_queue_and_a_shutdown_frees_it(
    scene: Stage,
) -> None:
    await send(scene, 0, ["slow", "after"])
    await consume(scene, "a", plan={"slow": ["HOLD SUCCESS"]})
    await until_owned(scene, {"a": [0, 1, 2, 3]})
    taken = now_ns()
    while now_ns() - taken < 1.5 * EXPIRY_S * 1e9:
        assert [holder(scene, q) for q in range(4)] == ["a"] * 4
        await asyncio.sleep(0.1)
    await scene.java.call("release", "a")
    await scene.handled(2, "a")
    assert [s.times for s in scene.java.seen("a")] == [0, 0]
    await scene.java.call("close", "a")
    assert [holder(scene, q) for q in range(4)] == [""] * 4
    assert await committed(scene, 0) == 2
    await send(scene, 0, ["next"])
    await consume(scene, "b")
    await scene.handled(1, "b")
    assert scene.java.bodies("b") == ["next"]


@pytest.mark.feature("orderly: rebalance as consumers come and go")
@pytest.mark.parametrize(
    ("allocate", "two", "three"),
    [
        ("average", [[0, 1], [2, 3]], [[0, 1], [2], [3]]),
        ("circle", [[0, 2], [1, 3]], [[0, 3], [1], [2]]),
        ("custom", [[0], [1, 2, 3]], [[0], [], [1, 2, 3]]),
    ],
)
async def test_queues_move_when_consumers_come_and_go(
    scene: Stage, allocate: str, two: list[list[int]], three: list[list[int]]
) -> None:
    await consume(scene, "a", allocate=allocate)
    await send_all(scene, 0, 100)
    await until_owned(scene, {"a": [0, 1, 2, 3]})
    await consume(scene, "b", allocate=allocate)
    await send_all(scene, 100, 200)
    await until_owned(scene, dict(zip("ab", two, strict=True)))
    await consume(scene, "c", allocate=allocate)
    await send_all(scene, 200, 300)
    await until_owned(scene, dict(zip("abc", three, strict=True)))
    await handled_once(scene, 1200)
    await scene.java.call("close", "b")
    await send_all(scene, 300, 400)
    await until_owned(scene, dict(zip("ac", two, strict=True)))
    await handled_once(scene, 1600)
    assert in_order(scene.java.seen()) == {q: [f"{q}:{n}" for n in range(400)] for q in range(4)}


async def handled_once(scene: Stage, count: int) -> None:
    """Wait until *count* distinct messages were handled."""
    await eventually(
        lambda: len({(s.queue, s.offset) for s in scene.java.seen(event="end")}) >= count,
        within_s=60,
    )


def in_order(begun: list[Seen]) -> dict[int, list[str]]:
    """Return bodies by queue. A client that loses a queue does not commit its current message, so
    the next owner begins with that one again, and only that one.
    """
    kept: dict[int, list[Seen]] = defaultdict(list)
    for each in sorted(begun, key=lambda s: s.at):
        before = kept[each.queue][-1] if kept[each.queue] else None
        if before and each.offset == before.offset and each.name != before.name:
            continue
        kept[each.queue].append(each)
    return {queue: [s.body for s in found] for queue, found in kept.items()}


async def send_all(scene: Stage, first: int, end: int) -> None:
    for queue in range(4):
        await send(scene, queue, [f"{queue}:{n}" for n in range(first, end)])


@pytest.mark.feature("orderly: a topic of one queue (global order)")
async def test_one_queue_is_one_order_for_all(
    version: str, java_clients: JavaClients, tmp_path: Path
) -> None:
    java = java_clients.shared(version, ORDERLY)
    async with stage(java, tmp_path, queues=1, lock_expiry_s=EXPIRY_S) as scene:
        await scene.start("producer", "p")
        for name in ("a", "b"):
            await consume(scene, name)
        sent = [{"body": str(n), "key": str(n)} for n in range(300)]
        await scene.send("p", sent, how="sync", select="hash")
        await scene.handled(300)
        first = sorted(scene.java.seen(), key=lambda s: s.at)
        assert [s.body for s in first] == [str(n) for n in range(300)]
        (owner,) = {s.name for s in first[-100:]}
        await scene.java.call("close", owner)
        await scene.send("p", [{"body": str(n)} for n in range(300, 400)], how="sync")
        await scene.handled(400)
        bodies = [s.body for s in sorted(scene.java.seen(), key=lambda s: s.at)]
        assert bodies == [str(n) for n in range(400)]
