"""A broker that deletes messages on request, and its proxy: real losses by retention."""

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

#: Three of these fill a log file; retention keeps two or three files.
_BODY = b"x" * 60_000
_SMALL = {"segment_bytes": 200_000, "max_message_bytes": 100_000, "retention_bytes": 400_000}
_LIMIT_S = 60.0


class ShortMemory(SparkGateway):
    """Gateway whose broker runs in a thread of this process, so that a test can control it."""

    def __init__(self, children: Children, folder: Path) -> None:
        SparkGateway.__init__(self, children)
        self._folder = folder
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="short memory")
        self._stack = AsyncExitStack()
        self._cluster: Cluster

    def start(self) -> None:
        """Start broker, nameserver and proxy."""
        self._thread.start()
        running = run_broker(self._folder, **_SMALL)
        self._cluster = self._do(self._stack.enter_async_context(running))
        self.nameserver = self._cluster.nameserver
        _, ready = self.start_proxy()
        self.servers = ready["thrift"]

    def fill(self, topic: str, count: int) -> None:
        """Send *count* messages one by one, more than retention keeps."""
        for _ in range(count):
            self.send(topic, [_BODY])

    def forget(self) -> None:
        """Delete expired messages now."""
        self._do(self._cluster.broker.components.retention.run())

    def close(self) -> None:
        """Stop broker, nameserver and thread."""
        self._do(self._stack.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=_LIMIT_S)
        self._loop.close()

    def _do(self, what: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(timeout=_LIMIT_S)


@contextmanager
def short_memory(folder: Path) -> Iterator[ShortMemory]:
    """Run it while the context lasts."""
    with Children(folder) as children:
        site = ShortMemory(children, folder)
        try:
            site.start()
            yield site
        finally:
            site.close()
