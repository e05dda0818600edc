"""Does what a schedule says to the processes and links of a site, and writes down what it did."""

from __future__ import annotations

import asyncio
import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from broker_core.tasks import spawn
from proxy.history.record import History
from tests.chaos.links import Link
from tests.chaos.schedule import LANES, Fault
from tests.chaos.site import Site
from tests.support.processes import Child

#: A drain of a proxy waits up to 30 s for what is leased.
_ENDS_WITHIN_S = 90


def ended_badly(child: Child) -> str | None:
    """SIGTERM, and what was wrong with its end; afterwards it has ended. Blocks."""
    try:
        code = child.terminate(within_s=_ENDS_WITHIN_S)
    except subprocess.TimeoutExpired:
        child.kill()
        return f"it did not end within {_ENDS_WITHIN_S} s"
    return f"it ended with {code}: {child.err[-1000:].strip()}" if code else None


@dataclass(slots=True)
class Nemesis:
    """One run of a schedule."""

    site: Site
    history: History
    done: Counter[str] = field(default_factory=Counter)
    """How often each kind was injected, and undone again."""
    problems: list[str] = field(default_factory=list)
    """Processes that did not end as they should when they were told to."""

    async def run(self, faults: Sequence[Fault]) -> None:
        """All *faults*; returns when the last is undone."""
        lanes = [
            spawn(self._lane([each for each in faults if each.role in roles]), name=roles[0])
            for roles in LANES
        ]
        await asyncio.gather(*lanes)

    async def _lane(self, faults: Sequence[Fault]) -> None:
        """One after the other, with the pauses of the plan between: a broker may take long to start
        and to stop, and has to work a while before the next fault.
        """
        planned_s = 0.0
        for fault in faults:
            await asyncio.sleep(max(0.0, fault.at_s - planned_s))
            planned_s = fault.at_s + fault.for_s
            self._write(fault, "begin")
            await self._inject(fault)
            self._write(fault, "end")
            self.done[fault.kind] += 1

    def _write(self, fault: Fault, phase: str) -> None:
        target = "broker" if fault.role == "broker" else f"{fault.role} {fault.target}"
        if fault.role == "client-link":
            target += " to all proxies" if fault.proxy < 0 else f" to proxy {fault.proxy}"
        about = {"what": fault.kind, "target": target, "phase": phase}
        if fault.role in ("proxy", "broker-link"):
            about["node_of_target"] = self.site.proxy_node(fault.target)
        self.history.write("nemesis", **about)

    async def _inject(self, fault: Fault) -> None:
        match fault.role:
            case "broker-link" | "client-link":
                await self._cut(self._links(fault), fault)
            case "broker":
                await self._attack_broker(fault)
            case "proxy":
                await self._attack(self.site.proxies, fault)
            case "client":
                await self._attack(self.site.clients, fault)

    # ---- links ----------------------------------------------------------------------------------

    def _links(self, fault: Fault) -> list[Link]:
        links = self.site.links
        if fault.role == "broker-link":
            ends = ("broker", "nameserver")
            return [links[f"proxy {fault.target} to {end}"] for end in ends]
        proxies = range(self.site.shape.proxies) if fault.proxy < 0 else (fault.proxy,)
        return [links[f"client {fault.target} to proxy {proxy}"] for proxy in proxies]

    async def _cut(self, links: Sequence[Link], fault: Fault) -> None:
        delay_s = 0.6 * self.site.shape.times.request_s if fault.action == "delay" else 0.0
        for link in links:
            await link.begin(fault.action, delay_s=delay_s)
        try:
            await asyncio.sleep(fault.for_s)
        finally:
            for link in links:
                link.heal()

    # ---- processes ------------------------------------------------------------------------------

    async def _attack(self, processes: list[Child], fault: Fault) -> None:
        child = processes[fault.target]
        if fault.action in ("stop", "sleep"):
            child.pause()
            await asyncio.sleep(fault.for_s)
            child.resume()
            return
        if fault.action == "kill":
            await asyncio.to_thread(child.kill)
        elif problem := await asyncio.to_thread(ended_badly, child):
            self.problems.append(f"{fault.kind} of {fault.role} {fault.target}: {problem}")
        await asyncio.sleep(fault.for_s)
        start = self.site.start_proxy if fault.role == "proxy" else self.site.start_client
        processes[fault.target] = await asyncio.to_thread(start, fault.target)

    async def _attack_broker(self, fault: Fault) -> None:
        site = self.site
        if fault.action == "stop":
            site.pause_broker()
            await asyncio.sleep(fault.for_s)
            site.resume_broker()
            return
        if fault.action == "kill" or site.official is not None:
            await asyncio.to_thread(site.stop_broker, crash=fault.action == "kill")
        elif problem := await asyncio.to_thread(ended_badly, site.embedded):
            self.problems.append(f"{fault.kind}: {problem}")
        await asyncio.sleep(fault.for_s)
        await asyncio.to_thread(site.start_broker)
