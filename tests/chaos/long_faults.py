"""Faults of a long run besides killing, stopping and cutting: for several proxies, the broker's
disk and slave, clocks, and the load.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from proxy.history.record import History
from testkit.processes import Child
from tests.chaos.brokers import SLAVE, OfficialBroker, ended_badly
from tests.chaos.schedule import Fault
from tests.chaos.site import Site
from tests.chaos.workload import plain_keys

#: Jumps of a wall clock in seconds, forwards or back.
_JUMPS_S = (0.7, 3.0, 8.0, 45.0, 600.0, 7200.0)
#: The same for an Apache broker, whose locks use the wall clock: less than the locks outlive a
#: proxy's trust in them.
_BORNE_JUMPS_S = (0.7, 3.0)
#: Shorter than leases, otherwise gathered handlers only lose them.
_GATHERED = 0.6


@dataclass(slots=True)
class LongFaults:
    """Performs one fault after the other; each returns problems with our own processes."""

    site: Site
    history: History
    _problems: list[str] = field(default_factory=list)

    async def do(self, fault: Fault) -> list[str]:
        """Start the fault, wait, and undo it."""
        acts = {
            "proxies.roll": self._roll,
            "proxies.scale": self._scale,
            "broker.full": self._fill,
            "broker.torn": self._tear,
            "load.storm": self._storm,
        }
        act = (
            acts.get(fault.kind)
            or {
                "replica": self._replica,
                "clock": self._jump,
                "load": self._load,
            }[fault.role]
        )
        await act(fault)
        return self._problems

    def _chooser(self, fault: Fault) -> random.Random:
        return random.Random(f"{self.site.shape.seed} {fault.kind} {fault.at_s}")

    async def _end(self, child: Child, name: str) -> None:
        if problem := await asyncio.to_thread(ended_badly, child):
            self._problems.append(f"{name}: {problem}")

    # ---- proxies --------------------------------------------------------------------------------

    async def _roll(self, fault: Fault) -> None:
        """Restart every proxy by SIGTERM, one after the other."""
        site = self.site
        for number in range(site.shape.proxies):
            about = {
                "what": "proxies.roll",
                "target": f"proxy {number}",
                "node_of_target": site.proxy_node(number),
            }
            self.history.write("nemesis", **about, phase="begin")
            await self._end(site.proxies[number], f"{fault.kind} of proxy {number}")
            site.proxies[number] = await asyncio.to_thread(site.start_proxy, number)
            self.history.write("nemesis", **about, phase="end")
            await asyncio.sleep(fault.for_s)

    async def _scale(self, fault: Fault) -> None:
        """Add proxies with clients, then remove them, each proxy before its clients."""
        site, here = self.site, self.site.shape.proxies
        more: list[list[Child]] = []
        for number in range(here, site.shape.most_proxies):
            more.append(await asyncio.to_thread(site.start_spare, number))
            await asyncio.sleep(fault.for_s / 2)
        await asyncio.sleep(fault.for_s)
        for number, clients in reversed(list(enumerate(more, start=here))):
            await self._end(site.proxies[number], f"{fault.kind} of proxy {number}")
            site.spare_ended(number)
            ends = (self._end(each, f"{fault.kind} of a client") for each in clients)
            await asyncio.gather(*ends)

    # ---- the broker -----------------------------------------------------------------------------

    async def _fill(self, fault: Fault) -> None:
        broker = self.site.embedded
        await asyncio.to_thread(broker.fill_disk)
        try:
            await asyncio.sleep(fault.for_s)
        finally:
            broker.free_disk()

    async def _tear(self, fault: Fault) -> None:
        broker = self.site.embedded
        await asyncio.to_thread(broker.stop_broker, crash=True)
        await asyncio.to_thread(broker.tear, f"{self.site.shape.seed} {fault.at_s}")
        await asyncio.sleep(fault.for_s)
        await asyncio.to_thread(broker.start_broker)

    async def _replica(self, fault: Fault) -> None:
        broker = self.site.broker
        assert isinstance(broker, OfficialBroker)
        cluster = broker.cluster
        match fault.action:
            case "kill":
                await asyncio.to_thread(cluster.stop_broker, crash=True, name=SLAVE)
                await asyncio.sleep(fault.for_s)
                await asyncio.to_thread(cluster.start_slave)
            case "stop":
                cluster.pause_broker(SLAVE)
                await asyncio.sleep(fault.for_s)
                cluster.resume_broker(SLAVE)
            case _:
                async with self._cut("broker", SLAVE):
                    await asyncio.sleep(fault.for_s)

    @asynccontextmanager
    async def _cut(self, near: str, far: str) -> AsyncIterator[None]:
        link = await self.site.network.link(near, far, lambda: None)
        await link.begin("hold")
        try:
            yield
        finally:
            await link.heal()

    # ---- clocks ---------------------------------------------------------------------------------

    async def _jump(self, fault: Fault) -> None:
        """Jump, and jump back."""
        site, chooser = self.site, self._chooser(fault)
        assert site.clocks is not None
        host = {
            "broker": "broker",
            "proxy": f"proxy {fault.target}",
            "client": f"client {chooser.randrange(len(site.shape.clients))}",
        }[fault.action]
        apaches = host == "broker" and isinstance(site.broker, OfficialBroker)
        jumps_s = _BORNE_JUMPS_S if apaches else _JUMPS_S
        site.clocks.move(host, chooser.choice(jumps_s) * chooser.choice((1, -1)))
        try:
            await asyncio.sleep(fault.for_s)
        finally:
            site.clocks.move(host, 0)

    # ---- the load -------------------------------------------------------------------------------

    async def _load(self, fault: Fault) -> None:
        orders, chooser = self.site.orders, self._chooser(fault)
        key = chooser.choice(plain_keys(self.site.shape.keys))
        client = chooser.choice(self.site.slowable)

        def switch(*, on: bool) -> None:
            match fault.action:
                case "hot":
                    orders.heat(on=on)
                case "poison":
                    orders.poison(key, on=on)
                case _:
                    orders.slow(client, on=on)

        switch(on=True)
        try:
            await asyncio.sleep(fault.for_s)
        finally:
            switch(on=False)

    async def _storm(self, fault: Fault) -> None:
        """Ack many leases at once and repeatedly, and leases that never existed."""
        site, lease_s = self.site, self.site.shape.times.lease_s
        storm = await asyncio.to_thread(site.start_storm)
        try:
            site.orders.gather(on=True)
            await asyncio.sleep(min(fault.for_s, _GATHERED * lease_s))
            site.orders.gather(on=False)
            await asyncio.sleep(fault.for_s)
        finally:
            site.orders.gather(on=False)
            await self._end(storm, fault.kind)
