"""Operators' changes are recorded in the audit topic before they are made."""

from __future__ import annotations

import asyncio
from pathlib import Path
from uuid import uuid4

import pytest

from broker_core.client import BrokerClient
from broker_core.errors import RequestTimeout
from broker_core.names import QueueName
from proxy.core.access.audit_record import AuditWish, Change, Phase
from proxy.errors import Refused, Unavailable
from proxy.history.record import NullHistory
from proxy.upstream.audit import Audit
from testkit.broker_process import run_broker
from testkit.brokers import Brokers
from testkit.lanes import Notes


def change(verb: str = "key pause", **others: object) -> Change:
    given = {"actor": "ann", "group": "billing", "reason": "it floods", "after": "paused"}
    return Change(verb=verb, **{**given, **others})  # type: ignore[arg-type]


async def test_a_change_is_recorded_before_it_is_made(tmp_path: Path, brokers: Brokers) -> None:
    async with brokers.run(tmp_path) as cluster:
        client = BrokerClient(
            nameservers=[cluster.nameserver], client_id="proxy@1#1", request_timeout_s=20
        )
        await client.start()
        try:
            notes, group = (
                Notes(),
                f"billing-{uuid4().hex}",
            )  # brokers may be shared, and so is the topic
            ours = AuditWish(group=group)
            audit = Audit(client, notes)
            async with audit.change(change(group=group)) as first:
                seen = (await audit.read(ours)).records
            assert [(each.id, each.phase) for each in seen] == [(first.id, Phase.BEGIN)]
            assert [each["id"] for each in notes.of("audit")] == [first.id]
            async with audit.change(change("key skip", group=group, after=5)) as second:
                second.ended_as(6)  # with another result
            with pytest.raises(ValueError, match="lost"):
                async with audit.change(change("key retry", group=group)):
                    raise ValueError("the queue was lost")
            page = await audit.read(ours)
            told = [(each.change.verb, each.phase, each.change.after) for each in page.records]
            assert told == [
                ("key pause", Phase.BEGIN, "paused"),
                ("key skip", Phase.BEGIN, 5),
                ("key skip", Phase.END, 6),
                ("key retry", Phase.BEGIN, "paused"),
                ("key retry", Phase.END, None),
            ]
            assert page.records[-1].failed == "the queue was lost"
            newest = await audit.read(AuditWish(group=group, limit=1), position=page.position)
            assert newest.records == []
            async with Audit(client, NullHistory()).change(change(group=f"{group}-2")):
                other = AuditWish(group=f"{group}-2")
                async with asyncio.timeout(30):  # a broker may show other clients' records later
                    while not (  # noqa: ASYNC110  # nothing there to be notified by
                        found := await audit.read(other, position=page.position)
                    ).records:
                        await asyncio.sleep(0.02)
            assert [each.change.group for each in found.records] == [f"{group}-2"]
        finally:
            await client.close()


async def test_a_page_says_whether_older_records_are_left_out(tmp_path: Path) -> None:
    async with run_broker(tmp_path) as cluster:
        client = BrokerClient(nameservers=[cluster.nameserver], client_id="proxy@1#1")
        await client.start()
        try:
            audit = Audit(client, NullHistory(), most_read=3)
            assert (await audit.read(AuditWish())).complete  # no topic yet
            for group in ("billing", "shipping", "shipping"):
                async with audit.change(change(group=group)):
                    pass
            page = await audit.read(AuditWish(limit=3))
            assert (len(page.records), page.complete) == (3, True)
            page = await audit.read(AuditWish(limit=2))
            assert (len(page.records), page.complete) == (2, False)
            page = await audit.read(AuditWish(group="billing", limit=1))
            assert (len(page.records), page.complete) == (1, True)
            for _ in range(3):
                async with audit.change(change(group="shipping")):
                    pass
            # The record of billing is older than those that are read.
            found = await audit.read(AuditWish(group="billing"))
            assert (found.records, found.complete) == ([], False)
            newer = await audit.read(AuditWish(), position=page.position)
            assert (len(newer.records), newer.complete) == (3, True)
        finally:
            await client.close()


async def test_a_record_just_written_is_read_although_brokers_show_it_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Apache RocketMQ shows a message a moment after it is stored."""
    async with run_broker(tmp_path) as cluster:
        client = BrokerClient(
            nameservers=[cluster.nameserver], client_id="proxy@1#1", request_timeout_s=20
        )
        await client.start()
        try:
            audit, shown = Audit(client, NullHistory()), client.max_offset
            late = iter(range(5))

            async def shown_late(queue: QueueName) -> int:
                return await shown(queue) if next(late, None) is None else 0

            monkeypatch.setattr(client, "max_offset", shown_late)
            async with audit.change(change()) as first:
                assert [each.id for each in (await audit.read(AuditWish())).records] == [first.id]
        finally:
            await client.close()


async def test_a_change_that_cannot_be_recorded_is_not_made(
    tmp_path: Path, brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with brokers.run(tmp_path) as cluster:
        client = BrokerClient(
            nameservers=[cluster.nameserver], client_id="proxy@1#1", request_timeout_s=20
        )
        await client.start()
        try:
            audit, done = Audit(client, NullHistory()), []
            before = (await audit.read(AuditWish())).records  # brokers may be shared
            with pytest.raises(
                Refused, match=r"^key pause needs a reason for the audit: state why"
            ):
                async with audit.change(change(reason="  ")):
                    done.append("without a reason")

            async def no_answer(*_: object, **__: object) -> None:
                raise RequestTimeout("no answer")

            monkeypatch.setattr(client, "send", no_answer)
            with pytest.raises(Unavailable, match=r"^key pause was not done, .*: no answer$"):
                async with audit.change(change()):
                    done.append("without a record")
            assert done == []
            assert (await audit.read(AuditWish())).records == before
        finally:
            await client.close()
