"""A reset that was answered survives every crash, though brokers save commits only every 5 s.

The checker judges: D1 finds messages that the group was to get again and did not, C1 a position
that falls without a reset.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.world.stage import Stage, play

GROUP, MESSAGES = "billing", 40
RESET = f"/api/groups/{GROUP}/topics/orders/queues/broker-a_0/reset"


async def _reset_and_crash(stage: Stage, to: int, *, owned: bool, lost: str) -> None:
    """Reset a group that has handled all messages, and end processes at once."""
    await stage.start(
        groups=[{"name": GROUP, "topics": [{"name": "orders"}]}], topics={"orders": 1}, proxies=2
    )
    client = stage.consume("consumer", GROUP)
    await stage.send("orders", ["a", "b", "c"], MESSAGES)
    await stage.until(lambda: len(stage.of("finish", group=GROUP)) == MESSAGES)
    await asyncio.sleep(12)  # the broker has saved the commits
    if not owned:
        client.kill()
        await stage.until(lambda: stage.of("own-", group=GROUP), within_s=120)
        await asyncio.sleep(5)
    await stage.act(RESET, to={"offset": to})
    (broker,) = stage.world.brokers
    for node in (broker, *stage.world.proxies) if lost == "all" else (broker,):
        node.kill(power=True)
    await broker.start()
    for proxy in stage.world.proxies if lost == "all" else ():
        await proxy.start()
    if not owned:
        stage.consume("consumer", GROUP)
    again = len(range(to, MESSAGES))
    await stage.until(
        lambda: len(stage.of("finish", group=GROUP)) >= MESSAGES + again, within_s=120
    )
    await asyncio.sleep(20)
    assert len(stage.of("finish", group=GROUP)) == MESSAGES + again


@pytest.mark.parametrize("lost", ["the broker", "all"])
@pytest.mark.parametrize("owned", [True, False])
@pytest.mark.parametrize("to", [0, 25])
def test_a_reset_survives_a_crash(to: int, owned: bool, lost: str) -> None:
    assert play(lambda stage: _reset_and_crash(stage, to, owned=owned, lost=lost)) == {}
