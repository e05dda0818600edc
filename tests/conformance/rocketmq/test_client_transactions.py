"""RocketMQ's own transactional producer on our broker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from broker_core.names import Topic
from testkit.eventually import eventually
from testkit.rocketmq import VERSIONS
from tests.conformance.rocketmq.java_client import TOLD, JavaClients, Stage, stage

pytestmark = pytest.mark.parametrize("version", VERSIONS)
COMMIT, ROLLBACK, UNKNOWN = "COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "UNKNOW"
GIVEN_UP = Topic("TRANS_CHECK_MAX_TIME_TOPIC")
MAX_CHECKS = 4
QUICK = {"transaction_timeout_s": 0.1, "transaction_check_interval_s": 0.2}


@pytest.fixture
async def scene(version: str, java_clients: JavaClients, tmp_path: Path) -> AsyncIterator[Stage]:
    java = java_clients.shared(version, TOLD)
    # Rounds are counted even while a producer starts.
    async with stage(java, tmp_path, **QUICK, transaction_check_max=1000) as opened:
        yield opened


async def send(scene: Stage, name: str, *bodies: str, op: str = "send", **fields: Any) -> Any:
    messages = [{"body": body, "tags": "t", "keys": "k", **fields} for body in bodies]
    return await scene.java.call(op, name, topic=scene.topic, messages=messages)


def undecided(scene: Stage) -> int:
    scene.cluster.broker.components.transactions.catch_up()
    return len(scene.cluster.broker.components.transactions)


def checks(scene: Stage, name: str, body: str) -> int:
    return sum(seen.body == body for seen in scene.java.seen(name, "check"))


@pytest.mark.feature("transactions: commit and roll-back")
async def test_committed_messages_are_seen_once_and_rolled_back_ones_never(scene: Stage) -> None:
    plan = {"kept": [COMMIT], "dropped": [ROLLBACK], "late": [COMMIT]}
    await scene.start("transactions", "p", plan=plan)
    await scene.start("push", "c", tags="*")
    kept, dropped = await send(scene, "p", "kept", "dropped", properties={"colour": "red"})
    # The producer removes a delay by itself.
    (late,) = await send(scene, "p", "late", delayLevel=18)
    assert [each["status"] for each in (kept, dropped, late)] == ["SEND_OK"] * 3
    await scene.handled(2)
    await eventually(lambda: undecided(scene) == 0)
    stored = {message.body: message for message in await scene.stored()}
    assert set(stored) == {b"kept", b"late"}
    message = stored[b"kept"]
    assert (message.tag, message.key, message.properties["colour"]) == ("t", "k", "red")
    assert (message.queue_id, message.message_id) == (kept["queue"], kept["msgId"])
    assert kept["transactionId"] == kept["msgId"]
    assert message.properties["PGROUP"] == "billing"
    assert sorted(scene.java.bodies("c")) == ["kept", "late"]


@pytest.mark.feature("transactions: checked back, then committed or rolled back")
async def test_a_producer_with_an_unknown_outcome_is_checked_until_it_knows(scene: Stage) -> None:
    plan = {
        "kept": [UNKNOWN, UNKNOWN, COMMIT],
        "dropped": [UNKNOWN, UNKNOWN, ROLLBACK],
    }
    await scene.start("transactions", "p", plan=plan)
    results = await send(scene, "p", "kept", "dropped")
    assert [each["state"] for each in results] == [UNKNOWN, UNKNOWN]
    await eventually(lambda: undecided(scene) == 0, within_s=30)
    assert [message.body for message in await scene.stored()] == [b"kept"]
    # What the client reports of a check may arrive after the broker has stored its answer.
    await eventually(lambda: all(checks(scene, "p", each) > 1 for each in plan))
    for result, body in zip(results, plan, strict=True):
        asked = [seen for seen in scene.java.seen("p", "check") if seen.body == body]
        # It may be checked again while an answer is in flight, and repeats that answer.
        planned = plan[body][1:]
        assert [seen.outcome for seen in asked][: len(planned)] == planned
        for seen in asked:
            assert (seen.topic, seen.queue, seen.tags) == (scene.topic, result["queue"], "t")
            assert seen.keys == result["transactionId"]


@pytest.mark.feature("transactions: another producer of the group is asked")
async def test_another_producer_of_the_group_answers_for_a_killed_one(
    scene: Stage, version: str, java_clients: JavaClients
) -> None:
    killed = java_clients.another(version, TOLD)
    await scene.start("transactions", "p1", java=killed, plan={"kept": ["HOLD " + COMMIT]})
    message = {"body": "kept", "tags": "t", "keys": "k"}
    await killed.call("begin", "p1", topic=scene.topic, messages=[message])
    await eventually(lambda: bool(killed.seen("p1", "work")), within_s=30)
    killed.kill()
    await scene.start("transactions", "p2", plan={"kept": [COMMIT]})
    await eventually(lambda: undecided(scene) == 0, within_s=30)
    assert [message.body for message in await scene.stored()] == [b"kept"]
    await eventually(lambda: checks(scene, "p2", "kept") >= 1)  # more while its answer is in flight


@pytest.mark.feature("transactions: given up after the last check")
async def test_transactions_without_an_outcome_end_in_the_final_topic(
    version: str, java_clients: JavaClients, tmp_path: Path
) -> None:
    java = java_clients.shared(version, TOLD)
    async with stage(java, tmp_path, **QUICK, transaction_check_max=MAX_CHECKS) as scene:
        await scene.start("transactions", "p")
        (result,) = await send(scene, "p", "lost")
        await eventually(lambda: undecided(scene) == 0, within_s=30)
        assert await scene.stored() == []
        (message,) = await scene.stored(GIVEN_UP)
        assert (message.body, message.message_id) == (b"lost", result["msgId"])
        assert message.properties["TRANSACTION_CHECK_TIMES"] == str(MAX_CHECKS)
        await eventually(lambda: checks(scene, "p", "lost") == MAX_CHECKS, within_s=30)


@pytest.mark.feature("transactions: the broker is killed before the end")
async def test_a_crashed_broker_learns_the_outcome_after_its_restart(scene: Stage) -> None:
    # Checks wait for the release too, even early ones.
    plan = {"kept": ["HOLD " + COMMIT] * 40, "dropped": [UNKNOWN, ROLLBACK]}
    await scene.start("transactions", "p", plan=plan)
    await send(scene, "p", "kept", op="begin")
    await eventually(lambda: bool(scene.java.seen("p", "work")), within_s=30)
    await scene.cluster.restart_broker(crash=True)
    assert undecided(scene) == 1
    await scene.java.call("release", "p")
    await eventually(lambda: undecided(scene) == 0, within_s=30)
    await send(scene, "p", "dropped")
    await scene.cluster.restart_broker(crash=True)
    await eventually(lambda: undecided(scene) == 0, within_s=30)
    assert [message.body for message in await scene.stored()] == [b"kept"]
