"""With a byte limit too, a stuck key delays no other key, queue, topic or group."""

from __future__ import annotations

import pytest

from testkit.explorer.plan import Action
from tests.world.stuck_worlds import Played, StuckWorld, group

MB = 1_000_000
LIMIT = 4 * MB
LARGE = {"body_bytes": 40_000, "every_s": 0.02}


def bounded(played: Played, *, beyond: int = LIMIT // 4) -> None:
    """Check that the held bytes stay near the limit."""
    assert LIMIT // 2 < played.most_memory() < LIMIT + beyond


@pytest.mark.slow
def test_large_bodies_behind_a_stuck_key_are_spilled() -> None:
    world = StuckWorld({"orders": 1}, [group(orders={})], seconds=60.0, memory_bytes=LIMIT)
    world.client(concurrency=8)
    world.stick("stuck")
    keys = [f"k{n}" for n in range(10)]
    world.send("orders", [*keys, *["stuck"] * 10], 600, **LARGE)
    world.send("orders", keys, 100, at_s=15.0, **LARGE)
    played = world.play()
    assert played.handled("orders", "k", before_s=40) >= 350
    assert played.handled("orders", "stuck", before_s=40) == 1
    bounded(played)
    played.kept()


@pytest.mark.slow
def test_properties_count_as_bodies_do() -> None:
    world = StuckWorld({"orders": 1}, [group(orders={})], seconds=60.0, memory_bytes=LIMIT)
    world.client(concurrency=8)
    world.stick("stuck")
    keys = [f"k{n}" for n in range(10)]
    long = {"properties": {"long": "x" * 30_000}, "every_s": 0.02}
    world.send("orders", [*keys, *["stuck"] * 10], 600, **long)
    world.send("orders", keys, 100, at_s=15.0, **long)
    played = world.play()
    assert played.handled("orders", "k", before_s=40) >= 350
    bounded(played)
    played.kept()


@pytest.mark.slow
def test_a_stuck_key_in_each_of_many_queues() -> None:
    world = StuckWorld({"orders": 8}, [group(orders={})], seconds=60.0, memory_bytes=LIMIT)
    world.client(concurrency=32)
    stuck = [f"stuck{n}" for n in range(16)]
    world.stick(*stuck)
    keys = [f"k{n}" for n in range(16)]
    world.send("orders", [*keys, *stuck], 800, **LARGE)
    world.send("orders", keys, 100, at_s=20.0, **LARGE)
    played = world.play()
    assert played.handled("orders", "k", before_s=45) >= 450
    bounded(played)
    played.kept()


@pytest.mark.slow
def test_another_group_and_another_topic_go_on() -> None:
    topics = {"orders": 2, "payments": 2}
    groups = [group(orders={}, payments={}), group("audit", orders={}, payments={})]
    world = StuckWorld(topics, groups, seconds=60.0, memory_bytes=LIMIT)
    world.client(concurrency=4)
    world.client(concurrency=4, of="audit")
    world.stick("stuck")
    world.send("orders", ["stuck"], 300, **LARGE)
    world.send("orders", [f"k{n}" for n in range(8)], 100, at_s=10.0, **LARGE)
    world.send("payments", [f"p{n}" for n in range(8)], 100, at_s=12.0, **LARGE)
    played = world.play()
    for name in ("billing", "audit"):
        assert played.handled("orders", "k", before_s=45, group=name) == 100
        assert played.handled("payments", "p", before_s=45, group=name) == 100
    assert played.handled("orders", "stuck", before_s=45, group="audit") == 300
    played.kept()


def test_a_message_larger_than_the_limit_holds_up_its_key_alone() -> None:
    world = StuckWorld({"orders": 2}, [group(orders={})], seconds=60.0, memory_bytes=200_000)
    world.client(concurrency=8)
    world.stick("huge")
    world.send("orders", ["huge"], 3, body_bytes=250_000)
    world.send("orders", [f"k{n}" for n in range(8)], 100, at_s=3.0, **LARGE)
    played = world.play()
    assert played.handled("orders", "k", before_s=45) == 100
    assert played.most_memory() > 250_000
    played.kept()


@pytest.mark.slow
def test_keys_that_wait_for_their_retry_hold_up_no_other() -> None:
    """Each has one message in memory, and together they exceed the limit."""
    slow = {"retry_intervals_ms": [20_000], "max_deliveries": 99}
    world = StuckWorld({"orders": 2}, [group(orders=slow)], seconds=60.0, memory_bytes=LIMIT)
    world.client(concurrency=8)
    failing = [f"bad{n}" for n in range(120)]
    world.stick(*failing, how="fail")
    world.send("orders", failing, 600, **LARGE)
    world.send("orders", [f"k{n}" for n in range(8)], 200, at_s=15.0, **LARGE)
    played = world.play()
    assert played.handled("orders", "k", before_s=45) == 200
    bounded(played, beyond=LIMIT)
    played.kept()


@pytest.mark.slow
def test_paused_keys_hold_up_no_other() -> None:
    world = StuckWorld({"orders": 2}, [group(orders={})], seconds=60.0, memory_bytes=LIMIT)
    world.client(concurrency=8)
    paused = [f"paused{n}" for n in range(4)]
    for key in paused:
        about = {"group": "billing", "topic": "orders", "key": key, "for_s": 50.0}
        world.actions.append(Action(5.0, "pause key", about))
    world.send("orders", paused, 400, at_s=8.0, **LARGE)
    world.send("orders", [f"k{n}" for n in range(8)], 200, at_s=12.0, **LARGE)
    played = world.play()
    assert played.handled("orders", "k", before_s=50) == 200
    bounded(played)
    played.kept()
