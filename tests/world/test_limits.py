"""A broker at its limits: the first one too many is refused, and what exists stays in service."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from broker_core.errors import BrokerError, RemotingError
from tests.world.stage import Stage, play

TOPICS = 3
MOST = 40
GROUP = {
    "name": "billing",
    "topics": [{"name": f"kept-{number}", "order_key": "KEY"} for number in range(TOPICS)],
}


async def refusal(attempt: Any) -> str:
    """Return the sentence that refuses *attempt*."""
    with pytest.raises(BrokerError) as caught:
        await attempt
    return str(caught.value)


async def fill_with_topics(stage: Stage) -> int:
    """Create topics until one is refused; return how many there were room for."""
    for room in range(2 * MOST):
        with suppress(BrokerError):
            await stage.world.make_topic(f"flood-{room}", 1)
            continue
        words = "its max_topics; delete unused topics, or raise it"
        assert words in await refusal(stage.world.make_topic(f"flood-{room}", 1))
        return room
    raise AssertionError("no topic was refused")


async def handled_everywhere(stage: Stage) -> None:
    """Send to every topic that existed before, and wait until its messages are finished."""
    before = len(stage.of("finish"))
    for number in range(TOPICS):
        await stage.send(f"kept-{number}", ("a", "b", None), 6)
    await stage.until(lambda: len(stage.of("finish")) >= before + 6 * TOPICS)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["kill", "power"])
def test_a_flood_of_topics_ends_at_the_limit_and_others_stay_routable(fault: str) -> None:
    async def main(stage: Stage) -> None:
        await stage.start(
            groups=[GROUP],
            topics={f"kept-{number}": 2 for number in range(TOPICS)},
            brokers={"broker-a": {"max_topics": MOST}},
        )
        stage.consume("consumer", "billing")
        await handled_everywhere(stage)
        room = await fill_with_topics(stage)
        assert 0 < room < MOST
        await handled_everywhere(stage)
        broker = stage.world.brokers[0]
        if fault != "none":
            broker.kill(power=fault == "power")
            await asyncio.sleep(3)
            await broker.start()
            await asyncio.sleep(12)
        assert "max_topics" in await refusal(stage.world.make_topic("flood-more", 1))
        await handled_everywhere(stage)
        await stage.world.delete_topic("flood-0")
        await stage.world.make_topic("flood-more", 1)
        await handled_everywhere(stage)

    assert play(main) == {}


@pytest.mark.slow
def test_a_flood_of_groups_ends_at_the_limit_and_the_group_in_use_goes_on() -> None:
    async def main(stage: Stage) -> None:
        await stage.start(
            groups=[GROUP],
            topics={f"kept-{number}": 2 for number in range(TOPICS)},
            brokers={"broker-a": {"max_groups": 6}},
        )
        stage.consume("consumer", "billing")
        await handled_everywhere(stage)
        refused = ""
        for number in range(20):
            try:
                await stage.world.define_group(f"flood-{number}")
            except RemotingError as error:
                refused = str(error)
                break
        assert "max_groups" in refused
        await handled_everywhere(stage)
        broker = stage.world.brokers[0]
        broker.kill()
        await asyncio.sleep(3)
        await broker.start()
        await handled_everywhere(stage)

    assert play(main) == {}
