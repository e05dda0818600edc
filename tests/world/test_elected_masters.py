"""Replicas that elect their master, under kills, partitions and pauses, with the whole gateway."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from broker_core.broker.replicas.election import Election, Position, VoteRequest
from testkit.simulation.world import BrokerNode
from tests.world.elected_site import ElectedSite, played

pytestmark = pytest.mark.slow


def kill(node: BrokerNode) -> None:
    node.kill()


def lose_power(node: BrokerNode) -> None:
    node.kill(power=True)


async def _twenty_crashes(site: ElectedSite) -> None:
    await site.start()
    site.send(2000, every_s=0.1)
    for number in range(20):
        await site.until_in_sync()
        dead = await site.until_serving()
        await site.measured(lose_power if number % 2 else kill)
        await dead.start()
    await site.settle()


def check_twenty_crashes() -> None:
    """Assert that twenty crashes cost 15 s each at most, and no message; for ``make torture``."""
    site = played(_twenty_crashes)
    assert len(site.take_overs) == 20
    assert max(site.take_overs) <= 15


async def _three_crashes(site: ElectedSite) -> None:
    await site.start(proxies=2)
    site.send(800)
    for fault in (kill, lose_power, kill):
        await site.until_in_sync()
        dead = await site.until_serving()
        await site.measured(fault)
        await dead.start()
    await site.settle()


def test_killed_masters_are_replaced() -> None:
    site = played(_three_crashes)
    assert max(site.take_overs) <= 15


async def _cut_off(site: ElectedSite, **settings: Any) -> None:
    """The old master still reaches clients and nameserver, with messages of its own."""
    await site.start(proxies=2, **settings)
    site.send(300)
    await site.until_in_sync()
    await site.measured(site.cut_off)
    await asyncio.sleep(5)
    site.heal()
    await site.settle()


def test_a_master_that_is_cut_off_acknowledges_nothing_more() -> None:
    site = played(_cut_off)
    assert max(site.take_overs) <= 15


def test_a_send_that_replicas_do_not_confirm_in_time_is_not_acknowledged() -> None:
    """Its time ends before the lease of the master, so it is answered."""
    played(partial(_cut_off, slave_timeout_s=0.5))


async def _one_way(site: ElectedSite) -> None:
    """Replicas hear the master, which does not hear them; then the reverse."""
    await site.start()
    site.send(500)
    for deaf in (True, False):
        await site.until_in_sync()
        master = await site.until_serving()
        for other in site.world.brokers:
            if other is not master:
                pair = (other.name, master.name) if deaf else (master.name, other.name)
                site.world.loop.network.cut(*pair)
        await asyncio.sleep(12)
        site.heal()
    await site.settle()


def test_links_that_fail_in_one_direction_lose_nothing() -> None:
    played(_one_way)


async def _paused(site: ElectedSite) -> None:
    """A master that continues after its successor was elected does not know that time passed."""
    await site.start(proxies=2)
    site.send(300)
    await site.until_in_sync()
    master = await site.until_serving()
    await site.measured(lambda node: node.pause())
    await asyncio.sleep(3)
    master.resume()
    await site.settle()


def test_a_master_that_was_paused_acknowledges_nothing_when_it_continues() -> None:
    site = played(_paused)
    assert max(site.take_overs) <= 15


async def _behind(site: ElectedSite) -> None:
    """A slave was cut off, and the master dies when it returns with less data."""
    await site.start()
    site.send(200)
    await site.until_in_sync()
    master = await site.until_serving()
    behind = next(each for each in site.world.brokers if each is not master)
    site.cut_off(behind)
    await asyncio.sleep(12)
    master.kill()
    site.heal()
    site.send(100)
    await asyncio.sleep(15)
    await master.start()
    await site.settle()


def test_a_slave_that_returns_with_less_data_is_not_elected() -> None:
    played(_behind, seed=2)


def test_the_judgement_finds_votes_for_shorter_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    ask = Election.asked

    def for_any_log(election: Election, request: VoteRequest, *now: Any) -> Any:
        return ask(election, replace(request, position=Position(1 << 60, 0)), *now)

    monkeypatch.setattr(Election, "asked", for_any_log)
    with pytest.raises((AssertionError, TimeoutError)):
        played(_behind, seed=2)


async def _no_majority(site: ElectedSite) -> None:
    await site.start()
    site.send(300)
    await site.until_in_sync()
    master = await site.until_serving()
    others = [each for each in site.world.brokers if each is not master]
    for each in others:
        each.kill()
    await asyncio.sleep(10)
    assert site.serving() == []
    acked = site.stage.producer.acknowledged
    await asyncio.sleep(20)
    assert site.stage.producer.acknowledged == acked
    await others[0].start()
    await site.until_serving()
    await others[1].start()
    await site.settle()


def test_without_a_majority_nothing_is_acknowledged() -> None:
    played(_no_majority)


async def _damaged_log(site: ElectedSite) -> None:
    """A replica that was away copies a log that was damaged meanwhile; then it is elected."""
    await site.start()
    site.send(60)
    await site.until_in_sync()
    await site.delivered()
    master = await site.until_serving()
    away, third = (each for each in site.world.brokers if each is not master)
    away.kill()
    site.send(240)
    await site.delivered()
    await asyncio.sleep(10)  # the last ones are acked and recorded
    assert site.damage(master, every=12) == 25
    await away.start()
    await site.until_in_sync()

    third.kill()
    master.kill()
    await third.start()
    await site.until_serving(besides=master)
    site.send(60)
    await site.delivered()
    await master.start()
    await site.settle()


def test_a_replica_copies_a_damaged_log_and_continues_its_queues() -> None:
    """L1 finds an offset that is used twice, D1 a message behind the damage that is lost."""
    played(_damaged_log)
