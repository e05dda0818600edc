"""The nemesis applies faults of different lanes to the same processes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from proxy.history.record import History
from tests.chaos.nemesis import Nemesis
from tests.chaos.schedule import TIMES, Fault, plan
from tests.chaos.site import Site


@dataclass
class Machine:
    """A broker and two proxies that note when they are killed and started."""

    events: list[str] = field(default_factory=list)
    proxies: list[Any] = field(default_factory=list)
    dead: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.proxies = [self._proxy(number) for number in range(2)]
        self.broker = SimpleNamespace(
            stop_broker=lambda *, crash: self._kill("broker"), start_broker=self._start_broker
        )

    def _proxy(self, number: int) -> Any:
        return SimpleNamespace(kill=lambda: self._kill(f"proxy {number}"))

    def _kill(self, name: str) -> None:
        assert name not in self.dead, f"{name} is killed while it is dead"
        self.dead.add(name)
        self.events.append(f"kill {name}")

    def _start_broker(self) -> None:
        self.dead.discard("broker")
        self.events.append("start broker")

    def start_proxy(self, number: int) -> Any:
        assert f"proxy {number}" in self.dead, f"proxy {number} is started while it runs"
        self.dead.discard(f"proxy {number}")
        self.events.append(f"start proxy {number}")
        return self._proxy(number)

    def proxy_node(self, number: int) -> str:
        return f"proxy-{number}"


class Written:
    """A history that keeps its events."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def write(self, _: str, **about: Any) -> None:
        self.events.append(about)


def fault(kind: str, target: int, at_s: float, for_s: float) -> Fault:
    return Fault(at_s=at_s, kind=kind, target=target, for_s=for_s)


def nemesis(machine: Machine, written: Written) -> Nemesis:
    return Nemesis(cast(Site, machine), cast(History, written))


async def test_broker_and_proxy_are_down_together_and_run_again_afterwards() -> None:
    machine, written = Machine(), Written()
    await nemesis(machine, written).run([fault("broker-and-proxy.kill", 1, 1.0, 2.0)])

    assert sorted(machine.events[:2]) == ["kill broker", "kill proxy 1"]
    assert sorted(machine.events[2:]) == ["start broker", "start proxy 1"]
    assert [each["phase"] for each in written.events] == ["begin", "end"]
    assert written.events[0]["node_of_target"] == "proxy-1"


async def test_a_proxy_is_not_killed_again_while_it_is_down_with_its_broker() -> None:
    machine, written = Machine(), Written()
    both = [fault("broker-and-proxy.kill", 0, at_s, 3.0) for at_s in (1.0, 6.0)]
    others = [fault("proxy.kill", 0, at_s, 2.0) for at_s in (0.5, 2.0, 5.0, 7.0)]
    faults = sorted([*both, *others], key=lambda each: each.at_s)
    running = nemesis(machine, written)
    await running.run(faults)

    assert not machine.dead
    assert running.done["broker-and-proxy.kill"] == 2
    assert running.done["proxy.kill"] >= 2
    phases = [each["phase"] for each in written.events]
    assert phases == ["begin", "end"] * running.done.total()


async def test_the_broker_is_killed_alone_while_a_proxy_is_down() -> None:
    machine, written = Machine(), Written()
    faults = [fault("proxy.kill", 0, 1.0, 4.0), fault("broker.kill", 0, 2.0, 1.0)]
    await asyncio.wait_for(nemesis(machine, written).run(faults), 60)

    assert machine.events == ["kill proxy 0", "kill broker", "start broker", "start proxy 0"]


def test_every_proxy_is_killed_together_with_the_broker_at_some_time() -> None:
    faults = plan(1, seconds=2_000, times=TIMES["default"], proxies=3, clients=4)
    both = [each.target for each in faults if each.kind == "broker-and-proxy.kill"]
    assert set(both) == {0, 1, 2}
