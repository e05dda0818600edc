"""The simulation of many proxies, small: the real code has no faults, planted ones are found.

``python -m bench.simulation`` runs it large; ``docs/scale.md`` has the results.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import orjson
import pytest

from bench.report import ROOT
from bench.simulation.events import SECOND
from bench.simulation.held_queue import HeldQueue
from bench.simulation.links import Links, Surroundings
from bench.simulation.model import Model, measured_costs
from bench.simulation.periods import Periods
from bench.simulation.scenarios import run_all
from bench.simulation.world import World
from broker_core.broker.groups.queue_locks import QueueLocks
from proxy.core.ownership.group_share import GroupShare
from proxy.core.ownership.trust import Trust
from tests.support.class_replacement import replaced_class

#: Plausible costs; fixed, so that results with a seed do not depend on measurements.
COEFFICIENTS = {
    "heartbeat_us": 60.0,
    "list_us": 60.0,
    "listed_member_us": 0.1,
    "lock_us": 60.0,
    "locked_queue_us": 3.0,
    "record_us": 60.0,
    "look_us": 60.0,
    "take_over_proxy_us": 1500.0,
}


def small(seed: int, **others: Any) -> Model:
    return Model(
        costs=measured_costs(COEFFICIENTS),
        proxies=12,
        queues=120,
        brokers=4,
        seed=seed,
        cold_start_s=3.0,
        rest_s=3.0,
        **others,
    )


def test_all_queues_are_served_again_and_none_by_two() -> None:
    world = World(small(1))
    outcomes = list(run_all(world))
    assert world.judge.faults == []
    assert len(outcomes) == 9
    for outcome in outcomes:
        assert (outcome.unserved, outcome.unsettled) == (0, 0), outcome
        assert outcome.moves >= 0
    killed = [each for each in outcomes if "killed" in each.scenario]
    assert all(each.settled_s < 15 for each in killed), "a lock runs out after 10 s"


def test_costs_are_those_that_were_measured() -> None:
    """In ns; a negative slope costs 0, and a missing coefficient is an error."""
    found = measured_costs({**COEFFICIENTS, "lock_us": 123.4, "listed_member_us": -0.1})
    assert (found.lock_ns, found.listed_member_ns) == (123_400, 0)
    result = orjson.loads((ROOT / "bench/results/coefficients.json").read_bytes())
    assert measured_costs(result["summary"][0]).take_over_ns > 0
    with pytest.raises(KeyError):
        measured_costs({})


def test_a_dearer_broker_is_busier() -> None:
    """The simulation uses the given costs."""
    cheap, dear = small(2), small(2)
    dear = replace(dear, costs=replace(dear.costs, record_ns=50_000_000))
    settled = [next(run_all(World(each))).settled_s for each in (cheap, dear)]
    assert settled[1] > settled[0] + 0.1


def cut_off(world: World) -> list[str]:
    """Cut half of the proxies off for a while."""
    for _ in range(world.model.proxies):
        world.start_proxy()
    world.run(5)
    some = world.live()[::2]
    world.cut(some, off=True)
    world.run(20)
    world.cut(some, off=False)
    world.run(5)
    return world.judge.faults


def test_who_is_cut_off_serves_no_longer_than_it_may() -> None:
    assert cut_off(World(small(3))) == []


class Credulous(Periods):
    """Trusts its locks for longer than a broker keeps them."""

    def __init__(self, links: Links, around: Surroundings, wake: Callable[[], None]) -> None:
        super().__init__(links, around, wake)
        self._trust_ns = 30 * SECOND


class Generous(QueueLocks):
    """Grants locks that others hold."""

    def _has_ended(self, lock: object, now_ns: int) -> bool:
        return True


class Blind(Trust):
    """Has no doubt after a lapse."""

    def granted(self, until_ns: int, *, now_ns: int) -> None:
        self.until_ns = until_ns


class Forgetful(Periods):
    """Loses no queue after a long lapse of trust."""

    def __init__(self, links: Links, around: Surroundings, wake: Callable[[], None]) -> None:
        super().__init__(links, around, wake)
        self._trust_ns = 30 * SECOND

    def _lose(self, held: HeldQueue) -> None:
        return


@pytest.mark.parametrize("bugs", [[Credulous], [Generous], [Blind, Forgetful]])
def test_a_planted_bug_is_found(bugs: list[type]) -> None:
    with ExitStack() as planted:
        for each in bugs:
            planted.enter_context(replaced_class(each, "bench.simulation"))
        faults = cut_off(World(small(3)))
    assert any("both" in each for each in faults)


class Short(GroupShare):
    """Leaves a queue out of each share."""

    def look_at(self, *arguments: Any, **named: Any) -> bool:
        listed = super().look_at(*arguments, **named)
        self.share = set(sorted(self.share)[1:])
        return listed


def test_queues_without_an_owner_are_found() -> None:
    """A wrongly computed share leaves queues without an owner."""
    with replaced_class(Short, "bench.simulation"):
        world = World(small(3))
        world.start_proxy()
    world.run(10)
    assert world.unserved() == 1
