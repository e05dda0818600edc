"""A redrive of all parked keys while their queue is handed over."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.world.stage import Stage, play

GROUP = "billing"
TOPIC = f"/api/groups/{GROUP}/topics/orders"
#: One way to the broker and back: an audit record takes twice as long.
SLOW_NS = 200_000_000


def set_delay(stage: Stage, delay_ns: int) -> None:
    """Delay what the first proxy and the broker send to each other."""
    for ends in (("proxy-0", "broker-a"), ("broker-a", "proxy-0")):
        stage.world.loop.network.delay(*ends, delay_ns)


async def park(stage: Stage, key: str, messages: int) -> None:
    """Park *key* with as many messages, none of which was handled."""
    await stage.act(f"{TOPIC}/keys/pause", key=key)
    await stage.send("orders", [key], messages)
    await asyncio.sleep(3)
    await stage.act(f"{TOPIC}/keys/park", key=key)
    await asyncio.sleep(5)
    await stage.act(f"{TOPIC}/keys/resume", key=key)
    await asyncio.sleep(5)


@pytest.mark.parametrize("after_s", [0.6, 0.8, 1.0, 1.2, 1.4, 1.8])
def test_a_confirmed_redrive_of_all_keys_goes_on_at_the_next_owner(after_s: float) -> None:
    answers: list[tuple[int, Any]] = []
    audit: list[Any] = []
    handled: list[str] = []

    async def main(stage: Stage) -> None:
        groups = [{"name": GROUP, "topics": [{"name": "orders", "order_key": "KEY"}]}]
        await stage.start(groups=groups, topics={"orders": 1}, proxies=2)
        left, right = stage.world.proxies
        stage.consume("consumer", GROUP)
        await stage.send("orders", ["other"], 1)
        await stage.until(lambda: stage.of("finish", group=GROUP))
        await park(stage, "parked", 3)
        stage.consume("next", GROUP, proxy=1)
        await asyncio.sleep(10)
        set_delay(stage, SLOW_NS)

        async def hand_over() -> None:
            to = right.proxy.client_id
            await stage.act(f"{TOPIC}/queues/broker-a_0/handoff", to=to)

        stage.background(hand_over())
        await asyncio.sleep(after_s)
        path, body = f"{TOPIC}/keys/redrive-all", {"reason": "a test"}
        answers.append(await stage.world.http(left, path, body, timeout_s=60))
        set_delay(stage, 0)
        await asyncio.sleep(60)
        _, found = await stage.world.http(right, f"/api/audit?group={GROUP}&limit=100")
        audit.extend(each for each in found["records"] if each["verb"] == "key redrive")
        handled.extend(each["msg"] for each in stage.of("handle_end", outcome="ok"))

    play(main)
    ((status, answer),) = answers
    if status == 200:
        (queue,) = answer["queues"]
        assert (queue["keys"], queue["copies"], len(handled)) == (["parked"], 3, 4)
    else:
        assert (status, len(handled)) == (409, 1), answer
        assert [each["failed"] for each in audit] in ([], ["", answer["error"]])
