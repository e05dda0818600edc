"""DDMQ's clients handle the messages of an answer one by one, cannot extend leases, and send their
verdicts with the next pull. N5 of the history checker finds keys that never have their turn.
"""

from __future__ import annotations

import pytest

from testkit.explorer.plan import ConsumerPlan
from testkit.simulation.loop import START_NS
from tests.world.stuck_worlds import GROUP, Played, StuckWorld, group


def slow_world(*clients: ConsumerPlan) -> StuckWorld:
    """Return a world with two proxies in which each of 40 messages takes a third of a lease."""
    slow = group(orders={"visibility_timeout_s": 3.0})
    world = StuckWorld({"orders": 1}, [slow], seconds=100.0, proxies=2, consumers=[*clients])
    world.act(0.0, "work", seconds=1.0)
    world.send("orders", [f"o{number}" for number in range(40)], 40, every_s=0.02)
    return world


def finished(played: Played, *, before_s: float) -> int:
    """Return how many messages had finished before that time."""
    finished = (event for event in played.outcome.events if event["e"] == "finish")
    return sum((event["t_ns"] - START_NS) / 1e9 < before_s for event in finished)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["java", "cpp"])
def test_an_answer_that_takes_longer_than_the_lease_becomes_shorter(mode: str) -> None:
    played = slow_world(ConsumerPlan(GROUP, None, 0, 1, ddmq=mode)).play()
    played.kept()
    assert finished(played, before_s=95) == 40


@pytest.mark.slow
def test_it_does_so_although_the_queue_moves_between_the_proxies_of_its_clients() -> None:
    clients = (ConsumerPlan(GROUP, None, proxy, 1, ddmq="java") for proxy in (0, 1))
    played = slow_world(*clients).play()
    played.kept()
    assert finished(played, before_s=95) == 40
