"""A broker that forgets when it is told to, and a proxy before it: what loses messages for real."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

from testkit.broker_process import Cluster, run_broker
from testkit.processes import Children
from testkit.spark_site import SparkGateway

#: Of these, three fill a file of the log; retention keeps two files, or three.
_BODY = b"x" * 60_000
_SMALL = {"segment_bytes": 200_000, "max_message_bytes": 100_000, "retention_bytes": 400_000}
_LIMIT_S = 60.0


class ShortMemory(SparkGateway):
    """Its broker is in this process, in a thread of its own, so that a test can reach into it."""

    def __init__(self, children: Children, folder: Path) -> None:
        SparkGateway.__init__(self, children)
        self._folder = folder
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="short memory")
        self._stack = AsyncExitStack()
        self._cluster: Cluster

    def start(self) -> None:
        """Broker, nameserver and proxy."""
        self._thread.start()
        running = run_broker(self._folder, **_SMALL)
        self._cluster = self._do(self._stack.enter_async_context(running))
        self.nameserver = self._cluster.nameserver
        _, ready = self.start_proxy()
        self.servers = ready["thrift"]

    def fill(self, topic: str, count: int) -> None:
        """Send so many messages, one by one, of which retention leaves a few."""
        for _ in range(count):
            self.send(topic, [_BODY])

    def forget(self) -> None:
        """Delete what retention would."""
        self._do(self._cluster.broker.components.retention.run())

    def close(self) -> None:
        """End broker, nameserver and thread."""
        self._do(self._stack.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=_LIMIT_S)
        self._loop.close()

    def _do(self, what: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(timeout=_LIMIT_S)


@contextmanager
def short_memory(folder: Path) -> Iterator[ShortMemory]:
    """It runs inside the context."""
    with Children(folder) as children:
        site = ShortMemory(children, folder)
        try:
            site.start()
            yield site
        finally:
            site.close()
