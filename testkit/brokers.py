"""Brokers of either kind for the same test: the embedded one, or Apache RocketMQ's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testkit.broker_process import AnyCluster, run_broker
from testkit.rocketmq import OfficialCluster, official_cluster

EMBEDDED = "embedded"
#: The embedded broker's default, so that one set of proxy settings fits both.
LOCK_EXPIRY_S = 10.0


class Running(AnyCluster):
    """A shared official cluster; each test has topics and groups of its own."""

    def __init__(self, official: OfficialCluster) -> None:
        super().__init__(official.nameserver)
        self._official = official

    async def start_broker(self) -> None:
        await asyncio.to_thread(self._official.start_broker)

    async def stop_broker(self, *, crash: bool = False) -> None:
        await asyncio.to_thread(self._official.stop_broker, crash=crash)


@dataclass(frozen=True, slots=True)
class Brokers:
    """The kind of broker that a test runs on."""

    official: OfficialCluster | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of embedded brokers, over the defaults of tests."""

    @asynccontextmanager
    async def run(self, folder: Path) -> AsyncIterator[AnyCluster]:
        """Run an embedded cluster in *folder*, or use the official one that all tests share.

        The test must leave the broker running (``stop_broker`` is followed by ``start_broker``).
        """
        if self.official is None:
            async with run_broker(folder, **self.settings) as embedded:
                yield embedded
            return
        cluster = Running(self.official)
        try:
            yield cluster
        finally:
            await cluster.close()


EMBEDDED_ONES = Brokers()


@contextmanager
def brokers_of(kind: str, folder: Path) -> Iterator[Brokers]:
    """Provide brokers of *kind*:

    EMBEDDED, or a version of Apache RocketMQ, which then runs in *folder*.
    """
    if kind == EMBEDDED:
        yield EMBEDDED_ONES
        return
    # As where operators create topics by hand; the proxy creates its own topics itself.
    by_hand = {"autoCreateTopicEnable": "false"}
    with official_cluster(folder, kind, lock_expiry_s=LOCK_EXPIRY_S, **by_hand) as official:
        yield Brokers(official)
