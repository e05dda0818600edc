"""Resets of queues without an owner by a proxy with a slow link, while something else happens."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.world.stage import Stage, play

GROUP = "billing"
RESET = f"/api/groups/{GROUP}/topics/orders/queues/broker-a_0/reset"


async def left_alone(stage: Stage, *, delay_ms: int, proxies: int) -> None:
    """Handle 20 messages at the last proxy and let it give its queue up; then slow the first one's
    link down.
    """
    groups = [{"name": GROUP, "topics": [{"name": "orders", "order_key": "KEY"}]}]
    await stage.start(groups=groups, topics={"orders": 1}, proxies=proxies)
    client = stage.consume("consumer", GROUP, proxy=proxies - 1)
    await stage.send("orders", ["a", "b"], 20)
    await stage.until(lambda: len(stage.of("finish", group=GROUP)) == 20)
    client.kill()
    await stage.until(lambda: stage.of("own-", group=GROUP), within_s=120)
    await asyncio.sleep(5)
    for ends in (("proxy-0", "broker-a"), ("broker-a", "proxy-0")):
        stage.world.loop.network.delay(*ends, delay_ms * 1_000_000)


def reset(stage: Stage, to: dict[str, Any]) -> list[tuple[int, Any]]:
    """Begin to reset the queue; return a list that will have the answer."""
    answers: list[tuple[int, Any]] = []

    async def ask() -> None:
        wish = {"reason": "a test", "to": to}
        answers.append(await stage.world.http(stage.world.proxies[0], RESET, wish, timeout_s=120))

    stage.background(ask())
    return answers


@pytest.mark.parametrize("frozen_after_s", [0.1 * n for n in range(4, 22, 2)])
def test_a_proxy_that_was_frozen_takes_no_queue_from_its_owner(frozen_after_s: float) -> None:
    """Its lock has expired by then, and another proxy has the queue."""

    async def main(stage: Stage) -> None:
        await left_alone(stage, delay_ms=100, proxies=2)
        first, second = stage.world.proxies
        answers = reset(stage, {"offset": 10})
        await asyncio.sleep(frozen_after_s)
        first.pause()
        await asyncio.sleep(1)
        stage.consume("other", GROUP, proxy=1)
        stage.producer.send_by([second.thrift])
        for number in range(8):
            await stage.send("orders", ["a", "b", "c"], 20)
            await asyncio.sleep(3)
            if number == 3:
                first.resume()
        await stage.until(lambda: answers, within_s=120)
        await asyncio.sleep(40)

    assert play(main) == {}


@pytest.mark.parametrize("recreated_after_s", [0.4 * n for n in range(1, 9)])
def test_an_offset_of_a_former_life_is_not_applied(recreated_after_s: float) -> None:
    async def main(stage: Stage) -> None:
        await left_alone(stage, delay_ms=200, proxies=1)
        await stage.send("orders", ["a", "b"], 20)
        answers = reset(stage, {"end": True})
        await asyncio.sleep(recreated_after_s)
        await stage.world.delete_topic("orders")
        await stage.world.make_topic("orders", 1)
        await stage.until(lambda: answers, within_s=120)
        before = len(stage.of("send_ok"))
        await stage.send("orders", ["a", "b"], 60)
        sent = {each["msg"] for each in stage.of("send_ok")[before:]}
        stage.consume("consumer", GROUP)
        await asyncio.sleep(60)
        handled = {each["msg"] for each in stage.of("handle_end")}
        assert sent <= handled

    play(main)
