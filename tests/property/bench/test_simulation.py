"""The simulation of many proxies, small: the code as it is has no faults, planted ones are found.

``python -m bench.simulation`` runs it large; ``docs/scale.md`` has what comes of that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson
import pytest

from bench.report import ROOT
from bench.simulation.events import SECOND
from bench.simulation.links import Surroundings
from bench.simulation.model import Model, measured_costs
from bench.simulation.periods import Periods
from bench.simulation.proxies import Proxy
from bench.simulation.scenarios import run_all
from bench.simulation.world import World
from broker_core.broker.groups.queue_locks import QueueLocks
from proxy.core.ownership.group_share import GroupShare
from proxy.core.ownership.trust import Trust

#: What a machine may show; results come and go, and seeds here say always the same.
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
    """In ns; a slope below nothing costs nothing, and what was not measured is missed."""
    found = measured_costs({**COEFFICIENTS, "lock_us": 123.4, "listed_member_us": -0.1})
    assert (found.lock_ns, found.listed_member_ns) == (123_400, 0)
    result = orjson.loads((ROOT / "bench/results/coefficients.json").read_bytes())
    assert measured_costs(result["summary"][0]).take_over_ns > 0
    with pytest.raises(KeyError):
        measured_costs({})


def test_a_dearer_broker_is_busier() -> None:
    """What stands in the costs is what a simulation goes by."""
    cheap, dear = small(2), small(2)
    dear = replace(dear, costs=replace(dear.costs, record_ns=50_000_000))
    settled = [next(run_all(World(each))).settled_s for each in (cheap, dear)]
    assert settled[1] > settled[0] + 0.1


def cut_off(world: World) -> list[str]:
    """Half of the proxies hear and say nothing for a while."""
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


class Credulous(Proxy):
    """Trusts its locks for longer than a broker keeps them."""

    def __init__(self, name: str, around: Surroundings) -> None:
        super().__init__(name, around)
        self._periods._trust_ns = 30 * SECOND


def generous(monkeypatch: pytest.MonkeyPatch) -> type[Proxy]:
    """Brokers give locks away that others hold."""
    monkeypatch.setattr(QueueLocks, "_has_ended", lambda *_: True)
    return Proxy


def forgetful(monkeypatch: pytest.MonkeyPatch) -> type[Proxy]:
    """A lapse of trust is nothing to proxies."""

    def granted(trust: Trust, until_ns: int, *, now_ns: int) -> None:
        trust.until_ns = until_ns

    def lose(_periods: Periods, _held: object) -> None:
        return

    monkeypatch.setattr(Trust, "granted", granted)
    monkeypatch.setattr(Periods, "_lose", lose)
    return Credulous


def credulous(_monkeypatch: pytest.MonkeyPatch) -> type[Proxy]:
    return Credulous


@pytest.mark.parametrize("bug", [credulous, generous, forgetful])
def test_a_planted_bug_is_found(
    bug: Callable[[pytest.MonkeyPatch], type[Proxy]], monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = cut_off(World(small(3), proxy=bug(monkeypatch)))
    assert any("both" in each for each in faults)


def test_queues_that_nobody_goes_for_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A share that is computed wrongly leaves queues behind."""
    real = GroupShare.look_at

    def look_at(share: GroupShare, *arguments: Any, **named: Any) -> bool:
        listed = real(share, *arguments, **named)
        share.share = set(sorted(share.share)[1:])
        return listed

    monkeypatch.setattr(GroupShare, "look_at", look_at)
    world = World(small(3))
    world.start_proxy()
    world.run(10)
    assert world.unserved() == 1
