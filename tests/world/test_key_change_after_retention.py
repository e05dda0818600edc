"""The order key changes while a key is paused whose old message retention has deleted."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from testkit.simulation.clients import Flow
from tests.world.stage import Stage, play

SMALL = {
    "segment_bytes": 256 * 1024,
    "max_message_bytes": 128 * 1024,
    "retention_bytes": 512 * 1024,
}
RULES = {"name": "orders", "order_key": "KEY", "visibility_timeout_s": 5}
KEYS = "/api/groups/billing/topics/orders/keys"


async def old_and_gone(stage: Stage, *, messages: int = 2, **rules: Any) -> None:
    """Let messages of the paused key a wait until the broker has deleted them."""
    await stage.start(
        groups=[{"name": "billing", "topics": [{**RULES, **rules}]}],
        topics={"orders": 1, "busy": 1},
        brokers={"broker-a": SMALL},
        proxies=2,
    )
    stage.consume("consumer", "billing")
    await stage.send("orders", ["b"], 1)
    await stage.until(lambda: len(stage.of("finish")) == 1)
    await stage.act(f"{KEYS}/pause", key="a")
    await stage.send("orders", ["a"], messages)
    await stage.producer.send_natively(Flow("busy", ("k",), 0.5, 60, body_bytes=50_000))
    await asyncio.sleep(100)


def change_to_id(stage: Stage, **rules: Any) -> None:
    """Change the order key; bodies are {"id": the message's key, …}."""
    topic = {**RULES, **rules, "order_key": "$.id", "order_key_version": 1}
    stage.world.write_settings([{"name": "billing", "topics": [topic]}])


@pytest.mark.parametrize("messages", [1, 2, 200])
def test_only_the_paused_key_waits(messages: int) -> None:
    async def main(stage: Stage) -> None:
        few = {"max_jobs_in_memory": 64, "max_jobs_per_key_in_memory": 4}
        await old_and_gone(stage, messages=messages, **few)
        change_to_id(stage, **few)
        await stage.until(lambda: stage.of("order_key"))
        await stage.send("orders", ["c", "d", "e"], 9)
        await stage.until(lambda: len(stage.of("finish")) == 10, within_s=20)
        assert stage.of("deliver", order="a") == []
        await stage.act(f"{KEYS}/resume", key="a")
        await stage.until(lambda: len(stage.of("finish")) == 10 + messages)

    assert play(main) == {}


@pytest.mark.slow
def test_what_has_the_key_of_the_deleted_message_by_the_new_rule_waits_for_it() -> None:
    async def main(stage: Stage) -> None:
        await old_and_gone(stage)
        change_to_id(stage)
        await stage.until(lambda: stage.of("order_key"))
        await stage.send("orders", ["a", "c"], 12)
        mine = [each["msg"] for each in stage.of("send", key="a")][2:]
        await stage.until(lambda: len(stage.of("finish")) == 13 - len(mine), within_s=20)
        assert stage.of("deliver", order="a") == []
        await stage.act(f"{KEYS}/resume", key="a")
        await stage.until(lambda: len(stage.of("finish")) == 15)
        assert [each["msg"] for each in stage.of("deliver", order="a")][2:] == mine

    assert play(main) == {}


@pytest.mark.slow
def test_a_key_that_is_stuck_in_a_handler_holds_up_no_other_either() -> None:
    async def main(stage: Stage) -> None:
        stage.habits.stuck.add(("billing", "a"))
        await old_and_gone(stage)
        await stage.act(f"{KEYS}/resume", key="a")
        await stage.until(lambda: stage.of("deliver", order="a"))
        change_to_id(stage)
        await stage.until(lambda: stage.of("order_key"))
        await stage.send("orders", ["c", "d"], 6)
        await stage.until(lambda: len(stage.of("finish")) == 7, within_s=20)
        stage.habits.cure()
        await stage.until(lambda: len(stage.of("finish")) == 9)

    assert play(main) == {}


@pytest.mark.slow
def test_the_next_owner_goes_on_where_the_broker_has_the_old_message_no_more() -> None:
    async def main(stage: Stage) -> None:
        await old_and_gone(stage)
        change_to_id(stage)
        await stage.until(lambda: stage.of("order_key"))
        await stage.world.proxies[0].stop()
        stage.consume("consumer", "billing", proxy=1)
        stage.producer.servers.reverse()
        await stage.send("orders", ["c", "d"], 6)
        await stage.until(lambda: len(stage.of("finish")) >= 7, within_s=40)

    assert "N3" not in play(main)
