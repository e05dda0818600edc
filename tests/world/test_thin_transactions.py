"""Transactions of thin clients: producers, proxies and brokers end between half message and
outcome.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from broker_core.client import BrokerClient
from broker_core.names import Group, Topic
from broker_core.remoting.half_place import HalfPlace
from testkit.simulation.world import ClientNode, ProxyNode, World, simulate
from tests.support.transactions import GIVEN_UP, visible
from thin_client import AsyncProducer, Decision, PreparedMessage, SendFailed, Transactions

TOPIC, GROUP = Topic("invoices"), Group("billing")
BROKER = {"transaction_timeout_s": 1, "transaction_check_interval_s": 5, "transaction_check_max": 3}


class Crash(Exception):
    """An error in an application's work."""


#: Retention deletes a message some seconds after it was sent, if others follow.
SMALL_LOG = {
    "segment_bytes": 192 * 1024,
    "max_message_bytes": 96 * 1024,
    "retention_bytes": 400_000,
}


@dataclass
class Site:
    """A world with two proxies, and the database of its producers."""

    world: World
    client: BrokerClient
    booked: set[str] = field(default_factory=set)  # ids of messages whose work is done
    asked: list[tuple[str, PreparedMessage]] = field(default_factory=list)  # with the producer
    unknown: bool = False

    def producer(
        self,
        name: str,
        *proxies: int,
        topic: str = TOPIC,
        check_after_s: int = 0,
        token: str | None = None,
    ) -> AsyncProducer:
        async def check(message: PreparedMessage) -> Decision:
            self.asked.append((name, message))
            if self.unknown:
                return Decision.UNKNOWN
            return Decision.COMMIT if message.message_id in self.booked else Decision.ROLLBACK

        addresses = [self.world.proxies[each].thrift for each in proxies]
        transactions = Transactions(
            group=GROUP, topics=[topic], check=check, check_after_s=check_after_s
        )
        return AsyncProducer(addresses, transactions=transactions, token=token)

    async def run(self, name: str, work: Coroutine[Any, Any, Any]) -> Any:
        """Run *work* in the process *name*."""
        node = self.world.nodes.get(name) or self.world.add(ClientNode, name)
        if node.process is None:
            node.new_process()
        return await node.do(work)

    def begin(self, name: str, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        return asyncio.get_running_loop().create_task(self.run(name, work))

    async def seen(self) -> list[bytes]:
        async def read() -> list[bytes]:
            queues = await self.client.queues(TOPIC)
            return [message.body for message in await visible(self.client, queues)]

        return await self.run("reader", read())

    async def members(self) -> list[str]:
        """Return the ids of the group's producers at the broker."""
        return await self.run("reader", self.client.producer_ids(GROUP, TOPIC))


def in_world(
    main: Callable[[Site], Awaitable[None]],
    *,
    settings: Mapping[str, Any] | None = None,
    **broker: Any,
) -> None:
    """Run *main* in a world with these settings of its proxies and its broker."""

    async def run(world: World) -> None:
        world.write_settings([{"name": "readers", "topics": [{"name": TOPIC}]}])
        world.configure_proxies(settings or {})
        await world.start({"broker-a": {**BROKER, **broker}})
        await world.make_topic(TOPIC, 2)
        for name in ("proxy-1", "proxy-2"):
            await world.add(ProxyNode, name).start()
        client = BrokerClient(
            nameservers=[world.nameserver.address], client_id="reader@1", request_timeout_s=5
        )
        site = Site(world, client)
        await site.run("reader", client.start())
        await main(site)
        assert world.failures == []

    simulate(run, seed=3)


async def until(condition: Callable[[], Awaitable[bool]], *, within_s: float = 60) -> None:
    async with asyncio.timeout(within_s):
        while not await condition():  # noqa: ASYNC110  # in virtual time
            await asyncio.sleep(0.5)


async def book(site: Site, producer: AsyncProducer, then: Callable[[], object]) -> None:
    """Do the work of a transaction, then call *then* before its commit."""
    async with producer.transaction(TOPIC, b"message", key="k") as transaction:
        site.booked.add(transaction.message_id)
        then()


async def wait_in_block(producer: AsyncProducer, wait_s: float) -> None:
    async with producer.transaction(TOPIC, b"message", key="k"):
        await asyncio.sleep(wait_s)


def crash() -> None:
    raise Crash


def test_a_committed_message_is_seen_once_and_a_rolled_back_one_never() -> None:
    async def main(site: Site) -> None:
        async def work() -> None:
            async with site.producer("p", 0, check_after_s=60) as producer:
                async with producer.transaction(TOPIC, b"kept", key="k") as kept:
                    assert await site.seen() == []
                assert await site.seen() == [b"kept"]
                async with producer.transaction(TOPIC, b"dropped", key="k") as dropped:
                    await dropped.rollback()
                    await dropped.rollback()
                assert kept.message_id != dropped.message_id
                await asyncio.sleep(60)  # the broker would have asked by now

        await site.run("p", work())
        assert await site.seen() == [b"kept"]
        assert site.asked == []

    in_world(main)


def test_another_producer_answers_for_one_that_died_before_its_commit() -> None:
    """The check goes through another proxy; it shows the message as a consumer would see it."""

    async def main(site: Site) -> None:
        prepared = asyncio.Event()

        async def die() -> None:
            async with site.producer("died", 0).transaction(
                TOPIC, b"booked", key="k", tag="t", properties={"colour": "red"}
            ) as transaction:
                site.booked.add(transaction.message_id)
                prepared.set()
                await asyncio.sleep(1000)

        async def live() -> None:
            async with site.producer("lives", 1):
                await asyncio.sleep(1000)

        died = site.begin("died", die())
        await prepared.wait()
        site.world.nodes["died"].kill()
        site.world.proxies[0].kill()
        await asyncio.wait([died])
        died.exception()
        assert await site.seen() == []
        lives = site.begin("lives", live())
        await until(lambda: _are(site.seen(), [b"booked"]))
        ((name, message),) = site.asked
        assert (name, message.topic, message.body, message.key) == ("lives", TOPIC, b"booked", "k")
        assert (message.tag, message.properties) == ("t", {"colour": "red"})
        assert {message.message_id} == site.booked
        assert HalfPlace.from_text(message.transaction).asked
        lives.cancel()

    in_world(main)


@pytest.mark.parametrize("killed", [False, True], ids=["restarts", "is killed"])
def test_a_commit_finds_the_broker_that_restarted_meanwhile(killed: bool) -> None:
    async def main(site: Site) -> None:
        (broker,) = site.world.brokers

        async def work() -> None:
            async with (
                site.producer("p", 0, check_after_s=60) as producer,
                producer.transaction(TOPIC, b"kept", key="k"),
            ):
                if killed:
                    broker.kill()
                else:
                    await broker.stop()
                await broker.start()

        await site.run("p", work())
        assert await site.seen() == [b"kept"]

    in_world(main)


def test_a_commit_goes_through_another_proxy_if_the_first_one_died() -> None:
    async def main(site: Site) -> None:
        async def work() -> None:
            async with (
                site.producer("p", 0, 1, check_after_s=60) as producer,
                producer.transaction(TOPIC, b"kept", key="k"),
            ):
                site.world.proxies[0].kill()

        await site.run("p", work())
        assert await site.seen() == [b"kept"]

    in_world(main)


def test_a_producer_that_has_lost_all_proxies_is_asked_once_one_is_back() -> None:
    """The commit fails with an unknown outcome, and the check makes it good."""

    async def main(site: Site) -> None:
        (proxy, other) = site.world.proxies

        async def work() -> None:
            async with site.producer("p", 0) as producer:
                with pytest.raises(SendFailed, match="committing a message to invoices") as lost:
                    await book(site, producer, proxy.kill)
                assert lost.value.outcome_unknown
                await proxy.start()
                await until(lambda: _are(site.seen(), [b"message"]))

        other.kill()
        await site.run("p", work())
        assert [name for name, _ in site.asked] == ["p"]

    in_world(main)


@pytest.mark.parametrize("booked", [True, False])
def test_after_an_exception_the_check_decides(booked: bool) -> None:
    async def main(site: Site) -> None:
        async def work() -> None:
            async with site.producer("p", 0) as producer:
                with pytest.raises(Crash):
                    await book(site, producer, crash)
                if not booked:
                    site.booked.clear()
                await until(lambda: _are_asked(site, 1))
                await asyncio.sleep(20)

        await site.run("p", work())
        assert len(site.asked) == 1
        assert await site.seen() == ([b"message"] if booked else [])

    in_world(main)


def test_an_unknown_outcome_is_asked_for_up_to_the_limit_of_the_broker() -> None:
    async def main(site: Site) -> None:
        site.unknown = True

        async def work() -> None:
            async with site.producer("p", 0) as producer:
                with pytest.raises(Crash):
                    await book(site, producer, crash)
                await asyncio.sleep(60)

        await site.run("p", work())
        assert len(site.asked) == BROKER["transaction_check_max"]
        assert await site.seen() == []
        (given_up,) = await site.run("reader", visible(site.client, [GIVEN_UP]))
        assert given_up.body == b"message"

    in_world(main)


def test_a_block_that_runs_long_is_not_checked_by_its_own_producer() -> None:
    async def main(site: Site) -> None:
        async def work() -> None:
            async with (
                site.producer("p", 0) as producer,
                producer.transaction(TOPIC, b"kept", key="k"),
            ):
                await asyncio.sleep(12)

        await site.run("p", work())
        assert site.asked == []
        assert await site.seen() == [b"kept"]

    in_world(main)


def test_a_commit_after_the_broker_gave_the_message_up_is_refused() -> None:
    async def main(site: Site) -> None:
        async def work() -> None:
            async with site.producer("p", 0) as producer:
                with pytest.raises(SendFailed, match="give up") as refused:
                    await wait_in_block(producer, 60)
                assert (refused.value.code, refused.value.outcome_unknown) == (72, False)

        await site.run("p", work())
        assert await site.seen() == []

    in_world(main)


def test_the_proxy_is_a_producer_of_the_group_while_a_client_is_connected() -> None:
    async def main(site: Site) -> None:
        leave = asyncio.Event()

        async def work() -> None:
            async with site.producer("p", 0):
                await leave.wait()

        assert await site.members() == []
        task = site.begin("p", work())
        await until(lambda: _count(site.members(), 1), within_s=2)
        await asyncio.sleep(130)  # brokers forget a producer that is silent for 120 s
        assert await _count(site.members(), 1)
        leave.set()
        await task
        await until(lambda: _count(site.members(), 0), within_s=2)

    in_world(main)


def test_a_proxy_that_stops_leaves_at_once_and_the_client_continues_at_another() -> None:
    async def main(site: Site) -> None:
        async def work() -> None:
            async with site.producer("p", 0, 1):
                await asyncio.sleep(1000)

        task = site.begin("p", work())
        await until(lambda: _count(site.members(), 1), within_s=2)
        (before,) = await site.members()
        await site.world.proxies[0].stop()
        await until(lambda: _count(site.members(), 1), within_s=5)
        (after,) = await site.members()
        assert after != before
        task.cancel()

    in_world(main)


def test_messages_of_a_key_are_in_the_order_of_their_commits() -> None:
    async def main(site: Site) -> None:
        async def work() -> None:
            async with site.producer("p", 0) as producer:
                async with producer.transaction(TOPIC, b"2", key="k"):
                    await producer.send(TOPIC, b"1", key="k")
                await producer.send(TOPIC, b"3", key="k")

        await site.run("p", work())
        assert await site.seen() == [b"1", b"2", b"3"]

    in_world(main)


async def _are(found: Awaitable[list[bytes]], bodies: list[bytes]) -> bool:
    return await found == bodies


async def _are_asked(site: Site, count: int) -> bool:
    return len(site.asked) == count


async def _count(found: Awaitable[list[str]], count: int) -> bool:
    return len(await found) == count


def test_a_transaction_ends_as_it_should_after_retention_deleted_its_first_half_message() -> None:
    """Also for a caller with a token, whose half message the proxy compares if it is there."""
    tokens = [{"name": "ann", "sha256": hashlib.sha256(b"ann").hexdigest()}]

    async def outlive_retention(producer: AsyncProducer) -> None:
        for _ in range(60):
            await producer.send("others", bytes(50_000), key="k")
            await asyncio.sleep(2)
        await asyncio.sleep(70)

    async def main(site: Site) -> None:
        await site.world.make_topic("others", 1)

        async def work() -> None:
            async with site.producer("p", 0, check_after_s=3600, token="ann") as producer:
                async with producer.transaction(TOPIC, b"dropped", key="k") as dropped:
                    await outlive_retention(producer)
                    await dropped.rollback()
                async with producer.transaction(TOPIC, b"kept", key="k"):
                    await outlive_retention(producer)

        await site.run("p", work())
        assert await site.seen() == [b"kept"]

    in_world(main, settings={"tokens": tokens}, **SMALL_LOG)
