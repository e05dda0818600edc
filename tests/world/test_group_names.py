"""Group names of any length are either refused when a group is created, or work everywhere."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from proxy.errors import SettingsError
from testkit.simulation.world import ClientNode, ProxyNode, World, simulate
from tests.world.copy_site import TOPIC, Sent, Site, until
from thin_client import AsyncConsumer, Message
from thin_client.errors import Refused

LONGEST = 122


async def _dies_and_comes_back(world: World) -> None:
    site = Site(world, "g" * LONGEST)
    await site.start("dead_letter")
    await site.send(Sent(b"KEYS\x01k\x02UNIQ_KEY\x01ID\x02"))
    await until(lambda: len(site.desk.rejected) == 1)
    await until(site.has_letters, what="a dead letter")
    site.desk.mend()
    assert (await site.redrive_letters())["state"] == "done"
    await until(lambda: len(site.desk.done) == 1)


def test_the_dead_letters_of_the_longest_name_can_be_stored_and_sent_back() -> None:
    simulate(_dies_and_comes_back, seed=1)


@pytest.mark.parametrize("length", [LONGEST + 1, 125, 127])
def test_a_longer_name_is_refused_wherever_a_group_is_made(length: int) -> None:
    async def play(world: World) -> None:
        await _refused(world, "g" * length)

    simulate(play, seed=1)


async def _refused(world: World, name: str) -> None:
    topics: list[dict[str, Any]] = [{"name": str(TOPIC), "order_key": "KEY"}]
    world.configure_proxies({"auto_create_groups": True})
    site = Site(world)
    await site.start("park")
    # By a client's pull.
    why = f"{len(name)} characters: at most {LONGEST} are allowed"
    client = world.add(ClientNode, "client")
    consumer = client.new_process().run(
        lambda: AsyncConsumer(site.proxy.thrift, group=name, topics=[str(TOPIC)])
    )

    async def ignore(_message: Message) -> None:
        return

    with pytest.raises(Refused, match=why):
        await client.do(asyncio.wait_for(consumer.run(ignore, handle_signals=False), 30))
    # In the settings of a starting proxy, and of a running one, which keeps its groups.
    world.write_settings([{"name": name, "topics": topics}])
    await asyncio.sleep(5)
    assert (await site.ask("/api/groups/billing"))["source"] == "file"
    assert (await world.http(site.proxy, f"/api/groups/{name}"))[0] == 404
    with pytest.raises(SettingsError, match=why):
        await world.add(ProxyNode, "another").start()
