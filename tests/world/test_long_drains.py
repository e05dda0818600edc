"""D4 and C3 while a queue drains: a handler that takes long delays no record and no commit."""

from __future__ import annotations

import asyncio

import pytest

from tests.world.stage import Stage, play

RULES = {"name": "orders", "order_key": "KEY", "visibility_timeout_s": 4}
KEYS = ("slow", "a", "b", "c")


async def _drain(stage: Stage) -> None:
    """Ask the first proxy to drain; it is killed before it answers."""
    reason = {"reason": "a test"}
    await stage.world.http(stage.world.proxies[0], "/api/owners/drain", reason, timeout_s=60)


@pytest.mark.parametrize("after_s", [3.0, 12.0])
def test_a_crash_during_a_drain_repeats_no_more_than_at_other_times(
    after_s: float,
) -> None:
    """The messages that finish while the queue drains are recorded, and not delivered again."""

    async def main(stage: Stage) -> None:
        await stage.start(
            groups=[{"name": "billing", "topics": [RULES]}],
            topics={"orders": 1},
            proxies=2,
            ownership__drain_s=30.0,
        )
        stage.consume("first", "billing")
        await stage.send("orders", ["a"], 3)  # the client opens its second connection
        await stage.until(lambda: len(stage.of("finish")) == 3)
        stage.habits.stuck.add(("billing", "slow"))
        stage.habits.work_for(2.0)
        for key in KEYS:
            await stage.send("orders", [key], 1)
        await stage.until(lambda: len(stage.of("deliver")) == 3 + len(KEYS))
        stage.background(_drain(stage))
        await stage.until(lambda: len(stage.of("finish")) == 3 + len(KEYS) - 1)
        await asyncio.sleep(after_s)
        assert not stage.of("own-")
        stage.world.proxies[0].kill()
        stage.habits.cure()
        stage.consume("second", "billing", proxy=1)
        await stage.until(lambda: stage.of("finish", node="proxy-1"))
        await asyncio.sleep(5)
        assert {each["order"] for each in stage.of("deliver", node="proxy-1")} == {"slow"}

    assert play(main) == {}
