"""Every figure of a group in every place where operators see it, with and without an owner.

One row for each figure, one column for each place, one table for each situation. ``?``: unknown,
which is null in JSON, no sample in metrics, and a word in tables; ``.``: not shown there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import orjson
from prometheus_client.parser import text_string_to_metric_families

from testkit.eventually import eventually
from testkit.gateway import GROUP, TOPIC
from tests.integration.operator.queue_site import WHY, Site, site
from tests.support.consumers import consuming
from tests.support.verbs import orderlane
from thin_client import Message

NEVER_OWNED = """
figure        console     groups      lag  keys  top  metrics  doctor
lag           2           2           2    .     2    2        .
unfinished    0           0           0    .     0    0        .
blocked       0           0           0    .     0    .        .
parked        0           0           0    .     0    0        0
parked_keys   0           .           .    0     .    0        .
paused_keys   0           .           .    0     .    0        .
dead_letters  0           0           .    .     .    0        0
state         no-clients  no-clients  .    .     C    .        no_puller
"""
OWNED = """
figure        console     groups      lag  keys  top  metrics  doctor
lag           4           4           4    .     4    4        .
unfinished    3           3           3    .     3    3        .
blocked       2           2           2    .     2    2        .
parked        2           2           2    .     2    2        2
parked_keys   1           .           .    1     .    1        .
paused_keys   2           .           .    2     .    2        .
dead_letters  1           1           .    .     .    1        1
state         processing  processing  .    .     ok   .        client_hangs
"""
#: The client handled one of the messages that it held, and two more were sent since it left.
UNOWNED = """
figure        console     groups      lag  keys  top  metrics  doctor
lag           5           5           5    .     5    5        .
unfinished    2           2           2    .     2    2        .
blocked       ?           ?           ?    .     ?    .        .
parked        2           2           2    .     2    2        2
parked_keys   1           .           .    1     .    1        .
paused_keys   2           .           .    2     .    2        .
dead_letters  1           1           .    .     .    1        1
state         no-clients  no-clients  .    .     C    .        no_puller
"""
#: The figures of before, with their age, as nothing can change there. A lag in metrics has no age.
BROKER_DOWN = """
figure        console     groups      lag  keys  top  metrics  doctor
lag           5           5           5    .     5    ?        .
unfinished    2           2           2    .     2    2        .
blocked       ?           ?           ?    .     ?    .        .
parked        2           2           2    .     2    2        .
parked_keys   1           .           .    .     .    1        .
paused_keys   2           .           .    .     .    2        .
dead_letters  1           1           .    .     .    1        .
state         no-clients  no-clients  .    .     C    .        broker_away
"""
NOTHING_KNOWN = """
figure        console  groups   lag  keys  top  metrics  doctor
lag           ?        ?        .    .     ?    ?        .
unfinished    ?        ?        .    .     ?    ?        .
blocked       ?        ?        .    .     ?    .        .
parked        ?        ?        .    .     ?    ?        .
parked_keys   ?        .        .    .     .    ?        .
paused_keys   ?        .        .    .     .    ?        .
dead_letters  ?        ?        .    .     .    ?        .
state         unknown  unknown  .    .     ok   .        broker_away
"""


def parsed(table: str) -> dict[str, dict[str, Any]]:
    """Return the values of *table* by column and figure."""
    head, *lines = (line.split() for line in table.strip().splitlines())
    found: dict[str, dict[str, Any]] = {column: {} for column in head[1:]}
    for figure, *cells in lines:
        for column, cell in zip(head[1:], cells, strict=True):
            if cell != ".":
                is_number = cell.lstrip("-").isdigit()
                value = int(cell) if is_number else None if cell == "?" else cell.replace("-", " ")
                found[column][figure] = value
    return {column: values for column, values in found.items() if values}


class Places:
    """Reads the figures of the group from all places, asking the proxy at *http*."""

    def __init__(self, it: Site, http: str | None = None) -> None:
        self.it = it
        self.http = http or it.at.http

    async def agree_with(self, table: str) -> None:
        """Assert that every place shows the values of *table*."""
        wanted = parsed(table)
        places = {
            "console": self._console,
            "groups": self._groups,
            "lag": self._lag,
            "keys": self._keys,
            "top": self._top,
            "metrics": self._metrics,
            "doctor": self._doctor,
        }
        shown = {column: await places[column]() for column in wanted}
        narrowed = {
            column: {figure: shown[column].get(figure) for figure in figures}
            for column, figures in wanted.items()
        }
        assert narrowed == wanted

    async def group(self) -> dict[str, Any]:
        """Return the group as the console gets it."""
        async with aiohttp.ClientSession() as http:
            answer = await http.get(f"http://{self.http}/api/overview")
            return dict((await answer.json())["groups"][GROUP])

    async def samples(self, name: str, **labels: str) -> list[float]:
        """Return the values of a metric of the group, without parked topics."""
        async with aiohttp.ClientSession() as http:
            text = await (await http.get(f"http://{self.http}/metrics")).text()
        return [
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == f"orderlane_{name}"
            and sample.labels.items() >= {"group": GROUP, **labels}.items()
        ]

    async def _console(self) -> dict[str, Any]:
        group = await self.group()
        return {
            **group["figures"],
            "dead_letters": group["dead_letters"],
            "state": group["state"]["word"],
        }

    async def _groups(self) -> dict[str, Any]:
        (row,) = await self.it.rows("groups", "ls", http=self.http)
        return row

    async def _lag(self) -> dict[str, Any]:
        nameserver = self.it.gateway.cluster.nameserver
        code, rows, said = await orderlane(
            *("lag", GROUP, "-o", "json", "--http", self.http, "--nameserver", nameserver)
        )
        assert code == 0, said
        return _sums(orjson.loads(rows))

    async def _keys(self) -> dict[str, Any]:
        return {
            "parked_keys": len(await self.it.rows("key", "parked", GROUP, http=self.http)),
            "paused_keys": len(await self.it.rows("keys", "paused", GROUP, http=self.http)),
        }

    async def _top(self) -> dict[str, Any]:
        code, out, said = await self.it.verb("top", "--once", "--every", "0.1", http=self.http)
        assert code == 0, said
        line = next(each for each in out.splitlines() if each.startswith(f"{GROUP} "))
        _, _, lag, _, unfinished, blocked, parked, _, _, *marks = line.split()
        figures = {"lag": lag, "unfinished": unfinished, "blocked": blocked, "parked": parked}
        read = {name: None if each == "unknown" else int(each) for name, each in figures.items()}
        return {**read, "state": "".join(marks) or "ok"}

    async def _metrics(self) -> dict[str, Any]:
        return {
            "lag": _total(
                await self.samples("consumer_lag_messages", topic=TOPIC)
                or await self.samples("lag_without_clients_messages")
            ),
            "unfinished": await self._either("unfinished_messages"),
            "blocked": _total(await self.samples("blocked_messages", topic=TOPIC)),
            "parked": await self._parked(),
            "parked_keys": await self._either("keys", state="parked"),
            "paused_keys": await self._either("keys", state="paused"),
            "dead_letters": _total(await self.samples("dead_letters")),
        }

    async def _doctor(self) -> dict[str, Any]:
        nameserver = self.it.gateway.cluster.nameserver
        code, rows, said = await orderlane(
            *("doctor", GROUP, "-o", "json", "--http", self.http, "--nameserver", nameserver)
        )
        assert code == 1, said  # it found something
        found = orjson.loads(rows)
        counts = {each["cause"]: each["messages"] for each in found}
        return {
            "parked": counts.get("parked", 0),
            "dead_letters": counts.get("dead_letters", 0),
            "state": found[0]["cause"],
        }

    async def _either(self, name: str, **labels: str) -> float | None:
        """Return a figure of owned queues, or else of those without an owner."""
        owned = await self.samples(name, topic=TOPIC, **labels)
        return _total(owned or await self.samples(f"unowned_{name}", **labels))

    async def _parked(self) -> float | None:
        every, ours = (
            await self.samples("unfinished_messages"),
            await self.samples("unfinished_messages", topic=TOPIC),
        )
        if ours:
            return sum(every) - sum(ours)
        return _total(await self.samples("unowned_parked_messages"))


def _sums(rows: list[dict[str, Any]]) -> dict[str, Any]:
    names = ("lag", "unfinished", "blocked", "parked")
    return {name: _total([row[name] for row in rows]) for name in names}


def _total(values: list[Any]) -> Any:
    return sum(values) if values and None not in values else None


class Clerk:
    """A handler: p fails, h is held until ``let_go`` is set."""

    def __init__(self) -> None:
        self.let_go = asyncio.Event()

    async def __call__(self, message: Message) -> None:
        key = message.body.decode().partition(":")[0]
        if key == "p":
            raise RuntimeError("the carrier is down")
        if key == "h":
            await self.let_go.wait()


TOPIC_SETTINGS = {
    "on_exhausted": "park",
    "max_deliveries": 2,
    "retry_intervals_ms": [10],
    "missing_key": "dead_letter",
}


@asynccontextmanager
async def handled(it: Site) -> AsyncIterator[Clerk]:
    """While a client is connected: p is parked with two messages, a keyless one is a dead letter, h
    is held with two messages behind it, and z is paused.
    """
    clerk = Clerk()
    async with consuming(it.gateway, it.at.thrift, "one", handle=clerk):
        await it.gateway.send([*"pphhh", None], body="{key}:{n}")
        await eventually(lambda: len(it.gateway.events("finish")) == 5, within_s=20)
        await it.rows("key", "pause", GROUP, "z", *WHY)
        await asyncio.sleep(31)  # dead letters are counted every 30 s
        yield clerk
        clerk.let_go.set()


async def test_every_place_shows_the_same_with_and_without_an_owner(tmp_path: Path) -> None:
    async with site(tmp_path, queues=2, topic=TOPIC_SETTINGS, ownership={"leave_after_s": 1}) as it:
        places = Places(it)
        await it.send("a", "b")
        await asyncio.sleep(2)
        await places.agree_with(NEVER_OWNED)
        async with handled(it):
            await places.agree_with(OWNED)
        await eventually(lambda: not it.gateway.statistics(), within_s=30)
        assert sum(await places.samples("unowned_keys", state="parked")) == 1  # without a gap
        await it.send("e", "f")
        await asyncio.sleep(31)
        await places.agree_with(UNOWNED)
        before = await places.group()
        assert {each["source"] for each in before["others"]} == {"records"}
        await it.gateway.cluster.stop_broker()
        await asyncio.sleep(90)
        await places.agree_with(BROKER_DOWN)
        group = await places.group()
        assert group["figures"]["at_ms"] == before["figures"]["at_ms"]
        assert all("refused" in each["trouble"] for each in group["others"])
        await it.gateway.cluster.start_broker()


async def test_another_proxy_shows_the_same_after_the_owner_has_gone(tmp_path: Path) -> None:
    async with site(tmp_path, queues=2, topic=TOPIC_SETTINGS, ownership={"leave_after_s": 1}) as it:
        await it.send("a", "b")
        _, there = await it.gateway.start_proxy()
        places = Places(it, there.http)
        async with handled(it):
            assert (await places.group())["state"]["word"] == "at other proxies"
            await Places(it).agree_with(OWNED)
        await it.gateway.close_proxy(it.proxy)
        await it.send("e", "f")
        await asyncio.sleep(31)
        await places.agree_with(UNOWNED)


async def test_a_proxy_that_reaches_no_broker_knows_nothing(tmp_path: Path) -> None:
    async with site(tmp_path, queues=2) as it:
        await it.send("a", "b")
        await it.gateway.cluster.stop_broker()
        _, there = await it.gateway.start_proxy()
        await asyncio.sleep(31)
        await Places(it, there.http).agree_with(NOTHING_KNOWN)
        await it.gateway.cluster.start_broker()
