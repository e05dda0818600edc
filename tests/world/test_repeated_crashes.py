"""N7: crashes in a row. No take-over takes longer because of the ones before it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from typing import Any

import pytest

from testkit.simulation.world import World as SimulatedWorld
from testkit.simulation.world import simulate
from tests.mutants.clients import Worker
from tests.mutants.scenarios import KEYS, RULES, judge
from tests.mutants.world import QUEUES, Events, RunningProxy, World

#: Limits by what was killed: a lock lives for 10 s, a restart takes 1 s.
LIMIT_S = {"both": 12.0, "proxy": 12.0, "broker": 4.0}


@dataclass
class Crashes:
    """Kills broker and proxy in a world, and notes the time until both queues deliver again."""

    world: World
    kinds: Sequence[str]
    healthy_s: float
    rules_after: Callable[[int], dict[str, Any]] = lambda _: {}
    rows: list[tuple[str, float]] = field(default_factory=list)
    _started: int = 0

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        feed = loop.create_task(self._feed())
        proxy = await self._start_proxy()
        await asyncio.sleep(15)
        for number, kind in enumerate(self.kinds):
            killed_s, seen = loop.time(), len(self._events)
            if kind != "broker":
                proxy.kill()
            if kind != "proxy":
                (broker,) = self.world.simulated.brokers
                broker.kill()
                await asyncio.sleep(1)
                await broker.start()
            if kind != "broker":
                await asyncio.sleep(1)
                proxy = await self._start_proxy()
            for _ in range(2000):
                if self._deliver_since(seen, proxy):
                    break
                await asyncio.sleep(0.1)
            self.rows.append((kind, loop.time() - killed_s))
            if rules := self.rules_after(number):
                self.world.change(**rules)
            await asyncio.sleep(self.healthy_s)
        feed.cancel()
        await self.world.finished()

    @property
    def _events(self) -> Events:
        return self.world.simulated.events

    def _deliver_since(self, seen: int, proxy: RunningProxy) -> bool:
        fresh = self._events[max(seen, len(self._events) - 200) :]
        queues = {e["queue"] for e in fresh if e["e"] == "deliver" and e["node"] == proxy.name}
        return queues == {queue.qid for queue in QUEUES}

    async def _feed(self) -> None:
        for key in cycle(KEYS):
            self.world.send(key)
            await asyncio.sleep(0.5)

    async def _start_proxy(self) -> RunningProxy:
        self._started += 1
        proxy = await self.world.start_proxy(f"proxy-{self._started}")
        worker = Worker(self.world, proxy, f"{proxy.name}-client", sloppy=False)
        self.world.start_client(worker.name, worker.run())
        return proxy


def crash(
    kinds: Sequence[str],
    *,
    healthy_s: float,
    rules: dict[str, Any] | None = None,
    rules_after: Callable[[int], dict[str, Any]] = lambda _: {},
) -> tuple[list[tuple[str, float]], dict[str, str]]:
    """Return what was killed with the time of each take-over, and the checker's findings."""

    async def run(simulated: SimulatedWorld) -> tuple[list[tuple[str, float]], Events]:
        world = World(simulated, {**RULES, **(rules or {})})
        await world.start()
        crashes = Crashes(world, kinds, healthy_s, rules_after)
        await crashes.run()
        return crashes.rows, simulated.events

    rows, events = simulate(run, seed=1)
    found = {name: each.examples[0] for name, each in judge(events).violations.items()}
    sys.stdout.writelines(f"{kind:6} {took_s:5.1f} s\n" for kind, took_s in rows)
    return rows, found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kinds", "crashes", "healthy_s"),
    [
        (("both",), 6, 2.0),
        (("both", "proxy", "broker", "both"), 6, 20.0),
    ],
)
def test_crashes_in_a_row_lengthen_no_take_over(
    kinds: Sequence[str], crashes: int, healthy_s: float
) -> None:
    """``make torture`` crashes each kind twenty times."""
    check_crashes(kinds, crashes=crashes, healthy_s=healthy_s)


def check_crashes(kinds: Sequence[str], *, crashes: int, healthy_s: float) -> None:
    """Assert that no take-over takes longer than that of its kind may."""
    rows, found = crash(list(islice(cycle(kinds), crashes)), healthy_s=healthy_s)
    assert found == {}
    assert [row for row in rows if row[1] > LIMIT_S[row[0]]] == []


@pytest.mark.slow
def test_long_leases_of_earlier_settings_delay_one_take_over_only() -> None:
    rows, found = crash(
        ["both", "both", "proxy", "both", "both"],
        healthy_s=40,
        rules={"visibility_timeout_s": 30.0},
        rules_after=lambda number: {"visibility_timeout_s": 5.0} if number == 0 else {},
    )
    assert found == {}
    # The first two owners grant leases of 30 s, which outlive their locks by up to 25 s.
    assert max(took_s for _, took_s in rows[:2]) < 12 + 25
    assert max(took_s for _, took_s in rows[3:]) < 12, rows
