"""Open pages of the console as a separate process: ``python -m bench.load.pages``.

Each page reads the stream of overviews and repeats its own requests, as the console's script in a
browser does. Prints one line of JSON when all pages are open, and one at SIGTERM: answers, their
times, errors, and the events and bytes received.
"""

from __future__ import annotations

import asyncio
import signal
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Annotated, Any

import aiohttp
import typer

from broker_core.clock import now_ns
from broker_core.tasks import cancel_and_wait, spawn
from proxy.cli.output import print_json

_PATIENCE = aiohttp.ClientTimeout(total=60)


@dataclass(frozen=True, slots=True)
class Page:
    """A page: its script in ``proxy/console/static``, the paths it requests again and again, by
    seconds between two requests, and those it requests once. Some need only the overview.
    """

    script: str
    requests: Mapping[float, Sequence[str]] = field(default_factory=dict)
    once: Sequence[str] = ()


_GROUP = "api/groups/{group}"
#: Not found until the first dead letter.
_LETTERS = f"{_GROUP}/dead-letters"
_KEYS = f"{_GROUP}/topics/{{topic}}/keys"

_TOPIC = "api/topics/{topic}"

#: Fourteen open pages: each page of the console, and the one of a key. The page of a topic's
#: messages follows new ones.
PAGES = (
    Page("page-groups.js", {10: ["api/diagnoses"]}),
    Page("page-group.js", {10: [f"{_GROUP}/series", f"{_GROUP}/diagnosis"]}),
    Page("page-keys.js", {3: [f"{_KEYS}/top?limit=100"]}),
    Page(
        "page-keys.js",
        {3: [f"{_KEYS}/top?limit=100", f"{_KEYS}/show?key=key-1", f"{_KEYS}/history?key=key-1"]},
    ),
    Page("page-leases.js", {3: [f"{_GROUP}/leases?limit=500"]}),
    Page("page-dead-letters.js", {3: [f"{_KEYS}/parked?limit=101"], 5: [_LETTERS]}),
    Page("page-messages.js", once=[f"{_GROUP}/topics/{{topic}}/messages?key=key-1"]),
    Page("page-order-key.js", once=[f"{_GROUP}/order-key?topic={{topic}}"]),
    Page("page-topics.js", {10: ["api/topics?limit=50"]}),
    Page("page-topic.js", {10: [_TOPIC]}),
    Page("page-topic-messages.js", {3: [f"{_TOPIC}/messages?start=end&limit=200"]}),
    Page("page-brokers.js", {10: ["api/brokers"]}),
    Page("page-clients.js", {3: ["api/clients"]}),
    Page("page-audit.js", {5: ["api/audit?limit=200"]}),
)


class Browser:
    """All open pages. Errors are counted by their text."""

    def __init__(self, site: str, *, group: str, topic: str) -> None:
        self._site = site
        self._names = {"group": group, "topic": topic}
        self._times_ms: list[float] = []
        self._errors: dict[str, int] = {}
        self._events = self._bytes = 0

    async def open(self, stopped: asyncio.Event) -> None:
        """Keep all pages open until *stopped*; say once that each had its first event."""
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, timeout=_PATIENCE) as session:
            seen = [asyncio.Event() for _ in PAGES]
            tasks = [spawn(self._stream(session, one), name="stream of a page") for one in seen]
            for one in seen:
                await one.wait()
            for page in PAGES:
                for path in page.once:
                    await self._ask(session, path)
                tasks += [
                    spawn(self._repeat(session, every_s, path), name=f"requests of {page.script}")
                    for every_s, paths in page.requests.items()
                    for path in paths
                ]
            print_json({"ready": True, "pages": len(PAGES)})
            await stopped.wait()
            for task in tasks:
                await cancel_and_wait(task)

    def figures(self) -> dict[str, Any]:
        """Return counts and times of all requests so far."""
        times = sorted(self._times_ms) or [0.0]
        return {
            "answers": len(self._times_ms),
            "answer_p50_ms": statistics.median(times),
            "answer_max_ms": times[-1],
            "events": self._events,
            "received_mb": self._bytes / 1e6,
            "errors": self._errors,
        }

    async def _stream(self, session: aiohttp.ClientSession, seen: asyncio.Event) -> None:
        endless = aiohttp.ClientTimeout(total=None)
        async with session.get(f"{self._site}/api/events", timeout=endless) as answer:
            answer.raise_for_status()
            async for piece, _ in answer.content.iter_chunks():
                self._bytes += len(piece)
                if b"event: overview" in piece:
                    self._events += 1
                    seen.set()

    async def _repeat(self, session: aiohttp.ClientSession, every_s: float, path: str) -> None:
        while True:
            await self._ask(session, path)
            await asyncio.sleep(every_s)

    async def _ask(self, session: aiohttp.ClientSession, path: str) -> None:
        began_ns = now_ns()
        try:
            async with session.get(f"{self._site}/{path.format(**self._names)}") as answer:
                text = await answer.read()
                self._bytes += len(text)
                if answer.status != HTTPStatus.NOT_FOUND or path != _LETTERS:
                    answer.raise_for_status()
        except (aiohttp.ClientError, TimeoutError) as error:
            said = f"{path}: {error}"[:300]
            self._errors[said] = self._errors.get(said, 0) + 1
            return
        self._times_ms.append((now_ns() - began_ns) / 1e6)


def main(
    address: Annotated[str, typer.Option(help="host:port of a proxy's HTTP port")],
    group: Annotated[str, typer.Option(help="group of the pages that show one")],
    topic: Annotated[str, typer.Option(help="topic of that group")],
) -> None:
    """Keep the pages open until SIGTERM."""
    browser = Browser(f"http://{address}", group=group, topic=topic)

    async def run() -> None:
        stopped = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
        await browser.open(stopped)

    asyncio.run(run())
    print_json(browser.figures())


if __name__ == "__main__":
    typer.run(main)
