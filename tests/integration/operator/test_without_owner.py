"""Verbs on keys, parked messages and groups of queues without an owner."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from testkit.eventually import eventually
from testkit.gateway import GROUP
from tests.integration.operator.queue_site import WHY, Site, judged, site
from tests.support.consumers import consuming
from thin_client import Message

PARKS = {"on_exhausted": "park", "max_deliveries": 2, "retry_intervals_ms": [10]}
LEAVES = {"leave_after_s": 1}


class Failing:
    """A handler that fails for the keys in ``broken``; ``seen`` lists what it handled."""

    def __init__(self, broken: str) -> None:
        self.broken = broken
        self.seen: list[str] = []

    async def __call__(self, message: Message) -> None:
        text = message.body.decode()
        if text.partition(":")[0] in self.broken:
            raise RuntimeError("the carrier is down")
        self.seen.append(text)


@asynccontextmanager
async def left(folder: Path, handler: Failing) -> AsyncIterator[Site]:
    """A site whose last client left; p is parked with three messages and q with one."""
    async with site(folder, queues=2, topic=PARKS, ownership=LEAVES) as it:
        async with consuming(it.gateway, it.at.thrift, "one", handle=handler):
            await it.send(*"ppqpa")
            await eventually(lambda: len(it.gateway.events("park")) == 2, within_s=20)
            await eventually(it.gateway.all_finished, within_s=20)
            await it.verb("key", "pause", GROUP, "z", *WHY)
        await eventually(lambda: not it.gateway.statistics(), within_s=30)
        yield it
        judged(it.gateway)


async def test_parked_and_paused_keys_are_shown_by_any_proxy(tmp_path: Path) -> None:
    async with left(tmp_path, Failing("pq")) as it:
        _, there = await it.gateway.start_proxy()
        for http in (it.at.http, there.http):
            parked = await it.rows("key", "parked", GROUP, http=http)
            assert [(row["key"], row["copies"], row["not_copied"]) for row in parked] == [
                ("p", 3, 0),
                ("q", 1, 0),
            ]
            assert {row["reason"] for row in parked} == {"RuntimeError: the carrier is down"}
            paused = await it.rows("keys", "paused", GROUP, http=http)
            assert [row["key"] for row in paused] == ["z", "z"]
            assert {row["backlog"] for row in paused} == {None}
            (row,) = await it.rows("key", "show", GROUP, "p", http=http)
            assert (row["state"], row["copies"], row["backlog"]) == ("parked", 3, None)
        _, _, said = await it.verb("key", "parked", GROUP)
        assert said == "no owner, shown from the last records: broker-a_0, broker-a_1\n"
        assert it.gateway.statistics() == []  # looking takes no lock


async def test_a_key_is_redriven_without_a_client(tmp_path: Path) -> None:
    """The proxy that is asked owns the queue for the action and gives it back; the messages are
    delivered in order once a client comes.
    """
    handler = Failing("pq")
    async with left(tmp_path, handler) as it:
        handler.broken = ""
        _, there = await it.gateway.start_proxy()
        (row,) = await it.rows("key", "redrive", GROUP, "p", *WHY, http=there.http)
        assert (row["state"], row["copies"]) == ("redriven", 3)
        await eventually(lambda: not it.gateway.statistics(), within_s=30)
        parked = await it.rows("key", "parked", GROUP)
        assert [(row["key"], row["state"]) for row in parked] == [
            ("p", "redriven"),
            ("q", "parked"),
        ]
        (row,) = await it.rows("key", "redrive", GROUP, "--all", "--yes", *WHY)
        assert row["key"] == "q"
        await asyncio.sleep(30)
        assert handler.seen == ["a:5"]
        async with consuming(it.gateway, it.at.thrift, "one", handle=handler):
            await eventually(lambda: len(handler.seen) == 5, within_s=20)
            assert [each for each in handler.seen if each[0] == "p"] == ["p:1", "p:2", "p:4"]


async def test_a_key_and_a_group_are_paused_without_a_client(tmp_path: Path) -> None:
    handler = Failing("")
    async with left(tmp_path, Failing("pq")) as it:
        rows = await it.rows("key", "pause", GROUP, "a", *WHY)
        assert {row["queue"] for row in rows} == {"orders/broker-a_0", "orders/broker-a_1"}
        await it.rows("groups", "pause", GROUP, *WHY)
        await eventually(lambda: not it.gateway.statistics(), within_s=30)
        await it.send("b")
        async with consuming(it.gateway, it.at.thrift, "one", handle=handler):
            await asyncio.sleep(5)
            assert handler.seen == []
            await it.rows("groups", "resume", GROUP, *WHY)
            await eventually(lambda: handler.seen == ["b:6"], within_s=20)
            assert len(await it.rows("keys", "paused", GROUP)) == 4
