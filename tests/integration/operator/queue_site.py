"""A gateway with one proxy, operated by verbs of the command line."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson

from proxy.app import Proxy
from proxy.listening import Addresses
from testkit.gateway import HANDED_OVER, Gateway, run_gateway
from tests.support.verbs import orderlane
from thin_client import Message

WHY = ("--reason", "it is stuck")


class Desk:
    """A handler that records messages, and holds the keys in ``held`` until they are released."""

    def __init__(self, *held: str) -> None:
        self.held = {key: asyncio.Event() for key in held}
        self.seen: dict[str, list[int]] = defaultdict(list)

    async def __call__(self, message: Message) -> None:
        key, number = message.body.decode().split(":")
        self.seen[key].append(int(number))
        if key in self.held:
            await self.held[key].wait()

    def let_go(self) -> None:
        for event in self.held.values():
            event.set()


class Site:
    """A gateway with one proxy."""

    def __init__(self, gateway: Gateway, proxy: Proxy, at: Addresses) -> None:
        self.gateway, self.proxy, self.at = gateway, proxy, at

    async def start_another_proxy(self, **options: Any) -> None:
        """Close the proxy and start one with *options* in its place."""
        await self.gateway.close_proxy(self.proxy)
        self.proxy, self.at = await self.gateway.start_proxy(**options)

    async def send(self, *keys: str) -> None:
        await self.gateway.send(keys, body="{key}:{n}")

    async def verb(self, *words: str, http: str | None = None) -> tuple[int, str, str]:
        """Return exit code, stdout and stderr of ``orderlane WORDS``."""
        return await orderlane(*words, "--http", http or self.at.http)

    async def rows(self, *words: str, http: str | None = None) -> list[dict[str, Any]]:
        """Return the JSON output of a verb that succeeds."""
        code, out, err = await self.verb(*words, "-o", "json", http=http)
        async with asyncio.timeout(20):
            while HANDED_OVER in err:  # a busy machine may move a queue meanwhile
                await asyncio.sleep(0.2)
                code, out, err = await self.verb(*words, "-o", "json", http=http)
        assert code == 0, err
        return list(orjson.loads(out))

    async def refused(self, *words: str, http: str | None = None) -> str:
        """Return the error of a verb that fails, which must be one sentence."""
        code, out, err = await self.verb(*words, http=http)
        assert (code, out) == (2, ""), (code, out, err)
        assert err.count("\n") == 1, err
        assert err.startswith("orderlane: "), err
        return err.removeprefix("orderlane: ").strip()

    def base(self) -> int:
        (figures,) = self.gateway.statistics()
        return figures.base

    def audited(self, verb: str) -> list[dict[str, Any]]:
        return [each for each in self.gateway.events("audit") if each["verb"] == verb]


@asynccontextmanager
async def site(folder: Path, **options: Any) -> AsyncIterator[Site]:
    async with run_gateway(folder, **{"queues": 1, **options}) as gateway:
        yield Site(gateway, *await gateway.start_proxy())


def judged(gateway: Gateway) -> None:
    """Assert that the histories are free of violations."""
    assert gateway.verify().violations == {}
