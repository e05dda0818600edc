"""A full window is read past for clients that want that queue, whatever else is ready for them."""

from __future__ import annotations

import pytest

from tests.world.stuck_worlds import StuckWorld, group, keys_of_queue

#: A window that one key fills, next to a backlog that lasts to the end.
SMALL = {"max_jobs_in_memory": 400, "max_jobs_per_key_in_memory": 16}


def beside(world: StuckWorld, *, backlog: str) -> StuckWorld:
    """Put 20 other messages behind 500 of a stuck key of ``orders``; *backlog* always has enough
    for all clients.
    """
    world.stick("stuck")
    world.act(0.0, "work", seconds=0.2)
    world.send(backlog, [f"p{n}" for n in range(50)], 1500, every_s=0.002)
    world.send("orders", ["stuck"], 500, at_s=2.0, every_s=0.002)
    world.send("orders", [f"o{n}" for n in range(20)], 20, at_s=5.0)
    return world


@pytest.mark.slow
def test_a_client_of_both_topics_gets_messages_behind_a_full_window() -> None:
    world = StuckWorld(
        {"orders": 1, "payments": 1}, [group(orders=SMALL, payments={})], seconds=40.0
    )
    world.client(concurrency=8)
    played = beside(world, backlog="payments").play()
    assert played.handled("payments", before_s=30) < 1500, "the backlog was to last"
    assert played.handled("orders", "o", before_s=30) == 20
    played.kept()


@pytest.mark.slow
def test_clients_of_one_topic_do_not_depend_on_those_of_another() -> None:
    """Its client has one handler, so the backlog of payments lasts."""
    world = StuckWorld(
        {"orders": 1, "payments": 1}, [group(orders=SMALL, payments={})], seconds=40.0
    )
    world.client(["orders"], concurrency=8)
    world.client(["payments"], concurrency=1)
    played = beside(world, backlog="payments").play()
    assert played.handled("payments", before_s=30) < 1500
    assert played.handled("orders", "o", before_s=15) == 20
    played.kept()


@pytest.mark.slow
def test_another_queue_of_the_same_topic_has_a_backlog() -> None:
    world = StuckWorld({"orders": 2}, [group(orders=SMALL)], seconds=40.0)
    world.client(concurrency=8)
    world.act(0.0, "work", seconds=0.2)
    beside = keys_of_queue("p", 1, of=2, count=50)
    world.send("orders", beside, 1500, every_s=0.002)
    (stuck,) = keys_of_queue("stuck", 0, of=2, count=1)
    world.stick(stuck)
    world.send("orders", [stuck], 500, at_s=2.0, every_s=0.002)
    world.send("orders", keys_of_queue("o", 0, of=2, count=20), 20, at_s=5.0)
    played = world.play()
    assert played.handled("orders", "p", before_s=30) < 1500, "the backlog was to last"
    assert played.handled("orders", "o", before_s=30) == 20
    played.kept()


@pytest.mark.slow
def test_a_busy_key_beside_the_stuck_one_does_not_hide_those_behind() -> None:
    """The busy key always has a ready message, for clients at full capacity."""
    world = StuckWorld(
        {"orders": 1, "payments": 1}, [group(orders=SMALL, payments={})], seconds=60.0
    )
    world.client(concurrency=8)
    world.stick("stuck")
    world.act(0.0, "work", seconds=0.5)
    world.send("payments", [f"p{n}" for n in range(50)], 1500, every_s=0.002)
    world.send("orders", ["stuck", "busy"], 500, at_s=2.0, every_s=0.002)
    world.send("orders", [f"o{n}" for n in range(20)], 20, at_s=5.0)
    played = world.play()
    assert played.handled("orders", "busy", before_s=45) < 200, "it was to be busy to the end"
    assert played.handled("orders", "o", before_s=45) == 20
    played.kept()


@pytest.mark.slow
def test_a_client_with_one_hand_and_long_handlers() -> None:
    """It pulls once in some seconds, and the queue is read past the key in time for the next
    pull.
    """
    world = StuckWorld(
        {"orders": 1, "payments": 1}, [group(orders=SMALL, payments={})], seconds=120.0
    )
    world.client(concurrency=2)
    world.stick("stuck")
    world.act(8.0, "work", seconds=4.0)
    world.send("payments", [f"p{n}" for n in range(50)], 300, every_s=0.002, at_s=8.0)
    world.send("orders", ["stuck"], 500, every_s=0.002)
    world.send("orders", [f"o{n}" for n in range(5)], 5, at_s=8.0)
    played = world.play()
    assert played.handled("payments", before_s=115) < 300, "the backlog was to last"
    assert played.handled("orders", "o", before_s=115) == 5
    played.kept()
