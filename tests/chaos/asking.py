"""Queries proxies as an operator does, over HTTP; proxies may be unavailable."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import orjson

from proxy.cli.connect import ask_proxy
from proxy.errors import OrderlaneError


@dataclass(slots=True)
class Asking:
    """One operator's requests. *visit* enters the network of a proxy's operator address."""

    visit: Callable[[str], AbstractContextManager[None]]

    timeout_s: float = 2.0
    """A stopped proxy does not answer; the next one should be queried soon."""
    done: Counter[str] = field(default_factory=Counter)
    """Changes that were confirmed, by verb."""
    _threads: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(8, thread_name_prefix="operator")
    )

    def wait_for(self, timeout_s: float) -> None:
        """Treat a proxy as away after *timeout_s* without an answer."""
        self.timeout_s = timeout_s

    def close(self) -> None:
        """Stop sending requests."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def look(self, http: str, path: str) -> Any:
        """Return the proxy's answer; None if it is unavailable."""
        return await self._ask(http, path, None, self.timeout_s)

    async def act(
        self, http: str, path: str, *, timeout_s: float | None = None, **asked: Any
    ) -> Any:
        """Perform the operation at the end of *path*; return its answer, None if unconfirmed."""
        body = orjson.dumps({"by": "chaos", "reason": "no reason", **asked})
        answer = await self._ask(http, path, body, timeout_s or self.timeout_s)
        if answer is not None:
            self.done[path.rpartition("/")[2]] += 1
        return answer

    async def _ask(self, http: str, path: str, body: bytes | None, timeout_s: float) -> Any:
        def ask() -> bytes:
            with self.visit(http):
                return ask_proxy(http, path, body=body, timeout_s=timeout_s)

        try:
            answer = await asyncio.get_running_loop().run_in_executor(self._threads, ask)
        except (OrderlaneError, OSError):
            return None  # the proxy is unavailable, or not the owner
        return orjson.loads(answer)
