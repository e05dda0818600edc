"""A pause holds in queues that were not there when an operator made it (K1, R4)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.world.full_logs import KEYS
from tests.world.stage import Stage, play

NAMES = tuple(f"k{number}" for number in range(8))
ORDERS, PAYMENTS = ({"name": name, "order_key": "KEY"} for name in ("orders", "payments"))
Step = Callable[[Stage], Coroutine[Any, Any, None]]

each_kind = pytest.mark.parametrize("what", ["keys", "group"])


async def begin(stage: Stage, *, queues: int, brokers: int = 1, proxies: int = 1) -> None:
    """Let a consumer at the first proxy handle a message of each key."""
    await stage.start(
        groups=[{"name": "billing", "topics": [ORDERS]}],
        topics={"orders": queues, "payments": 2},
        brokers={f"broker-{'ab'[number]}": {} for number in range(brokers)},
        proxies=proxies,
    )
    stage.consume("consumer", "billing", ["orders"])
    await stage.send("orders", NAMES, 8)
    await stage.until(lambda: len(stage.of("finish", outcome="ok")) == 8)


async def pause(stage: Stage, what: str, verb: str = "pause", *, proxy: int = 0) -> None:
    if what == "group":
        await stage.act(f"/api/groups/billing/{verb}", proxy=proxy)
        return
    for key in NAMES:
        await stage.act(f"{KEYS}/{verb}", key=key, proxy=proxy)


async def is_held(stage: Stage, topic: str, queues: int) -> None:
    """Check that nothing of *topic* is delivered, whose *queues* are owned."""
    seen = len(stage.events)
    await stage.send(topic, NAMES, 16)
    await asyncio.sleep(10)
    news = [each for each in stage.events[seen:] if each.get("topic") == topic]
    to = {each["queue"] for each in news if each["e"] == "send_ok" and "queue" in each}
    assert len(to) == queues
    assert not [each for each in news if each["e"] == "deliver"]


def owned(stage: Stage, topic: str) -> set[str]:
    """Return the queues of *topic* that have an owner now."""
    found: set[str] = set()
    for each in stage.events:
        if each["e"] in ("own+", "own-") and each["topic"] == topic:
            (found.add if each["e"] == "own+" else found.discard)(each["queue"])
    return found


@pytest.mark.parametrize("proxies", [1, 2])
def test_a_topic_that_is_added_to_a_paused_group(proxies: int) -> None:
    """Another proxy owns its queues, which owned none of the group before."""

    async def main(stage: Stage) -> None:
        await begin(stage, queues=1, proxies=proxies)
        await pause(stage, "group")
        stage.world.write_settings([{"name": "billing", "topics": [ORDERS, PAYMENTS]}])
        await asyncio.sleep(10)
        stage.consume("other", "billing", ["payments"], proxy=proxies - 1)
        await asyncio.sleep(20)
        assert len(owned(stage, "payments")) == 2
        await is_held(stage, "payments", 2)
        for proxy in range(proxies):
            await pause(stage, "group", "resume", proxy=proxy)
        await stage.until(lambda: len(stage.of("finish", outcome="ok")) == 24)

    assert play(main) == {}


async def same(stage: Stage) -> None:
    """Let the same proxy own the queues that return."""


async def another(stage: Stage) -> None:
    """Let a proxy own them that has owned no queue before."""
    stage.world.nodes["consumer"].kill()
    await stage.world.proxies[0].stop()
    stage.consume("consumer", "billing", proxy=1)
    stage.producer.send_by([stage.world.proxies[1].thrift])


each_owner = pytest.mark.parametrize("next_owner", [same, another], ids=lambda each: each.__name__)


@each_kind
@each_owner
def test_queues_that_are_removed_and_added_again(next_owner: Step, what: str) -> None:
    async def main(stage: Stage) -> None:
        await begin(stage, queues=4, proxies=2)
        await stage.world.make_topic("orders", 1)
        await stage.until(lambda: len(owned(stage, "orders")) == 1)
        await pause(stage, what)
        await next_owner(stage)
        await stage.world.make_topic("orders", 4)
        await stage.until(lambda: len(owned(stage, "orders")) == 4)
        await is_held(stage, "orders", 4)
        await pause(stage, what, "resume", proxy=next_owner is another)
        await stage.until(lambda: len(stage.of("finish", outcome="ok")) == 24)

    assert play(main) == {}


@each_kind
@each_owner
def test_a_broker_that_was_away(next_owner: Step, what: str) -> None:
    async def main(stage: Stage) -> None:
        await begin(stage, queues=2, brokers=2, proxies=2)
        await asyncio.sleep(3)  # recorded
        await stage.world.brokers[1].stop()
        await stage.until(lambda: len(owned(stage, "orders")) == 2)
        await pause(stage, what)
        await next_owner(stage)
        await stage.world.brokers[1].start()
        await stage.until(lambda: len(owned(stage, "orders")) == 4)
        await is_held(stage, "orders", 4)
        await pause(stage, what, "resume", proxy=next_owner is another)
        await stage.until(lambda: len(stage.of("finish", outcome="ok")) == 24)

    assert play(main) == {}


@each_kind
def test_a_key_that_was_resumed_stays_resumed(what: str) -> None:
    """Only what was paused since the queue's last record is missed."""

    async def main(stage: Stage) -> None:
        await begin(stage, queues=4, proxies=2)
        await pause(stage, what)
        await asyncio.sleep(5)
        await pause(stage, what, "resume")
        await another(stage)
        await stage.until(lambda: len(owned(stage, "orders")) == 4)
        await stage.send("orders", NAMES, 16)
        await stage.until(lambda: len(stage.of("finish", outcome="ok")) == 24)

    assert play(main) == {}


def test_an_operator_resets_a_new_queue_of_a_paused_group() -> None:
    """The reset is the first record of that queue."""

    async def main(stage: Stage) -> None:
        await begin(stage, queues=1)
        await pause(stage, "group")
        stage.world.nodes["consumer"].kill()
        await stage.until(lambda: not owned(stage, "orders"))
        await stage.world.make_topic("orders", 2)
        await stage.send("orders", NAMES, 8)
        await asyncio.sleep(10)
        reset = {"topic": "orders", "to": {"begin": True}}
        await stage.act("/api/groups/billing/offsets/reset", **reset)
        stage.consume("consumer", "billing")
        await stage.until(lambda: len(owned(stage, "orders")) == 2)
        await is_held(stage, "orders", 2)

    assert not play(main).keys() - {"D1"}


def test_another_topic_that_a_client_asks_for_of_a_paused_group_without_settings() -> None:
    """The proxy that it asks knows none of the group's topics."""

    async def main(stage: Stage) -> None:
        topics = {"orders": 1, "mail": 1, "payments": 2}
        await stage.start(groups=[], topics=topics, proxies=2, auto_create_groups=True)
        stage.consume("one", "billing", ["orders"])
        await stage.until(lambda: owned(stage, "orders"))
        await pause(stage, "group")
        stage.consume("two", "billing", ["payments"], proxy=1)
        await stage.until(lambda: len(owned(stage, "payments")) == 2)
        await is_held(stage, "payments", 2)

    assert not play(main).keys() & {"R4"}
