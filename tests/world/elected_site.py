"""A world whose broker is three replicas that elect their master, and its rule about leases.

The checker judges the history: L1 finds two messages at one offset, D1 an acknowledged message that
was lost, W1 and W2 two owners of a queue. In addition at most one replica serves at any moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from broker_core.errors import RemotingError
from broker_core.names import Topic
from broker_core.remoting import headers
from broker_core.remoting.codes import RequestCode
from broker_core.store.log_scan import LogScan, LogView
from testkit.explorer.player import judge
from testkit.simulation.clients import Flow
from testkit.simulation.world import BROKER_PORT, BrokerNode, World, simulate
from tests.world.stage import Stage

GROUP = "billing"
IDS = (1, 2, 3)
KEYS = [f"k{n}" for n in range(12)]


class ElectedSite:
    """Nodes ``a-1`` to ``a-3``, one proxy or two, a producer and a consumer."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.stage = Stage(world)
        self.take_overs: list[float] = []
        self.most_serving = 0
        self._all_sent = True

    async def start(self, *, proxies: int = 1, queues: int = 4, **settings: Any) -> None:
        """Start everything, and wait until a replica serves. *settings*: of the brokers."""
        # The nameserver is node 1 of the world.
        voters = [f"{n}@127.0.0.{n + 2}:{BROKER_PORT}" for n in IDS]
        brokers = {
            f"a-{n}": {
                "broker_name": "broker-a",
                "role": "elected",
                "broker_id": n,
                "voters": tuple(voters),
                **settings,
            }
            for n in IDS
        }
        await self.stage.start(
            groups=[{"name": GROUP, "topics": [{"name": "orders"}]}],
            topics={},
            brokers=brokers,
            proxies=proxies,
        )
        self.stage.background(self._watch())
        await self.until_serving()
        header = headers.CreateTopicHeader(
            topic=Topic("orders"), read_queue_nums=queues, write_queue_nums=queues, perm=6
        )
        await self._admin(RequestCode.UPDATE_AND_CREATE_TOPIC, header.to_ext())
        self.stage.consume("consumer", GROUP)

    async def _admin(self, code: RequestCode, ext: dict[str, str]) -> None:
        while True:
            try:
                await self.world.ask_broker("broker-a", code, ext)
            except RemotingError:
                await asyncio.sleep(0.2)
            else:
                return

    async def _watch(self) -> None:
        while True:
            self.most_serving = max(self.most_serving, len(self.serving()))
            await asyncio.sleep(0.05)

    def serving(self) -> list[BrokerNode]:
        """Return the replicas that would serve a request now, paused or not."""
        return [
            each for each in self.world.brokers if each.replica is not None and each.replica.serves
        ]

    async def until_serving(self, *, besides: BrokerNode | None = None) -> BrokerNode:
        """Wait until a replica serves; return it."""
        await self.stage.until(lambda: any(each is not besides for each in self.serving()))
        return next(each for each in self.serving() if each is not besides)

    async def until_in_sync(self) -> None:
        """Wait until all three replicas are in sync."""

        def in_sync() -> bool:
            return any(
                each.replica is not None and each.replica.figures().get("inSyncReplicas") == "1,2,3"
                for each in self.serving()
            )

        await self.stage.until(in_sync, within_s=120)

    def send(self, count: int, *, every_s: float = 0.05) -> None:
        """Send in the background."""
        flow = Flow("orders", tuple(KEYS), every_s, count, body_bytes=60)
        self._all_sent = False

        async def send() -> None:
            await self.stage.producer.send(flow)
            self._all_sent = True

        self.stage.background(send())

    async def measured(self, fault: Callable[[BrokerNode], object]) -> BrokerNode:
        """Let *fault* happen to the master, and wait until its successor has acknowledged."""
        master = await self.until_serving()
        at = self.world.loop.time()
        fault(master)
        acked = self.stage.producer.acknowledged
        successor = await self.until_serving(besides=master)
        await self.stage.until(lambda: self.stage.producer.acknowledged > acked + 3)
        self.take_overs.append(self.world.loop.time() - at)
        return successor

    def cut_off(self, node: BrokerNode) -> None:
        """Cut *node* from the other replicas, but not from clients and the nameserver."""
        for other in self.world.brokers:
            if other is not node:
                self.world.loop.network.cut(node.name, other.name)
                self.world.loop.network.cut(other.name, node.name)

    def heal(self) -> None:
        """Heal all cuts between replicas."""
        for one in self.world.brokers:
            for other in self.world.brokers:
                self.world.loop.network.heal(one.name, other.name)

    def damage(self, node: BrokerNode, *, every: int) -> int:
        """Change a byte of each *every*th message of clients in the log of *node*: of its length,
        its magic, its offset or its body. Return the number of damaged messages.
        """
        log = LogView.of_files(node.folder / "data" / "commitlog")
        messages = [each for each in LogScan(log, start=0) if each.topic == "orders"][::every]
        for number, each in enumerate(messages):
            segment = log.segment_at(each.physical_offset)
            assert segment is not None
            at = each.physical_offset - segment.start
            part = number * 4 // len(messages)  # length, magic, offset, body
            self.world.disk.flip_at(segment.path, at + (1, 5, 27, each.size - 40)[part])
        log.close()
        return len(messages)

    async def delivered(self) -> None:
        """Wait until the flows have ended and all messages are delivered."""

        def sent() -> set[str]:
            return {each["msg"] for each in self.stage.of("send_ok")}

        def delivered() -> set[str]:
            return {each["msg"] for each in self.stage.of("deliver")}

        await self.stage.until(lambda: self._all_sent and sent() <= delivered(), within_s=300)

    async def settle(self) -> None:
        """Wait until the flows have ended and all messages are finished."""
        await self.until_in_sync()
        await self.delivered()
        await asyncio.sleep(20)


def played(
    main: Callable[[ElectedSite], Coroutine[Any, Any, None]], *, seed: int = 1
) -> ElectedSite:
    """Run *main* in a world of its own; fail on findings of the checker and on two masters."""
    sites: list[ElectedSite] = []

    async def run(world: World) -> None:
        site = ElectedSite(world)
        sites.append(site)
        await main(site)
        site.stage.end()

    simulate(run, seed=seed)
    (site,) = sites
    assert judge(site.stage.events) == {}
    assert site.most_serving == 1
    return site
