"""A full window is read past for whoever wants that queue, whatever else there is for them."""

from __future__ import annotations

from tests.support.stuck_worlds import StuckWorld, group

#: A window that one key fills, next to a backlog that lasts to the end.
SMALL = {"max_jobs_in_memory": 400, "max_jobs_per_key_in_memory": 16}


def beside(world: StuckWorld, *, backlog: str) -> StuckWorld:
    """Behind 500 messages of a stuck key of ``orders`` stand 20 others; *backlog* has enough for
    all clients all the time.
    """
    world.stick("stuck")
    world.act(0.0, "work", seconds=0.2)
    world.send(backlog, [f"p{n}" for n in range(50)], 1500, every_s=0.002)
    world.send("orders", ["stuck"], 500, at_s=2.0, every_s=0.002)
    world.send("orders", [f"o{n}" for n in range(20)], 20, at_s=5.0)
    return world


def test_a_client_of_both_topics_gets_what_stands_behind_a_full_window() -> None:
    world = StuckWorld(
        {"orders": 1, "payments": 1}, [group(orders=SMALL, payments={})], seconds=40.0
    )
    world.client(concurrency=8)
    played = beside(world, backlog="payments").play()
    assert played.handled("payments", before_s=30) < 1500, "the backlog was to last"
    assert played.handled("orders", "o", before_s=30) == 20
    played.kept()


def test_clients_of_one_topic_do_not_depend_on_those_of_another() -> None:
    """Nobody pulls the backlog of payments, but at once."""
    world = StuckWorld(
        {"orders": 1, "payments": 1}, [group(orders=SMALL, payments={})], seconds=40.0
    )
    world.client(["orders"], concurrency=8)
    world.client(["payments"], concurrency=1)
    played = beside(world, backlog="payments").play()
    assert played.handled("payments", before_s=30) < 1500
    assert played.handled("orders", "o", before_s=15) == 20
    played.kept()
