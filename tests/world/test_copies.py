"""Copies of messages: a redrive returns exactly the message that was sent, whatever its form."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from broker_core.remoting.compression import SYS_COMPRESSED, deflate
from testkit.simulation.world import World, simulate
from tests.world.copy_site import Seen, Sent, Site, noise, until


def _properties(key: bytes, *more: tuple[bytes, bytes]) -> bytes:
    pairs = [(b"KEYS", key), (b"UNIQ_KEY", b"ID-%d" % len(more)), *more]
    return b"".join(b"%s\x01%s\x02" % pair for pair in pairs if pair[1])


_COMPRESSED = b"compressed " * 2000
MESSAGES = {
    "a separator in the key": Sent(_properties(b"k\x01x")),
    "a separator in the tag": Sent(_properties(b"k1", (b"TAGS", b"a\x01b"))),
    "a separator in a value": Sent(_properties(b"k2", (b"colour", b"red\x01blue"))),
    "a key that is no text": Sent(_properties(b"k3\xff\xfe")),
    "a value that is no text": Sent(_properties(b"k4", (b"colour", b"\xff\x80"))),
    "no key": Sent(_properties(b"", (b"colour", b"red"))),
    "a name twice": Sent(_properties(b"k5", (b"colour", b"red"), (b"colour", b"blue"))),
    "a property as long as any": Sent(_properties(b"k6", (b"long", noise(32_600)))),
    "a long property of few letters": Sent(_properties(b"k7", (b"long", b"x" * 32_600))),
    "a key as long as any": Sent(_properties(b"k8" + noise(32_600))),
    "properties that leave some room": Sent(_properties(b"k9", (b"long", noise(31_000)))),
    "names of the gateway": Sent(
        _properties(
            b"k10",
            (b"ORDERLANE_OFFSET", b"99"),
            (b"ORDERLANE_EPOCH", b"7"),
            (b"ORDERLANE_SENT", b"p!"),
            (b"ORDERLANE_CHAIN", b"!"),
            (b"DLQ_ORIGIN_TOPIC", b"elsewhere"),
            (b"DLQ_ORIGIN_MESSAGE_ID", b"another"),
        )
    ),
    "names of a redriven message": Sent(
        _properties(
            b"k11",
            (b"ORDERLANE_REDRIVES", b"3"),
            (b"ORDERLANE_REDRIVEN_GROUP", b"other"),
            (b"ORDERLANE_FIRST_ID", b"ID"),
        )
    ),
    "names of the broker": Sent(
        _properties(
            b"k12",
            (b"WAIT", b"false"),
            (b"RETRY_TOPIC", b"elsewhere"),
            (b"REAL_TOPIC", b"elsewhere"),
            (b"PGROUP", b"p"),
            (b"__SHARDINGKEY", b"k12"),
        )
    ),
    "a compressed body": Sent(
        _properties(b"k13", (b"colour", b"red")),
        deflate(_COMPRESSED, SYS_COMPRESSED),
        SYS_COMPRESSED,
        _COMPRESSED,
    ),
    "a compressed body with long properties": Sent(
        _properties(b"k14", (b"long", noise(32_600))),
        deflate(_COMPRESSED, SYS_COMPRESSED),
        SYS_COMPRESSED,
        _COMPRESSED,
    ),
    "a compressed body with a value that is no text": Sent(
        _properties(b"k16", (b"colour", b"\xff\x80")),
        deflate(_COMPRESSED, SYS_COMPRESSED),
        SYS_COMPRESSED,
        _COMPRESSED,
    ),
    "a body as long as any with long properties": Sent(
        _properties(b"k15", (b"long", noise(32_600))), noise(65_000)
    ),
}


def _seen(seen: list[Seen]) -> list[Seen]:
    return sorted(seen, key=repr)


async def _send_all(site: Site, messages: Mapping[str, Sent]) -> None:
    for sent in messages.values():
        await site.send(sent)
    desk = site.desk
    await until(lambda: len(desk.rejected) >= len(messages), what="every message to be rejected")


def _check(site: Site, messages: Mapping[str, Sent]) -> None:
    """Check that handlers saw the same message before its copy and after, as it was sent."""
    assert _seen(site.desk.done) == _seen(site.desk.rejected[: len(messages)])
    bodies = sorted(each[0] for each in site.desk.done)
    assert bodies == sorted(sent.shown for sent in messages.values())


async def _parked(world: World, names: list[str]) -> None:
    messages = {name: MESSAGES[name] for name in names}
    site = Site(world)
    await site.start("park", {"max_message_bytes": 65_536 + 22 + 32_767})
    await _send_all(site, messages)

    await until(site.parks(len(messages)), what="every message to be parked")
    site.desk.mend()
    await site.redrive_parked()
    await until(lambda: len(site.desk.done) >= len(messages), what="every message to be handled")
    await asyncio.sleep(3)
    assert await site.ask(f"{site.keys}/parked") == []
    _check(site, messages)


async def _dead_lettered(world: World, names: list[str]) -> None:
    messages = {name: MESSAGES[name] for name in names}
    site = Site(world)
    await site.start("dead_letter", {"max_message_bytes": 65_536 + 22 + 32_767})
    await _send_all(site, messages)

    async def all_there() -> bool:
        return await site.has_letters(len(messages))

    await until(all_there, what="every message to be dead-lettered")
    # Repeated: a redriven message that fails again is unchanged, too.
    assert (await site.redrive_letters())["state"] == "done"
    await until(lambda: len(site.desk.rejected) >= 2 * len(messages), what="all to come again")
    await until(all_there, what="every message to be dead-lettered again")
    site.desk.mend()
    shown = await site.redrive_letters()
    assert (shown["state"], shown["sent"]) == ("done", len(messages)), shown
    await until(lambda: len(site.desk.done) >= len(messages), what="every message to be handled")
    _check(site, messages)
    assert _seen(site.desk.rejected[: len(messages)]) == _seen(site.desk.rejected[len(messages) :])


async def _copied_often(world: World, names: list[str]) -> None:
    messages = {name: MESSAGES[name] for name in names}
    count = len(messages)
    site = Site(world)
    await site.start("dead_letter", {"max_message_bytes": 65_536 + 22 + 32_767})
    await _send_all(site, messages)

    async def all_there() -> bool:
        return await site.has_letters(count)

    async def again(times: int) -> None:
        await until(lambda: len(site.desk.rejected) >= times * count, what="all to be rejected")

    await until(all_there, what="every message to be dead-lettered")
    await site.change("park")
    await site.redrive_letters()
    await until(site.parks(count), what="all to be parked")
    await site.redrive_parked()
    await again(3)
    await site.change("dead_letter")  # a copy that fails waits in its place
    await site.redrive_parked()
    await again(4)
    assert await site.parked() == count
    site.desk.mend()
    await site.redrive_parked()
    await until(lambda: len(site.desk.done) == count, what="every message to be handled")
    _check(site, messages)
    for time in range(1, 4):
        seen = site.desk.rejected[time * count : (time + 1) * count]
        assert _seen(seen) == _seen(site.desk.done)


@pytest.mark.parametrize("name", MESSAGES)
def test_parked_and_redriven_messages_equal_the_sent_ones(name: str) -> None:
    simulate(lambda world: _parked(world, [name]), seed=1)


@pytest.mark.parametrize("name", MESSAGES)
def test_messages_dead_lettered_and_redriven_twice_equal_the_sent_ones(name: str) -> None:
    simulate(lambda world: _dead_lettered(world, [name]), seed=1)


def test_copies_of_all_kinds_stand_in_one_queue() -> None:
    simulate(lambda world: _parked(world, list(MESSAGES)), seed=2)


def test_copies_of_copies_of_all_kinds_equal_the_sent_messages() -> None:
    simulate(lambda world: _copied_often(world, list(MESSAGES)), seed=3)
