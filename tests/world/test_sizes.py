"""Size limits of brokers: batches follow them, and messages whose copies exceed them are
finished.
"""

from __future__ import annotations

import asyncio

import pytest

from testkit.simulation.world import ClientNode, World, simulate
from tests.world.copy_site import TOPIC, Sent, Site, noise, until
from tests.world.sizes import numbers, restarted
from thin_client import AsyncProducer, Outgoing

_SMALL = {"max_message_bytes": 65_536}


def of_key(key: str, number: int, size: int) -> Sent:
    """Return message *number* of *key*, which compresses to no less than *size*."""
    properties = f"KEYS\x01{key}\x02UNIQ_KEY\x01ID-{key}-{number}\x02".encode()
    return Sent(properties, b"%03d" % number + noise(size))


# ---- batches ------------------------------------------------------------------------------------


async def _send_batch(world: World, count: int, size: int) -> None:
    site = Site(world)
    await site.start("park", _SMALL)
    site.desk.mend()
    sender = world.add(ClientNode, "thin")
    producer = sender.new_process().run(lambda: AsyncProducer(site.proxy.thrift))
    batch = [
        Outgoing(str(TOPIC), b"%03d" % number + noise(size), key="k") for number in range(count)
    ]

    async def send() -> None:
        async with producer:
            await producer.send_batch(batch)

    await sender.do(send())
    await until(lambda: len(site.desk.done) == count, what="every message to be handled")
    assert numbers(site.desk.done, "k") == list(range(count))


@pytest.mark.parametrize(("count", "size"), [(100, 1000), (7, 40_000), (200, 600)])
def test_a_batch_is_stored_by_a_broker_that_takes_less_at_once(count: int, size: int) -> None:
    simulate(lambda world: _send_batch(world, count, size), seed=1)


async def _parks(world: World, *, keys: list[str], each: int, size: int) -> None:
    site = Site(world)
    await site.start("park", _SMALL)
    for number in range(each):
        for key in keys:
            await site.send(of_key(key, number, size))
    await until(site.parks(each * len(keys)), what="all to be parked")
    site.desk.mend()
    await site.redrive_parked()
    await until(lambda: len(site.desk.done) == each * len(keys), what="all to be handled")
    for key in keys:
        assert numbers(site.desk.done, key) == list(range(each))


@pytest.mark.parametrize(
    ("keys", "each", "size"),
    [(["k"], 4, 40_000), (["k"], 60, 3_000), (["k", "l", "m"], 9, 30_000), (["k"], 3, 65_400)],
)
def test_a_key_is_parked_and_redriven_though_its_copies_do_not_fit_in_one_batch(
    keys: list[str], each: int, size: int
) -> None:
    simulate(lambda world: _parks(world, keys=keys, each=each, size=size), seed=1)


async def _changes(world: World, before: int, after: int) -> None:
    site = Site(world)
    await site.start("park", {"max_message_bytes": before})
    for number in range(12):
        await site.send(of_key("k", number, 3_000))
    await until(site.parks(12), what="the first to be parked")
    await restarted(world, max_message_bytes=after)
    for number in range(12, 40):
        await site.send(of_key("k", number, 3_000))
    await until(site.parks(40), what="all to be parked")
    site.desk.mend()
    await site.redrive_parked()
    await until(lambda: len(site.desk.done) == 40, what="all to be handled")
    assert numbers(site.desk.done, "k") == list(range(40))


@pytest.mark.parametrize(("before", "after"), [(256_000, 9_000), (9_000, 256_000)])
def test_copies_follow_a_limit_that_changes(before: int, after: int) -> None:
    simulate(lambda world: _changes(world, before, after), seed=1)


async def _many_letters(world: World) -> None:
    site = Site(world)
    await site.start("dead_letter", _SMALL)
    for number in range(30):
        await site.send(of_key("k", number, 30_000))

    async def all_there() -> bool:
        return await site.has_letters(30)

    await until(all_there, what="all to be dead-lettered")
    site.desk.mend()
    shown = await site.redrive_letters()
    assert (shown["state"], shown["sent"]) == ("done", 30)
    await until(lambda: len(site.desk.done) == 30, what="all to be handled")
    assert numbers(site.desk.done, "k") == list(range(30))


def test_many_dead_letters_go_there_and_back() -> None:
    simulate(_many_letters, seed=1)


# ---- messages without a copy --------------------------------------------------------------------


async def _too_long(world: World, policy: str) -> None:
    site = Site(world)
    await site.start(policy, {"max_message_bytes": 65_536})
    site.desk.hold()
    await site.send(of_key("k", 0, 60_000))
    for number in range(1, 4):
        await site.send(of_key("k", number, 100))
    await until(lambda: site.desk.begun == 1, what="the first to be handled")
    await restarted(world, max_message_bytes=20_000)
    site.desk.go_on()
    copies = 3 if policy == "park" else 4

    async def ended() -> bool:
        if policy == "park":
            return await site.has_letters(1) and await site.parks(copies)()
        return await site.has_letters(copies)

    await until(ended, what="the copyable messages to be copied")
    asked = str(await site.ask("/api/groups"))
    assert "1 given-up message exceeded the broker's size limit, the last at offset 0" in asked
    shown = await site.ask(f"{site.letters}/show?dead_letter=broker-a_0@0")
    assert (shown["origin"], shown["key"]) == ("broker-a_0@0", "k")
    await asyncio.sleep(60)  # without repeated attempts
    site.desk.mend()
    wish = {"by": "me", "reason": "so"}
    _, answer = await world.http(site.proxy, f"{site.letters}/redrive", wish)
    assert "its body of 60003 bytes exceeded the broker's limit" in answer["error"]
    assert "the complete message is at orders/broker-a_0@0" in answer["error"]
    redriven = await site.redrive_letters(skip=["broker-a_0@0"])
    assert redriven["state"] == "done"
    if policy == "park":
        await site.redrive_parked()
    await until(lambda: len(site.desk.done) == 3, what="the others to be handled")
    assert numbers(site.desk.done, "k") == [1, 2, 3]


@pytest.mark.parametrize("policy", ["park", "dead_letter"])
def test_a_message_whose_copy_cannot_be_stored_is_finished_and_reported(policy: str) -> None:
    simulate(lambda world: _too_long(world, policy), seed=1)


async def _shorter(world: World, policy: str) -> None:
    """Return a shorter message: zeros compress to almost nothing."""
    site = Site(world)
    await site.start(policy, {"max_message_bytes": 65_536})
    site.desk.hold()
    await site.send(
        Sent(b"KEYS\x01k\x02UNIQ_KEY\x01ID\x02colour\x01red\x02", b"000" + bytes(60_000))
    )
    await until(lambda: site.desk.begun == 1, what="the first to be handled")
    await restarted(world, max_message_bytes=20_000)
    site.desk.go_on()

    async def ended() -> bool:
        return await (site.parks(1)() if policy == "park" else site.has_letters(1))

    await until(ended, what="the copy to be stored")
    await restarted(world, max_message_bytes=65_536)
    site.desk.mend()
    await (site.redrive_parked() if policy == "park" else site.redrive_letters())
    await until(lambda: len(site.desk.done) == 1, what="it to be handled")
    assert site.desk.done == site.desk.rejected[:1]
    assert site.desk.done[0][4] == {"colour": "red"}


@pytest.mark.parametrize("policy", ["park", "dead_letter"])
def test_a_copy_that_is_too_long_is_stored_compressed(policy: str) -> None:
    simulate(lambda world: _shorter(world, policy), seed=1)
