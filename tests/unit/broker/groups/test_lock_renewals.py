"""Renewal of all locks of a client by one request."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from broker_core.broker.groups import renewal_processor as module
from broker_core.broker.groups.queue_locks import QueueLocks
from broker_core.broker.groups.renewal_processor import RenewalProcessor
from broker_core.broker.topics.directory import TopicDirectory
from broker_core.broker.topics.topics import Topics
from broker_core.errors import InvalidCommand
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.codes import RequestCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.lock_renewal import (
    LockName,
    RenewLocksHeader,
    lock_names_from_json,
    lock_names_to_json,
)
from broker_core.remoting.route_bodies import TopicConfig
from broker_core.store.journaled_table import JournaledTable

S = 1_000_000_000
EXPIRY = 10 * S
BILLING, ORDERS = Group("billing"), Topic("orders")


def queue(number: int) -> QueueName:
    return QueueName(ORDERS, "broker-a", number)


class Saver:
    """Records the changes that had to be saved; *meanwhile* runs during a save."""

    def __init__(self) -> None:
        self.saved: list[int | None] = []
        self.meanwhile: Any = None

    async def save(self, change: int | None = None) -> None:
        self.saved.append(change)
        if self.meanwhile is not None:
            self.meanwhile()


class Site:
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0
        monkeypatch.setattr(module, "now_ns", lambda: self.now)
        self.topics = Topics()
        self.topics.put(TopicConfig(topic=ORDERS, read_queues=4, write_queues=4), now_ms=1)
        self.locks = QueueLocks(EXPIRY)
        self.saver = Saver()

        async def announce(_: Iterable[Topic] | None) -> None:
            pass

        table = JournaledTable(folder / "topics.json")
        self.processor = RenewalProcessor(
            self.locks,
            saver=self.saver,
            directory=TopicDirectory(self.topics, table, announce=announce),
            broker_name="broker-a",
        )

    async def renew(self, client_id: str, *names: LockName) -> list[LockName]:
        """Return the locks that were not renewed."""
        return await self.ask(client_id, lock_names_to_json(names))

    async def ask(self, client_id: str, body: bytes) -> list[LockName]:
        request = RemotingCommand(
            RequestCode.RENEW_LOCKS,
            ext=RenewLocksHeader(client_id=client_id).to_ext(),
            body=body,
        )
        handler: Any = self.processor.handlers()[RequestCode.RENEW_LOCKS]
        return lock_names_from_json((await handler(request, None)).body)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(tmp_path, monkeypatch)


async def test_locks_of_all_groups_are_renewed_and_those_of_others_are_not(site: Site) -> None:
    other = Group("other")
    grant = site.locks.lock(BILLING, "one", [queue(0), queue(1)], now_ns=0)
    site.locks.lock(other, "one", [queue(0)], now_ns=0)
    site.locks.lock(other, "two", [queue(1)], now_ns=0)
    wanted = [(BILLING, ORDERS, 0), (BILLING, ORDERS, 1), (other, ORDERS, 0), (other, ORDERS, 1)]
    for _ in range(5):
        site.now += 8 * S
        site.locks.lock(other, "two", [queue(1)], now_ns=site.now)
        assert await site.renew("one", *wanted) == [(other, ORDERS, 1)]
    assert site.saver.saved[0] is not None
    assert site.saver.saved[0] >= grant.to_save
    assert site.locks.holder(BILLING, queue(1), now_ns=site.now + EXPIRY) == "one"


async def test_a_renewal_takes_no_lock(site: Site) -> None:
    """One that arrives after the release would keep the lock without an owner."""
    site.locks.lock(BILLING, "one", [queue(0)], now_ns=0)
    site.locks.unlock(BILLING, "one", [queue(0)])
    assert await site.renew("one", (BILLING, ORDERS, 0)) == [(BILLING, ORDERS, 0)]
    assert site.locks.holder(BILLING, queue(0), now_ns=0) is None


async def test_queues_that_no_longer_exist_are_not_renewed(site: Site) -> None:
    site.locks.lock(BILLING, "one", [queue(0)], now_ns=0)
    name = BILLING, ORDERS, 0
    assert await site.renew("one", name) == []
    site.topics.remove(ORDERS, now_ms=2)
    assert await site.renew("one", name) == [name]
    site.topics.put(TopicConfig(topic=ORDERS, read_queues=4, write_queues=4), now_ms=3)
    assert await site.renew("one", name) == []


async def test_a_lock_that_changes_hands_during_the_save_is_not_renewed(site: Site) -> None:
    site.locks.lock(BILLING, "one", [queue(0)], now_ns=0)

    def expire() -> None:
        site.now += 2 * EXPIRY
        site.locks.lock(BILLING, "two", [queue(0)], now_ns=site.now)

    site.saver.meanwhile = expire
    assert await site.renew("one", (BILLING, ORDERS, 0)) == [(BILLING, ORDERS, 0)]


async def test_few_bodies_are_kept_decoded(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REMEMBERED", 2)
    read = []
    decode = module.lock_names_from_json
    monkeypatch.setattr(
        module, "lock_names_from_json", lambda body: read.append(body) or decode(body)
    )
    for client, decoded in (("a", 1), ("b", 2), ("a", 2), ("c", 3), ("b", 4), ("a", 5)):
        await site.renew(client, (BILLING, ORDERS, 0))
        assert len(read) == decoded
    await site.renew("a", (BILLING, ORDERS, 1))
    await site.renew("a", (BILLING, ORDERS, 0))
    assert len(read) == 6, "another body is decoded, and both are kept"


async def test_decoded_locks_are_forgotten_by_their_bytes(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REMEMBERED_BYTES", 100)
    for number in range(20):
        await site.renew(f"client-{number}", *((BILLING, ORDERS, each) for each in range(number)))
        assert site.processor.remembered_bytes <= 100


async def test_invalid_bodies_take_no_room_from_renewals(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REMEMBERED_BYTES", 100)
    site.locks.lock(BILLING, "one", [queue(0)], now_ns=0)
    for _ in range(3):
        with pytest.raises(InvalidCommand):
            await site.ask("stranger", b"[" * 90)
    assert site.processor.remembered_bytes == 0
    assert await site.renew("one", (BILLING, ORDERS, 0)) == []


@pytest.mark.parametrize(
    "body", [b"[]", b'{"g": 1}', b'{"g": {"t": [true]}}', b'{"g": {"t": "0"}}']
)
def test_other_bodies_are_refused(body: bytes) -> None:
    with pytest.raises(InvalidCommand):
        lock_names_from_json(body)
