"""A broker that loses its data and continues with an older copy, as ``orderlane store`` makes it.

The copy is made while the broker runs. After the restore each topic begins another life, which
continues the former one up to the end of the copy. Later messages are gone; no other one is
skipped. A copy that is older than the current life is not restored: the checker compares two lives
only.
"""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path

from broker_core.broker.restoring import restored_table
from broker_core.clock import wall_ms
from broker_core.errors import StoreError
from broker_core.names import Topic
from broker_core.store.backup import Manifest
from broker_core.store.exporting import export_store
from broker_core.store.importing import import_store
from testkit.explorer.topic_changes import Fault
from testkit.simulation.world import BrokerNode, World

_AGAIN_S = 1.0


class Restores:
    """Copies and restores data folders of brokers in *world*."""

    def __init__(
        self,
        world: World,
        topics: Iterable[str],
        *,
        fault: Fault,
        wait: Callable[[float], Awaitable[None]],
        start_again: Callable[[BrokerNode], Awaitable[None]],
    ) -> None:
        """Create the actor. *wait*: waits for a time, or until all is healed."""
        self._world = world
        self._topics = list(topics)
        self._fault = fault
        self._wait = wait
        self._start_again = start_again
        self._copies = 0
        self._restored: Counter[str] = Counter()  # times, by node

    async def act(self, node: str, after_s: float, for_s: float) -> bool:
        """Copy the data of the broker *node*; *after_s* later kill it and lose the original. It
        starts with the copy *for_s* later.
        """
        broker = self._world.nodes[node]
        assert isinstance(broker, BrokerNode)
        if not broker.lives_now:
            return False
        self._copies += 1
        copy = self._world.disk.folder / f"copy-{self._copies}"
        manifest = export_store(broker.folder / "data", copy, version="explored")
        life = self._restored[node]
        await self._wait(after_s)
        if self._restored[node] != life:
            return False
        broker.kill()

        async def restore() -> None:
            while (  # noqa: ASYNC110  # virtual time costs nothing
                self._restored[node] == life and not self._replace(node, broker, copy, manifest)
            ):
                await asyncio.sleep(_AGAIN_S)  # the disk is full
            await self._start_again(broker)

        await self._fault("restore", node, for_s, restore)
        return True

    def _replace(self, node: str, broker: BrokerNode, copy: Path, manifest: Manifest) -> bool:
        broker.kill()  # a later action may have started it with the original
        data = broker.folder / "data"
        shutil.rmtree(data, ignore_errors=True)
        try:
            import_store(copy, data, restored=partial(restored_table, now_ms=wall_ms()))
        except (OSError, StoreError):
            return False
        self._restored[node] += 1
        self._world.disk.forget(broker.folder)
        for topic in self._topics:
            ends = manifest.queue_ends.get(Topic(topic), {})
            self._world.nemesis.write(
                "topic",
                topic=topic,
                what="restored",
                broker=broker.broker_name,
                ends={f"{broker.broker_name}_{queue}": end for queue, end in ends.items()},
            )
        return True
