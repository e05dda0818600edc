"""Scenarios: a minute or two of a gateway, and the limits by which it is judged."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from proxy.history.check import HistoryChecker
from proxy.history.findings import Report
from proxy.history.limits import Limits
from testkit.simulation.world import World as SimulatedWorld
from testkit.simulation.world import simulate
from tests.mutants.clients import Worker
from tests.mutants.world import QUEUES, Events, RunningProxy, World

#: Simulated machines are never slow.
LIMITS = Limits(
    commit_s=12.0,
    delivery_s=8.0,
    successor_s=5.0,
    isolation_s=8.0,
    retry_s=6.0,
    lease_s=5.0,
    demand_s=40.0,
    durable_s=4.0,
    early_s=0.01,
    settle_s=15.0,
)
RULES = {
    "retry_intervals_ms": (400, 800),
    "max_deliveries": 6,
    "max_jobs_in_memory": 1000,
    "on_exhausted": "dead_letter",
}
KEYS = [f"key-{number}" for number in range(12)]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario: ``play`` acts on a gateway whose topic has ``rules``.

    ``known``: ids of the invariants that the gateway itself is known to violate here.
    """

    name: str
    play: Callable[[World], Coroutine[Any, Any, None]]
    rules: Mapping[str, Any] = field(default_factory=dict)
    known: frozenset[str] = frozenset()
    seed: int = 1
    broker: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the broker."""

    def run(self) -> Events:
        """Return the history of one run."""

        async def play(simulated: SimulatedWorld) -> Events:
            world = World(simulated, {**RULES, **self.rules}, **self.broker)
            await world.start()
            await self.play(world)
            return simulated.events

        return simulate(play, seed=self.seed)


def judge(events: Events) -> Report:
    """Return the checker's verdict."""
    checker = HistoryChecker(limits=LIMITS)
    for event in events:
        checker.on_event(event)
    return checker.report()


class _Staff:
    """The clients of a world, all with the same behavior."""

    def __init__(self, world: World, **habits: Any) -> None:
        self._world, self._habits = world, habits
        self._hired = 0

    def hire(self, proxy: RunningProxy, how_many: int) -> None:
        """Start more of them."""
        for _ in range(how_many):
            self._hired += 1
            habits = {"max_run": 1 + self._hired % 3, **self._habits}
            worker = Worker(self._world, proxy, f"client-{self._hired}", **habits)
            self._world.start_client(worker.name, worker.run())


async def _load(world: World, *, messages: int, every_s: float = 0.05) -> None:
    for number in range(messages):
        world.send(KEYS[number * 7 % len(KEYS)])
        await asyncio.sleep(every_s)


async def _everyday(world: World) -> None:
    slow = frozenset({"slow", "slower"})
    staff = _Staff(world, fails=frozenset({"poison"}), slow=slow)
    left = await world.start_proxy("left")
    staff.hire(left, 3)
    world.send("poison", "slow", "poison", "slow")
    await _load(world, messages=100)
    right = await world.start_proxy("right")
    staff.hire(right, 3)
    await _load(world, messages=100)
    await asyncio.sleep(6)  # nothing to do: pulls wait
    world.send("slower")
    await _load(world, messages=60)
    left.kill()
    await _load(world, messages=80, every_s=0.15)
    third = await world.start_proxy("third")
    staff.hire(third, 3)
    await _load(world, messages=100)
    await world.finished()


async def _short(world: World) -> None:
    staff = _Staff(world, work_s=0.3, max_run=1)
    staff.hire(await world.start_proxy("left"), 3)
    await _load(world, messages=42, every_s=0.02)
    await world.finished()


async def _handed_over(world: World) -> None:
    """Hand over between two records: no slow handlers, and no joins at a full second."""
    staff = _Staff(world)
    staff.hire(await world.start_proxy("left"), 3)
    await _load(world, messages=66)
    staff.hire(await world.start_proxy("right"), 3)
    await _load(world, messages=100)
    await world.finished()


async def _cut_off(world: World) -> None:
    slow = frozenset({"slow", "slower", "slowest"})
    staff = _Staff(world, sloppy=False, slow=slow)
    left = await world.start_proxy("left")
    staff.hire(left, 2)
    await _load(world, messages=60)
    right = await world.start_proxy("right")
    staff.hire(right, 2)
    await _load(world, messages=160)
    world.send(*sorted(slow) * 3)  # messages behind them are delivered during the cut
    await asyncio.sleep(1)
    left.cut(off=True)
    await _load(world, messages=100, every_s=0.3)
    left.cut(off=False)
    await _load(world, messages=60)
    await world.finished()


async def _stuck(world: World) -> None:
    staff = _Staff(world, sloppy=False, stuck=frozenset({"stuck"}), batch=1)
    staff.hire(await world.start_proxy("left"), 4)
    await _load(world, messages=20)
    world.send("stuck")
    await _load(world, messages=200, every_s=0.2)
    await world.finished()


async def _burst(world: World) -> None:
    staff = _Staff(world, sloppy=False, work_s=0.05)
    world.send(*(KEYS[number % len(KEYS)] for number in range(300)))
    staff.hire(await world.start_proxy("left"), 3)
    await world.finished()


async def _crowded(world: World) -> None:
    stuck = [f"stuck-{number}" for number in range(12)]
    staff = _Staff(world, sloppy=False, stuck=frozenset(stuck), batch=1)
    staff.hire(await world.start_proxy("left"), 16)
    world.send(*(stuck * 6))
    await _load(world, messages=120, every_s=0.1)
    await world.finished(within_s=400)


async def _parked(world: World) -> None:
    broken = {"poison"}
    staff = _Staff(world, fails=broken, sloppy=False)
    left = await world.start_proxy("left")
    staff.hire(left, 3)
    world.send("poison", "poison", "poison")
    await _load(world, messages=60)
    await _until_parked(left, 3)
    left.kill()
    right = await world.start_proxy("right")
    staff.hire(right, 3)
    world.send("poison", "poison")
    await _until_parked(right, 5)
    broken.clear()
    await right.redrive()
    world.send("poison")
    await _load(world, messages=30)
    await _until_parked(right, 0)
    world.send("poison")
    await world.finished()


async def _crashed(world: World, *, with_broker: bool = False) -> None:
    """Kill owners one after the other, each soon after its take-over."""
    staff = _Staff(world, sloppy=False)
    proxy = await world.start_proxy("first")
    staff.hire(proxy, 3)
    await _load(world, messages=20)
    for name in ("second", "third", "fourth", "fifth"):
        proxy.kill()
        if with_broker:
            await world.restart_broker()
        proxy = await world.start_proxy(name)
        staff.hire(proxy, 3)
        await _load(world, messages=60, every_s=0.25)
    await world.finished()


async def _shortened(world: World) -> None:
    """Shorten the leases; then kill owners one after the other, each after a healthy time."""
    staff = _Staff(world, sloppy=False)
    proxy = await world.start_proxy("first")
    staff.hire(proxy, 1)
    await _load(world, messages=10)
    world.change(visibility_timeout_s=5.0)
    for name, healthy_s in (("second", 60), ("third", 40), ("fourth", 10)):
        proxy.kill()
        proxy = await world.start_proxy(name)
        staff.hire(proxy, 1)
        await _load(world, messages=healthy_s, every_s=1)
    await world.finished()


async def _recreated(world: World) -> None:
    """Delete the topic and create it again while a proxy owns its queues."""
    staff = _Staff(world, sloppy=False)
    staff.hire(await world.start_proxy("left"), 3)
    await _load(world, messages=60)
    await asyncio.sleep(8)  # all of it is committed
    await world.recreate()
    await _load(world, messages=20)
    await world.finished(within_s=60)


async def _rekeyed(world: World) -> None:
    """Change the order key while a message is handled for long; then kill the proxy."""
    staff = _Staff(world, sloppy=False, slow=frozenset({"slow"}))
    left = await world.start_proxy("left")
    staff.hire(left, 3)
    await _load(world, messages=30)
    world.send("slow")
    await asyncio.sleep(1)
    world.change(order_key="QID")
    await _load(world, messages=40)
    left.kill()
    right = await world.start_proxy("right")
    staff.hire(right, 3)
    await _load(world, messages=40)
    await asyncio.sleep(20)
    world.change(order_key="KEY", order_key_version=1)
    await _load(world, messages=40)
    await world.finished()


async def _outlived(world: World) -> None:
    """Fill the log with other messages while a key is paused, until retention runs; then kill its
    owner.
    """
    staff = _Staff(world, sloppy=False)
    left = await world.start_proxy("left")
    staff.hire(left, 3)
    await _load(world, messages=30)
    await left.act("pause", KEYS[0])
    await world.fill(messages=60)
    await asyncio.sleep(60)
    left.kill()
    right = await world.start_proxy("right")
    staff.hire(right, 3)
    await _load(world, messages=40)
    await asyncio.sleep(20)
    await _try_to(right, "resume", KEYS[0])
    await world.finished()


async def _limited(world: World) -> None:
    """Send more than the limit permits, while queues change owners."""
    staff = _Staff(world, sloppy=False, work_s=0.05)
    left = await world.start_proxy("left")
    staff.hire(left, 2)
    await _load(world, messages=60, every_s=0.01)
    right = await world.start_proxy("right")
    staff.hire(right, 2)
    await asyncio.sleep(6)
    third = await world.start_proxy("third")
    staff.hire(third, 2)
    await _load(world, messages=60, every_s=0.01)
    await asyncio.sleep(6)
    left.kill()
    await asyncio.sleep(20)
    await _load(world, messages=40, every_s=0.01)
    await world.finished()


async def _acting(world: World) -> None:
    """Use keys that are dropped, keys on which an action fails, and keys on which clients fail
    too.
    """
    staff = _Staff(world)
    left = await world.start_proxy("left")
    staff.hire(left, 3)
    world.send("dropped", "broken", "torn", "dropped", "broken", "torn")
    await _load(world, messages=60)
    right = await world.start_proxy("right")
    staff.hire(right, 3)
    world.send("dropped", "broken", "torn", "torn")
    await _load(world, messages=60)
    left.kill()
    world.send("dropped", "broken", "torn")
    await _load(world, messages=60, every_s=0.15)
    await world.finished()


async def _acted(world: World) -> None:
    """Hand a paused key over; retry the blocking message of another key, then skip it."""
    staff = _Staff(world, fails={"poison"}, sloppy=False)
    left = await world.start_proxy("left")
    staff.hire(left, 3)
    world.send("poison", "poison")
    await _load(world, messages=30)
    await left.act("pause", KEYS[0])
    await _load(world, messages=60)
    left.kill()
    right = await world.start_proxy("right")
    staff.hire(right, 3)
    await _load(world, messages=60, every_s=0.3)
    await right.act("resume", KEYS[0])
    await _try_to(right, "retry", "poison", anew=True)
    await _load(world, messages=20)
    for _ in range(2):
        await _try_to(right, "skip", "poison")
    await world.finished()


async def _moved(world: World) -> None:
    """Skip the content of a queue with a parked and a paused key, and go back in the other queue,
    with one request that comes too late. Then cut the owner of both off, and move a queue before
    it has another owner.
    """
    staff = _Staff(world, fails={"poison"}, sloppy=False)
    left = await world.start_proxy("left")
    staff.hire(left, 3)
    here = world.queue_of("poison")
    (there,) = set(QUEUES) - {here}
    paused = next(key for key in KEYS if world.queue_of(key) == here)
    world.send("poison", "poison")
    await _load(world, messages=60)
    await _until_parked(left, 2)
    await left.act("pause", paused)
    await _load(world, messages=40)
    await left.move(here, to=await left.base(here) + 5, expect=await left.base(here))
    seen = await left.base(there)
    await _load(world, messages=20)
    await left.move(there, to=seen // 2, expect=seen)
    await _load(world, messages=20)
    await left.move(there, to=seen // 2, expect=await left.base(there))
    await _load(world, messages=40)
    right = await world.start_proxy("right")
    left.cut(off=True)
    for _ in range(100):
        world.send("poison", *KEYS)
        if await right.move(there, to=seen // 2, expect=await right.base(there)):
            break
        await asyncio.sleep(0.3)
    left.cut(off=False)
    await _load(world, messages=40)
    left.kill()
    staff.hire(right, 3)
    await _load(world, messages=40)
    await _try_to(right, "resume", paused)
    await world.finished()


async def _try_to(proxy: RunningProxy, verb: str, key: str, **more: Any) -> None:
    """Repeat until it succeeds; a bug may prevent it forever."""
    for _ in range(300):
        if await proxy.act(verb, key, **more):
            return
        await asyncio.sleep(0.1)


async def _until_parked(proxy: RunningProxy, copies: int, *, within_s: int = 60) -> None:
    """Wait for that number of parked copies; a bug may prevent it."""
    for _ in range(within_s * 5):
        if await proxy.parked() == copies:
            return
        await asyncio.sleep(0.2)


everyday = Scenario("everyday", _everyday)
"""A second proxy joins, the first is killed, a third takes its place; one key always fails."""
short = Scenario("short", _short)
"""One proxy, few messages, and clients with some work to do."""
handed_over = Scenario("handed over", _handed_over)
"""A second proxy joins while nothing is slow."""
cut_off = Scenario("cut off", _cut_off)
"""A proxy loses its broker for a while; its clients stay with it."""
stuck = Scenario("stuck", _stuck)
"""One message is handled for most of a minute."""
burst = Scenario("burst", _burst, {"max_jobs_in_memory": 40})
"""More messages at once than the window holds."""
crowded = Scenario("crowded", _crowded, {"max_jobs_in_memory": 16, "max_jobs_per_key_in_memory": 4})
"""Many stuck keys, with more messages behind them than the window holds."""
parked = Scenario("parked", _parked, {"on_exhausted": "park", "max_deliveries": 2})
"""A key fails and is parked, moves to another proxy, and is redriven there once it is fixed."""
acted = Scenario("acted", _acted, {"on_exhausted": "block", "retry_intervals_ms": (2000,)})
"""An operator pauses, resumes, retries and skips."""
moved = Scenario("moved", _moved, {"on_exhausted": "park", "max_deliveries": 2})
"""An operator moves the group in its queues."""
crashed = Scenario("crashed", _crashed)
"""One owner after the other is killed."""
crashed_brokers = Scenario("crashed brokers", partial(_crashed, with_broker=True))
"""The same, each time with a restart of the broker: owners wait for the leases before them."""
shortened = Scenario("shortened", _shortened, {"visibility_timeout_s": 30.0})
"""Owners are killed after the leases were made shorter."""
recreated = Scenario("recreated", _recreated)
"""The topic has a second life."""
rekeyed = Scenario("rekeyed", _rekeyed)
"""Another order key, and back again."""
outlived = Scenario(
    "outlived",
    _outlived,
    broker={
        "segment_bytes": 256 * 1024,
        "max_message_bytes": 128 * 1024,
        "retention_bytes": 512 * 1024,
    },
)
"""Retention deletes the messages that a queue's records refer to."""
limited = Scenario("limited", _limited, {"max_rate": 6})
"""A rate limit delays a load, while proxies join and one is killed."""

acting = Scenario(
    "acting",
    _acting,
    {
        "actions": [
            {"filter": {"where": "key != 'dropped' && (key != 'broken' || key)"}},
            {"transform": {"to": "key != 'torn' && text || `null`"}},
        ]
    },
)
"""Actions drop a key, and fail on two others; a proxy is killed meanwhile."""

SCENARIOS = (
    everyday,
    short,
    handed_over,
    cut_off,
    stuck,
    burst,
    crowded,
    parked,
    limited,
    acting,
    acted,
    moved,
    crashed,
    crashed_brokers,
    shortened,
    recreated,
    rekeyed,
    outlived,
)
