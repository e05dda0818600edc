"""Damage on a broker's disk costs what it hits: that message, which is reported, and no other one.

A queue is not read past a damaged message; a key whose spilled messages are read again is not
delivered past one. The operator's skip is on record.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from testkit.explorer.damage import records_of
from tests.world.stage import Stage, play

TOPIC = {"name": "orders", "order_key": "KEY", "max_jobs_in_memory": 24}
RESET = "/api/groups/billing/topics/orders/queues/broker-a_0/reset"


async def begin(stage: Stage, **rules: Any) -> None:
    await stage.start(
        groups=[{"name": "billing", "topics": [{**TOPIC, **rules}]}], topics={"orders": 1}
    )


def damage(stage: Stage, offset: int) -> Callable[[], None]:
    """Change a byte of the body of the message at *offset*; return what changes it back."""
    (broker,) = stage.world.brokers
    record = next(
        each
        for each in records_of(broker.folder / "data/commitlog")
        if (each.topic, each.queue_id, each.offset) == ("orders", 0, offset)
    )
    place, disk = record.position + record.size // 2, stage.world.disk
    former = disk.damage(record.path, place, b"#")

    def restore() -> None:
        disk.damage(record.path, place, former)

    return restore


async def damaged(stage: Stage) -> tuple[str, int, int]:
    """Return the sentence about the damage that is waited for, its offset and its end."""
    _, groups = await stage.world.http(stage.world.proxies[0], "/api/groups")
    (queue,) = [each for each in groups["billing"]["queues"] if each["topic"] == "orders"]
    return queue["damaged"], queue["damaged_from"], queue["damaged_until"]


def finished(stage: Stage, outcome: str = "ok") -> set[int]:
    return {each["offset"] for each in stage.of("finish", outcome=outcome, queue="broker-a_0")}


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
        await stage.act(RESET, to={"offset": 13}, expect=12)
        await stage.until(lambda: finished(stage) == set(range(20)) - {12})
        assert finished(stage, "deleted") == set()

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
        await stage.act(RESET, to={"offset": 16}, expect=15)
        await stage.until(lambda: stage.of("commit", offset=50))  # others are delivered again
        assert finished(stage) == set(range(50)) - {15}
        assert finished(stage, "deleted") == set()

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
