"""More keys than a window has places wait for a retry, or are paused, without delaying other
keys.
"""

from __future__ import annotations

import pytest

from testkit.explorer.plan import Action
from tests.world.stuck_worlds import GROUP, StuckWorld, group

PLACES = {"max_jobs_in_memory": 20, "max_jobs_per_key_in_memory": 4}
SLOW = {"retry_intervals_ms": [30_000], "max_deliveries": 99, **PLACES}
KB = 1000
LIMIT = 2_000 * KB


def pause(world: StuckWorld, keys: list[str], *, at_s: float = 0.5, for_s: float = 50.0) -> None:
    for key in keys:
        about = {"group": GROUP, "topic": "orders", "key": key, "for_s": for_s}
        world.actions.append(Action(at_s, "pause key", about))


def each_once(world: StuckWorld, keys: list[str], *, at_s: float, **how: object) -> None:
    """Send one message of each of *keys*."""
    for number, key in enumerate(keys):
        world.send("orders", [key], 1, at_s=at_s + number * 0.01, **how)


def test_keys_that_wait_for_their_retry() -> None:
    world = StuckWorld({"orders": 1}, [group(orders=SLOW)], seconds=60.0)
    world.client(concurrency=8)
    failing = [f"bad{n}" for n in range(60)]
    world.stick(*failing, how="fail")
    each_once(world, failing, at_s=1.0)
    world.send("orders", ["healthy"], 10, at_s=8.0)
    played = world.play()
    assert played.handled("orders", "healthy", before_s=20) == 10
    assert played.handled("orders", "bad", before_s=20) == 60
    played.kept()


@pytest.mark.slow
def test_messages_without_a_key_that_wait_for_their_retry() -> None:
    """They fill a window like keys."""
    world = StuckWorld({"orders": 1}, [group(orders=SLOW)], seconds=60.0)
    world.client(concurrency=8)
    failing = [f"bad{n}" for n in range(10)]
    world.stick(*failing, how="fail")
    world.act(0.0, "fail", group=GROUP, key=None, for_s=5.0)
    each_once(world, failing, at_s=1.0)
    world.send("orders", [None], 40, at_s=1.0)
    world.send("orders", ["healthy"], 10, at_s=8.0)
    played = world.play()
    assert played.handled("orders", "healthy", before_s=20) == 10
    played.kept()


@pytest.mark.slow
def test_paused_keys() -> None:
    world = StuckWorld({"orders": 1}, [group(orders=PLACES)], seconds=60.0)
    world.client(concurrency=8)
    paused = [f"paused{n}" for n in range(60)]
    pause(world, paused, for_s=25.0)
    each_once(world, paused, at_s=4.0)
    world.send("orders", ["healthy"], 10, at_s=8.0)
    played = world.play()
    assert played.handled("orders", "healthy", before_s=20) == 10
    assert played.handled("orders", "paused", before_s=20) == 0
    assert played.handled("orders", "paused", before_s=45) == 60
    played.kept()


@pytest.mark.slow
def test_large_messages_that_wait_for_their_retry() -> None:
    slow = {**SLOW, "max_jobs_in_memory": 1000}
    world = StuckWorld({"orders": 2}, [group(orders=slow)], seconds=90.0, memory_bytes=LIMIT)
    world.client(concurrency=8)
    failing = [f"bad{n}" for n in range(100)]
    world.stick(*failing, how="fail")
    each_once(world, failing, at_s=1.0, body_bytes=50 * KB)
    world.send("orders", ["healthy", "other"], 30, at_s=12.0, body_bytes=50 * KB)
    played = world.play()
    assert played.handled("orders", "bad", before_s=25) == 100
    assert played.handled("orders", "healthy", before_s=25) > 0
    assert played.handled("orders", "other", before_s=25) > 0
    assert played.most_memory() < LIMIT + LIMIT // 8
    played.kept()


@pytest.mark.slow
def test_large_messages_of_paused_keys() -> None:
    few = {**PLACES, "max_jobs_in_memory": 1000}
    world = StuckWorld({"orders": 2}, [group(orders=few)], seconds=90.0, memory_bytes=LIMIT)
    world.client(concurrency=8)
    paused = [f"paused{n}" for n in range(100)]
    pause(world, paused, for_s=40.0)
    each_once(world, paused, at_s=4.0, body_bytes=50 * KB)
    world.send("orders", ["healthy"], 30, at_s=12.0, body_bytes=50 * KB)
    played = world.play()
    assert played.handled("orders", "healthy", before_s=25) == 30
    assert played.most_memory() < LIMIT + LIMIT // 8
    assert played.handled("orders", "paused", before_s=75) == 100
    played.kept()


@pytest.mark.slow
def test_all_at_once_and_then_cured() -> None:
    """Failing and paused keys with some messages each, and healthy ones between them."""
    world = StuckWorld({"orders": 2}, [group(orders=SLOW)], seconds=50.0, memory_bytes=LIMIT)
    world.client(concurrency=8)
    failing = [f"bad{n}" for n in range(50)]
    paused = [f"paused{n}" for n in range(50)]
    world.stick(*failing, how="fail")
    pause(world, paused, for_s=30.0)
    healthy = [f"k{n}" for n in range(30)]
    world.send("orders", [*failing, *paused, *healthy], 500, at_s=2.0, body_bytes=10 * KB)
    played = world.play()
    began = {e["msg"] for e in played.outcome.events if e["e"] == "handle_start"}
    sent = [e for e in played.outcome.events if e["e"] == "sent"]
    assert len(began) == 500 or len(sent) != 500
    played.kept()


@pytest.mark.slow
def test_keys_that_are_retried_skipped_and_parked_by_hand_meanwhile() -> None:
    world = StuckWorld({"orders": 1}, [group(orders=SLOW)], seconds=50.0)
    world.client(concurrency=8)
    failing = [f"bad{n}" for n in range(60)]
    world.stick(*failing, how="fail")
    each_once(world, failing, at_s=1.0)
    for verb, first in (("retry", 0), ("skip", 15), ("park", 30)):
        for number in range(10):
            about = {"group": GROUP, "topic": "orders", "key": f"bad{first + number}"}
            world.act(8.0 + number * 0.1, "key verb", verb=verb, **about)
    world.send("orders", ["healthy", *failing], 100, at_s=9.0)
    world.send("orders", ["healthy"], 10, at_s=12.0)
    played = world.play()
    assert played.outcome.done["key verb"] == 30
    assert played.handled("orders", "healthy", before_s=25) >= 10
    played.kept()


@pytest.mark.slow
def test_an_owner_that_is_killed_meanwhile() -> None:
    """The recorded state of a message does not depend on whether it is in memory."""
    world = StuckWorld({"orders": 1}, [group(orders=SLOW)], seconds=60.0, proxies=2)
    world.client(concurrency=8)
    failing = [f"bad{n}" for n in range(60)]
    world.stick(*failing, how="fail")
    each_once(world, failing, at_s=1.0)
    world.act(10.0, "kill", node="proxy-0", for_s=5.0)
    world.act(30.0, "kill", node="proxy-1", for_s=5.0)
    world.send("orders", ["healthy"], 10, at_s=8.0)
    played = world.play()
    assert played.handled("orders", "healthy", before_s=58) == 10
    played.kept()


@pytest.mark.slow
def test_keys_that_wait_for_older_messages_while_the_order_key_changes() -> None:
    """Clients hold the older ones for long, with others behind them."""
    few = {**SLOW, "order_key": "$.n"}
    world = StuckWorld({"orders": 1}, [group(orders=few)], seconds=60.0)
    world.client(concurrency=24)
    stuck = [f"stuck{n}" for n in range(12)]
    world.stick(*stuck)
    world.send("orders", stuck, 12, at_s=1.0)
    world.act(6.0, "settings", group=GROUP, topic="orders", change={"order_key": "$.id"})
    each_once(world, stuck, at_s=10.0)
    world.send("orders", ["healthy"], 10, at_s=12.0)
    played = world.play()
    assert played.handled("orders", "healthy", before_s=30) == 10
    played.kept()
