"""Damage on a broker's disk costs what it hits: that message, which is reported, and no other one.

A queue is not read past a damaged message; a key whose spilled messages are read again is not
delivered past one. The operator's skip is on record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from broker_core.names import Group, Topic
from proxy.core.records.parked_key import parked_topic
from proxy.core.records.record import ownership_topic
from testkit.explorer.damage import records_of
from testkit.simulation.clients import Flow
from tests.world.stage import Stage, play

TOPIC = {"name": "orders", "order_key": "KEY", "max_jobs_in_memory": 24}
QUEUES = "/api/groups/billing/topics/orders/queues"
KEYS = "/api/groups/billing/topics/orders/keys"


async def begin(stage: Stage, **rules: Any) -> None:
    await stage.start(
        groups=[{"name": "billing", "topics": [{**TOPIC, **rules}]}], topics={"orders": 1}
    )


def damage(stage: Stage, offset: int, *, topic: str = "orders") -> Callable[[], None]:
    """Change a byte of the body of the message at *offset*; return what changes it back."""
    (broker,) = stage.world.brokers
    record = next(
        each
        for each in records_of(broker.folder / "data/commitlog")
        if (each.topic, each.queue_id, each.offset) == (topic, 0, offset)
    )
    place, disk = record.position + record.size // 2, stage.world.disk
    former = disk.damage(record.path, place, b"#")

    def restore() -> None:
        disk.damage(record.path, place, former)

    return restore


async def skip(stage: Stage, offset: int, *, queue: str = "broker-a_0") -> None:
    await stage.act(f"{QUEUES}/{queue}/skip", offset=offset)


async def damaged(stage: Stage, queue: str = "broker-a_0") -> tuple[str, int, int]:
    """Return the sentence about the damage that is waited for, its offset and its end."""
    _, groups = await stage.world.http(stage.world.proxies[0], "/api/groups")
    (queue,) = [each for each in groups["billing"]["queues"] if each["name"] == queue]
    return queue["damaged"], queue["damaged_from"], queue["damaged_until"]


def finished(stage: Stage, outcome: str = "ok", *, queue: str = "broker-a_0") -> set[int]:
    return {each["offset"] for each in stage.of("finish", outcome=outcome, queue=queue)}


def test_a_queue_is_read_up_to_a_damaged_message_and_goes_on_behind_it_on_record() -> None:
    async def main(stage: Stage) -> None:
        await begin(stage)
        await stage.send("orders", ["a", "b"], 20)
        damage(stage, 12)
        stage.consume("consumer", "billing")
        await stage.until(lambda: finished(stage) == set(range(12)))
        await stage.until(lambda: len(stage.of("commit", offset=12)) > 0)
        text, at, until = await damaged(stage)
        assert (at, until) == (12, 13)
        assert "message 12 of queue 0 of topic orders" in text
        status, refused = await stage.world.http(
            stage.world.proxies[0], f"{QUEUES}/broker-a_0/skip", {"reason": "a test", "offset": 11}
        )
        assert (status, refused["error"]) == (
            409,
            "queue broker-a_0 of 'orders' does not wait at a damaged message 11: nothing was"
            " skipped",
        )
        await skip(stage, 12)
        await stage.until(lambda: finished(stage) == set(range(20)) - {12})
        assert (finished(stage, "skipped"), finished(stage, "deleted")) == ({12}, set())
        assert len(stage.of("deliver")) == 19, "nothing is delivered again"

    assert play(main) == {}


def test_a_damaged_message_is_reported_without_those_of_other_tags_before_it() -> None:
    async def main(stage: Stage) -> None:
        await begin(stage, tags="red")
        for tag, count in (("blue", 4), ("red", 3)):
            await stage.producer.send(Flow("orders", ("a", "b"), 0.01, count, tags=(tag,)))
        damage(stage, 4)
        stage.consume("consumer", "billing")
        await stage.until(lambda: stage.of("commit", offset=4))
        text, *place = await damaged(stage)
        assert place == [4, 5]
        assert "message 4 of queue 0 of topic orders" in text
        await skip(stage, 4)
        await stage.until(lambda: finished(stage) == {5, 6})
        assert finished(stage, "skipped") == {4}

    assert play(main) == {}


def test_a_key_waits_at_a_damaged_message_that_is_to_be_read_again_and_others_go_on() -> None:
    """Its chain is longer than what is kept in memory."""

    async def main(stage: Stage) -> None:
        await begin(stage, max_jobs_per_key_in_memory=2)
        stage.habits.stuck.add(("billing", "a"))
        stage.consume("consumer", "billing")
        await stage.send("orders", ["a"], 30)
        await stage.send("orders", ["b"], 10)
        others = set(range(30, 40))
        await stage.until(lambda: finished(stage) == others)
        damage(stage, 15)
        stage.habits.cure()
        await stage.until(lambda: finished(stage) == others | set(range(15)))
        await stage.send("orders", ["b", "c"], 10)  # other keys go on
        others |= set(range(40, 50))
        await stage.until(lambda: finished(stage) == others | set(range(15)), within_s=20)
        assert (await damaged(stage))[1:] == (15, 16)
        assert finished(stage, "deleted") == set()
        status, refused = await stage.world.http(
            stage.world.proxies[0], f"{KEYS}/skip", {"reason": "a test", "key": "a"}
        )
        assert status == 409
        assert "at offset 15 of queue broker-a_0, is damaged" in refused["error"]
        await skip(stage, 15)
        await stage.until(lambda: stage.of("commit", offset=50))
        assert finished(stage) == set(range(50)) - {15}
        assert (finished(stage, "skipped"), finished(stage, "deleted")) == ({15}, set())
        assert len({each["offset"] for each in stage.of("deliver")}) == 49
        assert await damaged(stage) == ("", 0, 0)

    assert play(main) == {}


def test_a_message_that_is_intact_again_is_delivered_in_its_turn() -> None:
    async def main(stage: Stage) -> None:
        await begin(stage, max_jobs_per_key_in_memory=2)
        stage.habits.stuck.add(("billing", "a"))
        stage.consume("consumer", "billing")
        await stage.send("orders", ["a"], 30)
        await stage.until(lambda: len(stage.of("deliver")) == 1)
        restore = damage(stage, 15)
        stage.habits.cure()
        await stage.until(lambda: finished(stage) == set(range(15)))
        assert (await damaged(stage))[1] == 15
        (broker,) = stage.world.brokers
        await broker.stop()
        restore()
        await broker.start()
        await stage.until(lambda: finished(stage) == set(range(30)))
        assert await damaged(stage) == ("", 0, 0)

    assert play(main) == {}


async def parked_twice(stage: Stage) -> str:
    """Park messages of the keys a and b; return the topic of their copies."""
    await begin(stage, on_exhausted="park", max_deliveries=1)
    stage.habits.failing.update({("billing", "a"), ("billing", "b")})
    stage.consume("consumer", "billing")
    for _ in range(5):
        await stage.send("orders", ["a"], 1)
        await stage.send("orders", ["b"], 1)
    await stage.until(lambda: len(finished(stage, "parked")) == 10)
    await asyncio.sleep(2)  # until that is recorded
    stage.habits.cure()
    return str(parked_topic(Group("billing"), Topic("orders")))


def copies(stage: Stage, key: str) -> list[int]:
    """Return the places of the parked copies of *key*."""
    return [each["copy"] for each in stage.of("finish", outcome="parked", order=key)]


def redriven(stage: Stage) -> set[int]:
    return finished(stage, queue="broker-a_0p")


@pytest.mark.parametrize("records", ["kept", "lost"])
def test_a_damaged_copy_of_a_parked_message_holds_up_its_own_key_only(records: str) -> None:
    """Without the records, copies are read again: then the key of a damaged one is unknown."""

    async def main(stage: Stage) -> None:
        topic = await parked_twice(stage)
        hit = copies(stage, "a")[2]
        damage(stage, hit, topic=topic)
        (proxy,) = stage.world.proxies
        proxy.kill()
        if records == "lost":
            owned = str(ownership_topic(Group("billing"), Topic(topic)))
            (broker,) = stage.world.brokers
            for each in list(records_of(broker.folder / "data/commitlog")):
                if each.topic == owned:
                    stage.world.disk.damage(each.path, each.position + each.size // 2, b"#")
        await proxy.start()
        await stage.until(lambda: len(stage.of("own+", queue="broker-a_0p")) > 1)
        await asyncio.sleep(10)
        if records == "lost":
            assert (await damaged(stage, "broker-a_0p"))[1:] == (hit, hit + 1)
            await skip(stage, hit, queue="broker-a_0p")
            await stage.until(lambda: finished(stage, "skipped", queue="broker-a_0p") == {hit})
            await asyncio.sleep(10)
        for key in "ab":
            await stage.act(f"{KEYS}/redrive", key=key)
        if records == "kept":
            intact = {*copies(stage, "a")[:2], *copies(stage, "b")}
            await stage.until(lambda: redriven(stage) == intact)
            assert (await damaged(stage, "broker-a_0p"))[1:] == (hit, hit + 1)
            await skip(stage, hit, queue="broker-a_0p")
        await stage.until(lambda: redriven(stage) == set(range(10)) - {hit})
        assert await damaged(stage, "broker-a_0p") == ("", 0, 0)
        assert finished(stage, "skipped", queue="broker-a_0p") == {hit}

    assert play(main) == {}
