"""Renewals of the locks of all groups: together where the broker can, otherwise spread."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from broker_core.clock import now_ns
from broker_core.errors import BrokerError, RequestTimeout
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.codes import ResponseCode
from broker_core.remoting.lock_renewal import LockName, lock_names_from_json
from broker_core.tasks import cancel_and_wait, spawn
from proxy.settings.proxy_settings import Settings
from proxy.upstream.ownership import lock_renewals
from proxy.upstream.ownership.lock_renewals import LockRenewals

RENEWAL_S = 2.0


class Owned:
    """A queue whose lock is held."""

    def __init__(self, group: Group, number: int) -> None:
        self.group = group
        self.queue = QueueName(Topic("orders"), "broker-a", number)
        self.lock_name: LockName = group, self.queue.topic, number
        self.until_ns: list[int] = []

    def renewed(self, until_ns: int) -> None:
        self.until_ns.append(until_ns)


class Locks:
    """The locks of one group."""

    def __init__(self, name: str, queues: int) -> None:
        self.group = Group(name)
        self.owned = [Owned(self.group, number) for number in range(queues)]
        self.plain = True
        self.alone_ns: list[int] = []  # times of renewals of this group by itself
        self.resumed = 0

    @property
    def brokers(self) -> set[str]:
        return {each.queue.broker for each in self.owned}

    def renewable(self, broker: str) -> list[Any] | None:
        return self.owned if self.plain else None

    async def renew(self, broker: str) -> None:
        self.alone_ns.append(now_ns())

    def resume(self) -> None:
        self.resumed += 1


class Site:
    def __init__(self, groups: int, queues: int = 3) -> None:
        self.locks = {Group(f"g{n}"): Locks(f"g{n}", queues) for n in range(groups)}
        self.asked: list[list[LockName]] = []
        self.error: Exception | None = None
        self.refused: set[LockName] = set()
        settings = Settings.model_validate({"lock": {"renewal_s": RENEWAL_S}})
        context: Any = SimpleNamespace(client=self, settings=settings)
        self.renewals = LockRenewals(context, self.locks)

    async def renew_locks(
        self, broker: str, locks: bytes, *, timeout_s: float
    ) -> frozenset[LockName]:
        self.asked.append(lock_names_from_json(locks))
        if self.error is not None:
            raise self.error
        return frozenset(self.refused)

    def alone(self) -> list[str]:
        return [name for name, locks in self.locks.items() if locks.alone_ns]

    async def rounds(self, count: int) -> None:
        await asyncio.sleep(count * RENEWAL_S + 0.01)


@asynccontextmanager
async def running(site: Site) -> AsyncIterator[Site]:
    task = spawn(site.renewals.run(), name="renewals")
    yield site
    await cancel_and_wait(task)


async def test_one_request_renews_the_locks_of_all_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock_renewals, "PART", 100)
    async with running(Site(groups=50)) as site:
        await site.rounds(3)
        assert [len(each) for each in site.asked] == [100, 50] * 3
        renewed = [owned.until_ns for locks in site.locks.values() for owned in locks.owned]
        assert {len(each) for each in renewed} == {3}
        assert site.alone() == []


async def test_locks_that_were_not_renewed_are_requested_again_by_their_group() -> None:
    async with running(Site(groups=4)) as site:
        lost = site.locks[Group("g2")].owned[1]
        site.refused.add(lost.lock_name)
        site.locks[Group("g3")].plain = False
        await site.rounds(1)
        assert lost.until_ns == []
        assert len(site.locks[Group("g2")].owned[0].until_ns) == 1
        assert site.asked[0] == [
            each.lock_name for n in range(3) for each in site.locks[Group(f"g{n}")].owned
        ]
        await asyncio.sleep(RENEWAL_S)
        assert site.alone() == ["g2", "g3"]


async def test_brokers_without_that_request_are_asked_group_by_group_over_the_interval() -> None:
    async with running(Site(groups=10)) as site:
        site.error = BrokerError(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "unknown")
        await site.rounds(4)
        assert len(site.asked) == 1
        first = [locks.alone_ns[0] for locks in site.locks.values()]
        steps = {round((later - first[0]) / 1e9, 1) for later in first}
        assert steps == {round(n * RENEWAL_S / 10, 1) for n in range(10)}
        assert {len(locks.alone_ns) for locks in site.locks.values()} <= {3, 4}
        site.error = None
        site.renewals.broker_lost("broker-a")
        await site.rounds(2)
        assert len(site.asked) == 3, "another version may answer now"


async def test_a_broker_that_does_not_answer_renews_nothing() -> None:
    async with running(Site(groups=2)) as site:
        site.error = RequestTimeout("no answer")
        await site.rounds(2)
        assert len(site.asked) == 2
        assert all(not owned.until_ns for locks in site.locks.values() for owned in locks.owned)
        assert site.alone() == []


class Broken(Locks):
    """A group with a bug."""

    def renewable(self, broker: str) -> list[Any] | None:
        raise ValueError("a bug")

    def resume(self) -> None:
        raise ValueError("a bug")


class Unnamed(Locks):
    """Another one: not even its brokers are known."""

    @property
    def brokers(self) -> set[str]:
        raise ValueError("a bug")


async def test_a_bug_with_one_group_costs_no_other_group_its_locks() -> None:
    site = Site(groups=3)
    site.locks[Group("g0")] = Broken("g0", 1)
    site.locks[Group("g1")] = Unnamed("g1", 1)
    async with running(site):
        await site.rounds(2)
        assert [len(owned.until_ns) for owned in site.locks[Group("g2")].owned] == [2, 2, 2]
        assert site.alone() == ["g0"]


async def test_a_bug_with_one_lock_costs_no_other_one() -> None:
    class Faulty(Owned):
        def renewed(self, until_ns: int) -> None:
            raise ValueError("a bug")

    site = Site(groups=1)
    locks = site.locks[Group("g0")]
    locks.owned[0] = Faulty(locks.group, 0)
    async with running(site):
        await site.rounds(2)
        assert [len(owned.until_ns) for owned in locks.owned] == [0, 2, 2]
