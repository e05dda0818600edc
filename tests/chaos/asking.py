"""Asks proxies as operators do, over HTTP, and bears that they are away."""

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
    """One operator's questions. *visit*, given a proxy's address for operators, goes there."""

    visit: Callable[[str], AbstractContextManager[None]]

    timeout_s: float = 2.0
    """A proxy that is stopped answers nothing; the next one is waiting to be asked."""
    done: Counter[str] = field(default_factory=Counter)
    """Changes that were confirmed, by verb."""
    _threads: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(8, thread_name_prefix="operator")
    )

    def close(self) -> None:
        """Ask no more."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def look(self, http: str, path: str) -> Any:
        """What the proxy says; None if it is away."""
        return await self._ask(http, path, None, self.timeout_s)

    async def act(
        self, http: str, path: str, *, timeout_s: float | None = None, **asked: Any
    ) -> Any:
        """Have it do what *path* ends with; its answer, None if it did not, or did not say so."""
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
            return None  # that proxy is away, or no owner (any more)
        return orjson.loads(answer)
