"""Brokers with low size limits: ownership records respect them, and none is lost."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any
from urllib.parse import quote

import pytest

from broker_core.names import Group
from proxy.core.keys.order_key import known_as
from proxy.core.records.codec import decode
from proxy.core.records.parked_key import parked_topic
from proxy.core.records.record import Record, SnapshotPart, ownership_topic
from testkit.simulation.world import World, simulate
from tests.world.copy_site import GROUP, QUEUE, TOPIC, Sent, Site, noise, until
from tests.world.sizes import numbers, restarted

_LONG = [chr(ord("a") + number) + noise(30_000).decode() for number in range(6)]


def of_key(key: str, number: int, size: int) -> Sent:
    """Return message *number* of *key*, whatever its length."""
    name = hashlib.sha256(key.encode()).hexdigest()[:16]
    properties = f"KEYS\x01{key}\x02UNIQ_KEY\x01ID-{name}-{number}\x02".encode()
    return Sent(properties, b"%03d" % number + noise(size))


async def recorded(site: Site, topic: str | None = None) -> list[tuple[int, Record]]:
    """Return the ownership records of the queue, or of that of *topic*, with the size of each."""
    name = ownership_topic(Group(site.group), TOPIC if topic is None else parked_topic_of(site))
    queue, found, at = QUEUE._replace(topic=name), [], 0
    while True:
        pull = site.client.pull(queue, group=Group(GROUP), offset=at, max_messages=32, suspend_ms=0)
        pulled = await site.sender.do(pull)
        found += [(len(each.body), decode(each.body)) for each in pulled.messages]
        if not pulled.messages:
            return found
        at = pulled.messages[-1].queue_offset + 1


def parked_topic_of(site: Site) -> Any:
    """Return the topic of the parked copies."""
    return parked_topic(Group(site.group), TOPIC)


async def crash(site: Site) -> None:
    """Kill and restart the proxy: the next owner of the queue has only the records."""
    site.proxy.kill()
    await asyncio.sleep(1)
    await site.proxy.start()


async def _parks_long_keys(world: World, limit: int, *, lowered: bool) -> None:
    site = Site(world)
    await site.start("park", {} if lowered else {"max_message_bytes": limit})
    for number in range(2):
        for key in _LONG:
            await site.send(of_key(key, number, 50))
    await until(site.parks(12), what="all to be parked")
    if lowered:
        await restarted(world, max_message_bytes=limit)
    await asyncio.sleep(10)  # records are written each second
    before = len(site.desk.rejected)
    await crash(site)
    for key in _LONG:
        await site.send(of_key(key, 2, 50))
    await until(site.parks(18), what="all to be parked after the crash")
    assert len(site.desk.rejected) == before, "nothing of a parked key is handed out"
    site.desk.mend()
    await site.redrive_parked()
    await until(lambda: len(site.desk.done) == 18, what="all to be handled")
    for key in _LONG:
        assert numbers(site.desk.done, key) == [0, 1, 2]


@pytest.mark.parametrize(
    ("limit", "lowered"),
    [
        (65_536, False),
        pytest.param(32_768, False, marks=pytest.mark.slow),
        pytest.param(65_536, True, marks=pytest.mark.slow),
        (32_768, True),
    ],
)
def test_keys_as_long_as_any_are_parked_over_a_crash(limit: int, lowered: bool) -> None:
    simulate(lambda world: _parks_long_keys(world, limit, lowered=lowered), seed=1)


async def _many_keys(world: World, limit: int, keys: list[str]) -> None:
    site = Site(world)
    await site.start("park", {"max_message_bytes": limit})
    for key in keys:
        await site.send(of_key(key, 0, 20))
    await until(site.parks(len(keys)), what="all to be parked")
    await asyncio.sleep(5)
    reset = f"/api/groups/{GROUP}/topics/{TOPIC}/queues/{QUEUE.qid}/reset"
    await site.ask(reset, {"to": {"end": True}})  # it writes everything again
    before = len(site.desk.rejected)
    await crash(site)
    await until(site.parks(len(keys)), what="all to be known as parked")
    for key in keys:
        await site.send(of_key(key, 1, 20))
    await until(site.parks(2 * len(keys)), what="all to be parked after the crash")
    assert len(site.desk.rejected) == before, "nothing of a parked key is handed out"
    for topic in (None, "parked"):
        records = await recorded(site, topic)
        assert max(size for size, _ in records) <= limit
        if topic is None:
            assert max(each.of for _, each in records if isinstance(each, SnapshotPart)) > 1


@pytest.mark.slow
@pytest.mark.parametrize("limit", [32_768, 9_000])
@pytest.mark.parametrize("length", [12, 900])
def test_the_records_of_many_parked_keys_are_cut(limit: int, length: int) -> None:
    count = 400 if length < 100 else 60
    keys = [f"key-{number:03}-{noise(length).decode()}" for number in range(count)]
    simulate(lambda world: _many_keys(world, limit, keys), seed=1)


async def _much_unfinished(world: World, limit: int, count: int) -> None:
    """Block every key by a failing message, one of them with more messages than are kept."""
    site = Site(world)
    await site.start("block", {"max_message_bytes": limit})
    rules = {**site.rules, "max_jobs_in_memory": 300, "max_jobs_per_key_in_memory": 2}
    world.write_settings([{"name": site.group, "topics": [rules]}])
    await asyncio.sleep(5)
    for number in range(count):
        key = f"k{number}" if number % 4 else "k"
        await site.send(of_key(key, number, 10))
    await asyncio.sleep(90)
    await crash(site)
    await asyncio.sleep(20)
    site.desk.mend()
    done = site.desk.done
    await until(lambda: len(done) == count, within_s=600, what="all to be handled")
    assert sorted(int(each[0][:3]) for each in done) == list(range(count)), "each of them once"
    assert numbers(done, "k") == list(range(0, count, 4))
    records = await recorded(site)
    assert max(size for size, _ in records) <= limit
    assert any(isinstance(each, SnapshotPart) and each.of > 1 for _, each in records)
    assert any(isinstance(each, SnapshotPart) and each.piece.attempts for _, each in records)
    assert any(isinstance(each, SnapshotPart) and each.piece.spilled for _, each in records)


@pytest.mark.slow
@pytest.mark.parametrize("limit", [1_500, 2_500])
def test_the_records_of_much_that_is_unfinished_are_cut(limit: int) -> None:
    simulate(lambda world: _much_unfinished(world, limit, 600), seed=1)


async def _pauses(world: World, limit: int) -> None:
    site = Site(world)
    await site.start("park", {"max_message_bytes": limit})
    site.desk.mend()
    for key in _LONG[:2]:
        await site.send(of_key(key, 0, 50))
    await until(lambda: len(site.desk.done) == 2, what="both to be handled")
    wish = {"by": "m" * 100, "reason": "ü" * 300}
    for key in _LONG[:2]:
        await site.ask(f"{site.keys}/pause", {**wish, "key": key})
    await crash(site)
    for key in _LONG[:2]:
        await site.send(of_key(key, 1, 50))
    await site.send(of_key("k", 0, 50))
    await until(lambda: len(site.desk.done) == 3, what="the other to be handled")
    await asyncio.sleep(10)
    assert len(site.desk.done) == 3, "what is paused stays so"
    for key in _LONG[:2]:
        await site.ask(f"{site.keys}/resume", {**wish, "key": key})
    await until(lambda: len(site.desk.done) == 5, what="all to be handled")


@pytest.mark.parametrize("limit", [65_536, 32_768])
def test_keys_as_long_as_any_are_paused_and_resumed_over_a_crash(limit: int) -> None:
    simulate(lambda world: _pauses(world, limit), seed=1)


async def _audit(world: World, limit: int) -> None:
    site = Site(world)
    await site.start("park", {"max_message_bytes": limit})
    await site.send(of_key("k", 0, 50))
    await until(site.parks(1), what="it to be parked")
    reason, key = "r" * 450, _LONG[0][:5000]
    await site.ask(f"{site.keys}/pause", {"key": key, "by": "me", "reason": reason})
    records = (await site.ask(f"/api/audit?group={GROUP}"))["records"]
    assert [(each["verb"], each["actor"]) for each in records] == [("key pause", "me")]
    assert records[0]["reason"] in (reason, reason[:400])
    assert records[0]["target"].startswith(key[:256])
    history = await site.ask(f"{site.keys}/history?key={quote(known_as(key))}")
    assert "key pause" in str(history)


@pytest.mark.parametrize("limit", [1_800, 4_000])
def test_a_change_is_made_though_its_audit_record_has_to_be_short(limit: int) -> None:
    simulate(lambda world: _audit(world, limit), seed=1)


async def _none_at_all(world: World) -> None:
    site = Site(world)
    await site.start("park")
    await site.send(of_key("k", 0, 50))
    await until(site.parks(1), what="it to be parked")
    await restarted(world, max_message_bytes=420)
    for number in range(9):
        await site.send(of_key(f"l{number}", 0, 50))

    async def told() -> bool:
        return "its ownership record cannot be stored" in str(await site.ask("/api/groups"))

    await until(told, what="the proxy to report it")
    await restarted(world, max_message_bytes=65_536)
    await until(site.parks(10), what="all to be parked")
    assert not await told()
    before = len(site.desk.rejected)
    await crash(site)
    await until(site.parks(10), what="all to be known as parked")
    await asyncio.sleep(20)
    assert len(site.desk.rejected) == before, "the records that were missing are there"


def test_a_broker_that_rejects_records_is_reported_until_it_accepts_them() -> None:
    simulate(_none_at_all, seed=1)
