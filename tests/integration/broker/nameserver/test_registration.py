"""Registration in parts: brokers with more topics than a frame has room for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from unittest.mock import patch

import pytest

from broker_core.broker import registration as module
from broker_core.broker.registration import Registration
from broker_core.broker.topics.topics import Topics
from broker_core.clock import now_ns, wall_ms
from broker_core.errors import RequestTimeout
from broker_core.names import Topic
from broker_core.nameserver import server as nameserver_module
from broker_core.nameserver.routes import EXPIRY_NS, Routes
from broker_core.nameserver.routes import Registration as Taken
from broker_core.nameserver.server import NameServer
from broker_core.remoting.route_bodies import BrokerRegistration, TopicConfig
from broker_core.remoting_channel import RemotingChannel
from broker_core.tasks import spawn
from testkit.eventually import eventually


def config(name: str) -> TopicConfig:
    return TopicConfig(topic=Topic(name), read_queues=1, write_queues=1)


class Site:
    """A nameserver that records the registrations that it gets, and the topics of a broker."""

    def __init__(self, nameserver: NameServer) -> None:
        self.nameserver = nameserver
        self.topics = Topics()
        self.topics.offer_system_topics()
        self.parts: list[BrokerRegistration] = []
        self.registration = self.make()

    def make(self, broker_id: int = 0) -> Registration:
        return Registration(
            [self.nameserver.address],
            broker_name="broker-a",
            cluster_name="c",
            address=f"127.0.0.1:{10911 + broker_id}",
            topics=self.topics,
            broker_id=lambda: broker_id,
        )

    async def create(self, *names: str) -> None:
        for name in names:
            self.topics.put(config(name), now_ms=wall_ms())
        await self.registration.announce([Topic(name) for name in names])

    def routable(self, names: list[str]) -> bool:
        return all(self.nameserver.routes.route(Topic(name)) is not None for name in names)

    def taken(self) -> list[int]:
        """Return the numbers of topics in the registrations since the last call."""
        counts = [len(part.topics) for part in self.parts]
        self.parts.clear()
        return counts


@pytest.fixture
async def site(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    monkeypatch.setattr(module, "PART_TOPICS", 100)
    nameserver = NameServer()
    await nameserver.start()
    site = Site(nameserver)
    read = BrokerRegistration.from_json

    def recorded(data: bytes | memoryview) -> BrokerRegistration:
        part = read(data)
        site.parts.append(part)
        return part

    monkeypatch.setattr(nameserver_module.BrokerRegistration, "from_json", recorded)
    yield site
    await site.registration.close()
    await nameserver.close()


async def test_all_topics_are_registered_in_parts_with_a_version_each(site: Site) -> None:
    names = [f"topic-{number}" for number in range(250)]
    for name in names:
        site.topics.put(config(name), now_ms=7)
    await site.registration.start()
    versions = [part.version for part in site.parts]
    assert site.taken() == [100, 100, 55]
    assert len(set(versions)) == 3, "Apache's nameservers take a part only if its version is new"
    assert versions[-1] == site.topics.version
    assert site.routable(names)


async def test_a_new_topic_is_registered_alone_and_a_silent_round_registers_nothing(
    site: Site,
) -> None:
    names = [f"topic-{number}" for number in range(150)]
    for name in names:
        site.topics.put(config(name), now_ms=7)
    await site.registration.start()
    site.taken()
    await site.create("one")
    assert site.taken() == [1]
    await site.registration.refresh()
    assert site.taken() == []
    site.topics.remove(Topic("one"), now_ms=8)
    await site.registration.announce(())
    await site.registration.refresh()
    assert site.taken() == [0], "a deletion changes the version only"
    assert site.routable(names)


async def test_a_nameserver_forgets_what_was_deleted_while_it_was_away(site: Site) -> None:
    """The deletion never reached it, while its connection stayed: it would keep the route."""
    names = [f"topic-{number}" for number in range(250)]
    for name in names:
        site.topics.put(config(name), now_ms=7)
    await site.registration.start()
    for name in names[:2]:
        site.topics.remove(Topic(name), now_ms=8)
    with patch.object(RemotingChannel, "request", side_effect=RequestTimeout("no answer")):
        await site.registration.announce(())
    await site.registration.refresh()
    assert not site.routable(names[:1])
    assert not site.routable(names[1:2])
    assert site.routable(names[2:])
    await site.create("one")
    assert site.routable([*names[2:], "one"])


async def test_topics_created_together_share_a_registration(site: Site) -> None:
    await site.registration.start()
    site.taken()
    names = [f"topic-{number}" for number in range(90)]
    await asyncio.gather(*map(site.create, names))
    assert site.routable(names)
    assert len(site.taken()) <= 2


async def test_a_nameserver_that_lost_a_topic_gets_all_again(site: Site) -> None:
    """A client deletes a route after the topic was created again, or the nameserver restarted."""
    await site.registration.start()
    await site.create("one", "two")
    site.nameserver.routes.delete_topic(Topic("two"))
    assert not site.routable(["two"])
    await site.registration.refresh()
    assert site.routable(["one", "two"])
    port = int(site.nameserver.address.rpartition(":")[2])
    await site.nameserver.close()
    await site.create("meanwhile")
    site.nameserver = NameServer(port=port)
    await site.nameserver.start()
    await eventually(lambda: site.routable(["one", "two", "meanwhile"]))


async def restart(site: Site) -> None:
    port = int(site.nameserver.address.rpartition(":")[2])
    await site.nameserver.close()
    site.nameserver = NameServer(port=port)
    await site.nameserver.start()


async def lose_connection(site: Site) -> None:
    held = site.nameserver.routes.master("broker-a")
    assert held is not None
    assert isinstance(held.connection, RemotingChannel)
    await held.connection.close()


async def stay_silent(site: Site) -> None:
    site.nameserver.routes.expire(now_ns() + 2 * EXPIRY_NS)


async def connect_anew_before_the_loss_is_noticed(site: Site) -> None:
    held = site.nameserver.routes.master("broker-a")
    assert held is not None
    site.nameserver.routes.register(replace(held, connection="half-open"))


async def lose_a_topic(site: Site) -> None:
    site.nameserver.routes.delete_topic(Topic("one"))


@pytest.mark.parametrize(
    "lose",
    [
        *(restart, lose_connection, stay_silent),
        *(connect_anew_before_the_loss_is_noticed, lose_a_topic),
    ],
)
@pytest.mark.parametrize("change", ["created", "deleted"])
async def test_a_change_after_a_loss_comes_with_all_topics(
    site: Site, lose: Callable[[Site], Awaitable[None]], change: str
) -> None:
    """Alone, but with the version of the table, it would pass for all topics for ten minutes."""
    await site.registration.start()
    await site.create("one", "two")
    await lose(site)
    if change == "created":
        await site.create("next")
    else:
        site.topics.remove(Topic("two"), now_ms=wall_ms())
        await site.registration.announce(())
    kept = "next" if change == "created" else "one"
    assert site.routable(["one", kept])


async def test_a_slave_that_registers_on_a_new_connection_registers_all_topics(site: Site) -> None:
    """A slave registers in each round, to learn of its master, mostly without topics."""
    slave = site.make(broker_id=1)
    await slave.start()
    await site.create("one")
    await slave.refresh()
    await site.registration.close()
    site.registration = slave
    assert site.routable(["one"])
    await restart(site)
    await slave.announce(())
    assert site.routable(["one"])


async def test_parts_that_a_lost_connection_separates_are_registered_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"topic-{number}" for number in range(250)]
    for name in names:
        site.topics.put(config(name), now_ms=7)
    register, left = Routes.register, [2]

    def cut(routes: Routes, registration: Taken) -> Taken | None:
        left[0] -= 1
        if left[0] == 0 and isinstance(registration.connection, RemotingChannel):
            registration.connection.abort()
        return register(routes, registration)

    monkeypatch.setattr(Routes, "register", cut)
    await site.registration.start()
    await site.registration.refresh()
    assert site.routable(names)


async def test_all_topics_announced_during_a_registration_follow_it(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slave replaces its whole table by the master's at any moment."""
    await site.registration.start()
    register, announced = Routes.register, []

    def replace_table(routes: Routes, registration: Taken) -> Taken | None:
        if not announced:
            site.topics.put(config("replaced"), now_ms=wall_ms())
            announced.append(spawn(site.registration.announce(None), name="announce"))
        return register(routes, registration)

    monkeypatch.setattr(Routes, "register", replace_table)
    await site.create("one")
    await asyncio.gather(*announced)
    assert site.routable(["one", "replaced"])


async def test_a_failed_announcement_is_made_up_for(site: Site) -> None:
    """The next topic's registration must not hide that one is missing."""
    await site.registration.start()
    await site.create("one")
    address = site.nameserver.address
    held = site.registration
    port = int(address.rpartition(":")[2])
    await site.nameserver.close()
    await site.create("lost")
    site.nameserver = NameServer(port=port)
    await site.nameserver.start()
    await site.create("next")
    assert site.registration is held
    assert site.routable(["one", "lost", "next"])


async def test_a_slave_learns_of_its_master_though_nothing_changed(site: Site) -> None:
    slave = site.make(broker_id=1)
    await slave.start()
    assert slave.master_address is None
    await site.registration.start()
    await slave.refresh()
    assert slave.master_address == "127.0.0.1:10911"
    await slave.close()
