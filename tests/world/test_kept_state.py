"""Paused, parked, counted and finished state outlives retention, with any next owner (K1)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from testkit.simulation.clients import Flow
from testkit.simulation.world import BrokerNode
from tests.support.variants import first_of
from tests.world.full_logs import KEYS, SMALL, others_fill_the_log
from tests.world.stage import Stage, play

ORDERS = {"name": "orders", "order_key": "KEY"}
Act = Callable[[Stage], Coroutine[Any, Any, None]]


async def begin(stage: Stage, **rules: Any) -> None:
    """Let a consumer at the first of two proxies handle six messages of three keys."""
    await stage.start(
        groups=[{"name": "billing", "topics": [{**ORDERS, **rules}]}],
        topics={"orders": 2, "busy": 1},
        brokers={"broker-a": SMALL},
        proxies=2,
    )
    stage.consume("consumer", "billing")
    await stage.send("orders", ["a", "b", "c"], 6)
    await stage.until(lambda: len(stage.of("finish")) == 6)


# ---- current and next owners of the queues -------------------------------------------------------


async def handed_over(stage: Stage) -> None:
    await others_fill_the_log(stage)
    await stage.world.proxies[0].stop()


async def crashed(stage: Stage) -> None:
    await others_fill_the_log(stage)
    stage.world.proxies[0].kill()


async def nobody_pulled(stage: Stage) -> None:
    stage.world.nodes["consumer"].kill()
    await stage.until(lambda: len(stage.of("own-", reason="handed over")) >= 2)
    await others_fill_the_log(stage)


async def crashed_and_nobody_pulled(stage: Stage) -> None:
    stage.world.nodes["consumer"].kill()
    stage.world.proxies[0].kill()
    await others_fill_the_log(stage)


async def deleted_before_anybody_looked(stage: Stage) -> None:
    """Let the owner hand over while it still has the whole state."""
    await stage.producer.send_natively(Flow("busy", ("k",), 0.01, 60, body_bytes=50_000))
    (broker,) = stage.world.brokers
    assert isinstance(broker, BrokerNode)
    await broker.delete_expired()
    await stage.world.proxies[0].stop()


WAYS = (
    deleted_before_anybody_looked,
    crashed_and_nobody_pulled,
    handed_over,
    crashed,
    nobody_pulled,
)
each_way = first_of("way", WAYS, count=2, ids=lambda way: way.__name__)


def second_begins(stage: Stage) -> None:
    """Add a consumer at the other proxy, which producers use too."""
    stage.consume("consumer", "billing", proxy=1)
    stage.producer.send_by([stage.world.proxies[1].thrift])


# ---- promises ------------------------------------------------------------------------------------


async def send_more(stage: Stage) -> None:
    """Send two messages of each key."""
    for key in "abc":
        await stage.send("orders", [key], 2)
    await asyncio.sleep(30)


@each_way
def test_a_paused_group_stays_paused(way: Act) -> None:
    async def main(stage: Stage) -> None:
        await begin(stage)
        await stage.act("/api/groups/billing/pause")
        await way(stage)
        second_begins(stage)
        await send_more(stage)
        assert len(stage.of("own+", owner=stage.world.proxies[1].proxy.client_id)) >= 2
        assert len(stage.of("deliver")) == 6
        await stage.act("/api/groups/billing/resume", proxy=1)
        await stage.until(lambda: len(stage.of("finish")) == 12)

    assert play(main) == {}


@each_way
def test_a_paused_key_stays_paused(way: Act) -> None:
    async def main(stage: Stage) -> None:
        await begin(stage)
        handled = len(stage.of("deliver", order="a"))
        await stage.act(f"{KEYS}/pause", key="a")
        await way(stage)
        second_begins(stage)
        await send_more(stage)
        await stage.until(lambda: len(stage.of("finish")) == 10)
        assert len(stage.of("deliver", order="a")) == handled
        await stage.act(f"{KEYS}/resume", key="a", proxy=1)
        await stage.until(lambda: len(stage.of("finish")) == 12)

    assert play(main) == {}


@each_way
def test_a_parked_key_stays_parked(way: Act) -> None:
    async def main(stage: Stage) -> None:
        await begin(stage)
        stage.habits.failing.add(("billing", "a"))
        await stage.send("orders", ["a"], 3)
        await stage.until(lambda: stage.of("ack_ok", outcome="retry"))
        await stage.act(f"{KEYS}/park", key="a")
        await stage.until(lambda: len(stage.of("finish", outcome="parked")) == 3)
        await asyncio.sleep(2)  # the twin's records list the copies
        stage.habits.cure()
        await way(stage)
        second_begins(stage)
        await send_more(stage)
        await stage.until(lambda: len(stage.of("finish", outcome="parked")) == 5)
        await stage.act(f"{KEYS}/redrive", key="a", proxy=1)
        await stage.until(lambda: stage.of("unpark", order="a"))
        handled = len(stage.of("finish", outcome="ok"))
        await stage.send("orders", ["a"], 1)
        await stage.until(lambda: len(stage.of("finish", outcome="ok")) > handled)

    assert play(main) == {}


@each_way
def test_settings_with_a_former_order_key_are_refused(way: Act) -> None:
    async def main(stage: Stage) -> None:
        await begin(stage)
        newer = {**ORDERS, "order_key": "$.id", "order_key_version": 1}
        stage.world.write_settings([{"name": "billing", "topics": [newer]}])
        await stage.until(lambda: len(stage.of("order_key")) >= 2)
        stage.world.write_settings([{"name": "billing", "topics": [ORDERS]}])
        await asyncio.sleep(10)
        await way(stage)
        second_begins(stage)
        await send_more(stage)
        assert len(stage.of("deliver")) == 6
        stage.world.write_settings([{"name": "billing", "topics": [newer]}])
        await stage.until(lambda: len(stage.of("finish")) == 12)

    assert play(main) == {}


# ---- messages newer than the snapshot ------------------------------------------------------------


async def fill(stage: Stage, messages: int) -> None:
    await stage.producer.send_natively(Flow("busy", ("k",), 0.3, messages, body_bytes=50_000))


async def snapshot_deleted(stage: Stage, way: Act) -> None:
    """Delete the first snapshot, but not the messages sent since."""
    await fill(stage, 4)
    await asyncio.sleep(75)
    await way(stage)


async def stopped(stage: Stage) -> None:
    await stage.world.proxies[0].stop()


async def killed(stage: Stage) -> None:
    stage.world.proxies[0].kill()


stopped_or_killed = first_of("way", [killed, stopped], ids=lambda way: way.__name__)


@stopped_or_killed
def test_what_had_finished_behind_a_paused_key_is_not_handed_out_again(way: Act) -> None:
    async def main(stage: Stage) -> None:
        await begin(stage)
        await stage.act(f"{KEYS}/pause", key="a")
        await stage.act(f"{KEYS}/pause", key="b")
        await fill(stage, 40)
        for key in "abcd":
            await stage.send("orders", [key], 2)
        await stage.until(lambda: len(stage.of("finish")) == 10)
        await asyncio.sleep(3)  # recorded
        await snapshot_deleted(stage, way)
        second_begins(stage)
        await asyncio.sleep(30)
        assert len(stage.of("deliver")) == 10
        for key in "ab":
            await stage.act(f"{KEYS}/resume", key=key, proxy=1)
        await stage.until(lambda: len(stage.of("finish")) == 14)

    assert play(main) == {}


@stopped_or_killed
def test_a_change_of_the_order_key_goes_on(way: Act) -> None:
    """A newer message waits for an older, paused one at the next owner too."""

    async def main(stage: Stage) -> None:
        await begin(stage)
        await stage.act(f"{KEYS}/pause", key="a")
        await fill(stage, 40)
        await stage.send("orders", ["a"], 1)
        newer = {**ORDERS, "order_key": "$.id", "order_key_version": 1}
        stage.world.write_settings([{"name": "billing", "topics": [newer]}])
        await stage.until(lambda: len(stage.of("order_key")) >= 2)
        await stage.send("orders", ["a", "c"], 8)
        await snapshot_deleted(stage, way)
        second_begins(stage)
        await asyncio.sleep(30)
        sent = len(stage.of("send", key="a"))
        handled = len(stage.of("finish"))
        assert stage.of("own+")[-1]["key_version"] == 2
        await stage.act(f"{KEYS}/resume", key="a", proxy=1)
        await stage.until(lambda: len(stage.of("finish")) == 15)
        assert handled < 15
        order = [each["offset"] for each in stage.of("deliver", order="a")]
        assert len(order) == sent
        assert order == sorted(order)

    assert play(main) == {}


@stopped_or_killed
def test_hand_outs_of_a_failing_key_are_counted_on(way: Act) -> None:
    async def main(stage: Stage) -> None:
        await begin(stage, on_exhausted="block", retry_intervals_ms=[2000])
        stage.habits.failing.add(("billing", "a"))
        await fill(stage, 40)
        await stage.send("orders", ["a"], 2)
        await stage.until(lambda: len(stage.of("deliver", order="a", attempt=5)) == 1)
        await snapshot_deleted(stage, way)
        attempts = [each["attempt"] for each in stage.of("deliver", order="a")]
        second_begins(stage)
        await asyncio.sleep(40)
        later = [each["attempt"] for each in stage.of("deliver", order="a")][len(attempts) :]
        assert later[0] >= attempts[-1]
        stage.habits.cure()
        await stage.until(lambda: len(stage.of("finish")) == 8)

    assert play(main) == {}


@stopped_or_killed
def test_a_redrive_goes_on_where_it_was(way: Act) -> None:
    async def main(stage: Stage) -> None:
        await begin(stage, max_deliveries=1)
        stage.habits.failing.add(("billing", "a"))
        await stage.send("orders", ["a"], 1)
        await stage.until(lambda: len(stage.of("finish", outcome="parked")) == 1)
        stage.habits.cure()
        await fill(stage, 40)
        await stage.send("orders", ["a"], 6)
        await stage.until(lambda: len(stage.of("finish", outcome="parked")) == 7)
        await stage.act(f"{KEYS}/redrive", key="a", rate=0.05)

        def copies() -> list[int]:
            return [
                each["origin_offset"] for each in stage.of("deliver") if "origin_offset" in each
            ]

        await stage.until(lambda: len(copies()) == 2)
        await snapshot_deleted(stage, way)
        second_begins(stage)
        await stage.until(lambda: stage.of("unpark", order="a"), within_s=400)
        assert copies() == sorted(set(copies()))

    assert play(main) == {}
