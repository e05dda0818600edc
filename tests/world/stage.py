"""A small world that a test starts, drives step by step, and has judged."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from testkit.explorer.player import judge
from testkit.simulation.clients import ConsumerNode, Flow, Habits, ProducerNode
from testkit.simulation.history import Event
from testkit.simulation.world import ProxyNode, World, simulate


class Stage:
    """The nodes of the world; ``events`` is its history."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.habits = Habits()
        self._tasks: list[asyncio.Task[None]] = []

    def background(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine beside the test; it ends with the world."""
        self._tasks.append(asyncio.get_running_loop().create_task(coroutine))

    def end(self) -> None:
        """End what runs in the background."""
        for task in self._tasks:
            task.cancel()

    async def start(
        self,
        *,
        groups: list[dict[str, Any]],
        topics: Mapping[str, int],
        brokers: Mapping[str, Mapping[str, Any]] | None = None,
        proxies: int = 1,
        **proxy_settings: Any,
    ) -> None:
        """Start brokers (settings by name), *topics* (queues by name), proxies and a producer."""
        world = self.world
        world.configure_proxies(
            {name.replace("__", "."): each for name, each in proxy_settings.items()}
        )
        world.write_settings(groups)
        await world.start(brokers or {"broker-a": {}})
        for topic, queues in topics.items():
            await world.make_topic(topic, queues)
        for number in range(proxies):
            await world.add(ProxyNode, f"proxy-{number}").start()
        self.producer = world.add(ProducerNode, "producer")
        self.producer.begin([proxy.thrift for proxy in world.proxies])

    @property
    def events(self) -> list[Event]:
        return self.world.events

    def of(self, name: str, **fields: Any) -> list[Event]:
        """Return the events of that name with these *fields*."""
        return [
            each
            for each in self.events
            if each["e"] == name and all(each.get(k) == v for k, v in fields.items())
        ]

    def consume(
        self,
        name: str,
        group: str,
        topics: Sequence[str] | None = None,
        *,
        proxy: int = 0,
        concurrency: int = 4,
    ) -> ConsumerNode:
        """Start a consumer."""
        node = self.world.nodes.get(name)
        if node is None:
            node = self.world.add(ConsumerNode, name)
        assert isinstance(node, ConsumerNode)
        node.begin(
            [self.world.proxies[proxy].thrift],
            group=group,
            topics=topics,
            habits=self.habits,
            concurrency=concurrency,
        )
        return node

    async def send(
        self, topic: str, keys: Sequence[str | None], count: int, *, body_bytes: int = 60
    ) -> None:
        """Send messages to *topic*, one after the other, each of one of *keys*."""
        await self.producer.send(Flow(topic, tuple(keys), 0.01, count, body_bytes=body_bytes))

    async def act(self, path: str, *, proxy: int = 0, **body: Any) -> Any:
        """Send an operation to a proxy; return its answer."""
        status, answer = await self.world.http(
            self.world.proxies[proxy], path, {"reason": "a test", **body}, timeout_s=30
        )
        assert status == 200, (path, status, answer)
        return answer

    async def until(self, true: Callable[[], Any], *, within_s: float = 60) -> None:
        """Wait until *true* holds."""
        async with asyncio.timeout(within_s):
            while not true():  # noqa: ASYNC110  # virtual time costs nothing
                await asyncio.sleep(0.1)


def play(main: Callable[[Stage], Coroutine[Any, Any, None]], *, seed: int = 1) -> dict[str, str]:
    """Run *main* in a world of its own; return the history checker's findings, by id."""
    stages: list[Stage] = []

    async def run(world: World) -> None:
        stages.append(Stage(world))
        await main(stages[0])
        stages[0].end()

    simulate(run, seed=seed)
    return judge(stages[0].events)
