"""Applies a schedule to the processes and links of a site, and records its actions.

Faults of long runs are in ``tests/chaos/long_faults.py``. A fault of broker and proxy, and other
faults of proxies, wait for each other.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field

from broker_core.tasks import spawn
from proxy.history.record import History
from testkit.processes import Child
from tests.chaos.brokers import ended_badly
from tests.chaos.long_faults import LongFaults
from tests.chaos.network import Cuttable
from tests.chaos.schedule import LANES, Fault
from tests.chaos.site import Site

#: Roles of faults that stop or start proxies.
_OF_PROXIES = frozenset({"proxy", "proxies", "broker-and-proxy"})


@dataclass(slots=True)
class Nemesis:
    """One run of a schedule."""

    site: Site
    history: History
    done: Counter[str] = field(default_factory=Counter)
    """Number of faults of each kind, injected and undone."""
    problems: list[str] = field(default_factory=list)
    """Processes that did not end properly when stopped."""
    _proxies: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by a fault of proxies: the lane of the broker has one as well."""

    async def run(self, faults: Sequence[Fault]) -> None:
        """Apply all *faults*, first the single ones; returns when the last is undone.

        On a slow machine each takes longer than planned: after the planned time only kinds not yet
        applied remain.
        """
        clock = asyncio.get_running_loop().time
        began_s, ends_s = clock(), max(fault.at_s + fault.for_s for fault in faults)
        alone = [fault for fault in faults if fault.alone]
        rest = [fault for fault in faults if not fault.alone]
        begin_s = max((fault.at_s + fault.for_s for fault in alone), default=0.0)
        await self._lane(alone, 0.0, lambda: clock() - began_s > begin_s)
        lanes = [
            spawn(
                self._lane(
                    [each for each in rest if each.role in roles],
                    begin_s,
                    lambda: clock() - began_s > ends_s,
                ),
                name=roles[0],
            )
            for roles in LANES
        ]
        await asyncio.gather(*lanes)

    async def _lane(
        self, faults: Sequence[Fault], planned_s: float, late: Callable[[], bool]
    ) -> None:
        """Apply them one after the other, with the planned pauses: a broker may start and stop
        slowly, and must work for a while before the next fault.
        """
        for fault in faults:
            pause_s, planned_s = fault.at_s - planned_s, fault.at_s + fault.for_s
            if late() and (fault.alone or self.done[fault.kind]):
                continue
            await asyncio.sleep(max(0.0, pause_s))
            async with self._alone_with_proxies(fault):
                self._write(fault, "begin")
                await self._inject(fault)
                self._write(fault, "end")
            self.done[fault.kind] += 1

    def _alone_with_proxies(self, fault: Fault) -> AbstractAsyncContextManager[object]:
        return self._proxies if fault.role in _OF_PROXIES else nullcontext()

    def _write(self, fault: Fault, phase: str) -> None:
        target = "broker" if fault.role == "broker" else f"{fault.role} {fault.target}"
        if fault.role == "client-link":
            target += " to all proxies" if fault.proxy < 0 else f" to proxy {fault.proxy}"
        about = {"what": fault.kind, "target": target, "phase": phase}
        if fault.role in ("proxy", "broker-link", "broker-and-proxy"):
            about["node_of_target"] = self.site.proxy_node(fault.target)
        self.history.write("nemesis", **about)

    async def _inject(self, fault: Fault) -> None:
        match fault.role:
            case "broker-link" | "client-link":
                await self._cut(self._links(fault), fault)
            case "broker" if fault.action in ("kill", "stop", "restart"):
                await self._attack_broker(fault)
            case "broker-and-proxy":
                await self._kill_both(fault)
            case "proxy":
                await self._attack(self.site.proxies, fault)
            case "client":
                await self._attack(self.site.clients, fault)
            case _:
                self.problems += await LongFaults(self.site, self.history).do(fault)

    # ---- links ----------------------------------------------------------------------------------

    def _links(self, fault: Fault) -> list[Cuttable]:
        links = self.site.links
        if fault.role == "broker-link":
            ends = ("broker", "nameserver")
            return [links[f"proxy {fault.target} to {end}"] for end in ends]
        proxies = range(self.site.shape.most_proxies) if fault.proxy < 0 else (fault.proxy,)
        return [links[f"client {fault.target} to proxy {proxy}"] for proxy in proxies]

    async def _cut(self, links: Sequence[Cuttable], fault: Fault) -> None:
        delay_s = 0.6 * self.site.shape.times.request_s if fault.action == "delay" else 0.0
        for link in links:
            await link.begin(fault.action, delay_s=delay_s)
        try:
            await asyncio.sleep(fault.for_s)
        finally:
            for link in links:
                await link.heal()

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

    async def _kill_both(self, fault: Fault) -> None:
        """Kill broker and proxy at the same time, and start them again."""
        site = self.site
        _, problem = await asyncio.gather(
            asyncio.to_thread(site.proxies[fault.target].kill),
            asyncio.to_thread(site.broker.stop_broker, crash=True),
        )
        if problem:
            self.problems.append(f"{fault.kind}: {problem}")
        await asyncio.sleep(fault.for_s)
        _, proxy = await asyncio.gather(
            asyncio.to_thread(site.broker.start_broker),
            asyncio.to_thread(site.start_proxy, fault.target),
        )
        site.proxies[fault.target] = proxy

    async def _attack_broker(self, fault: Fault) -> None:
        broker = self.site.broker
        if fault.action == "stop":
            broker.pause_broker()
            await asyncio.sleep(fault.for_s)
            broker.resume_broker()
            return
        crash = fault.action == "kill"
        if problem := await asyncio.to_thread(broker.stop_broker, crash=crash):
            self.problems.append(f"{fault.kind}: {problem}")
        await asyncio.sleep(fault.for_s)
        await asyncio.to_thread(broker.start_broker)
