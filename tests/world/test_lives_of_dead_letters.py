"""The gateway's own topics, deleted and created again while operators work."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from broker_core.names import QueueName
from broker_core.remoting.message import OutgoingMessage
from proxy.core.access.audit_record import AUDIT_TOPIC, AuditWish, Change
from proxy.history.record import NullHistory
from proxy.listening import Addresses
from proxy.upstream.audit import Audit
from testkit.gateway import Gateway, run_gateway
from tests.support.redrives import DEAD_LETTERS, PATIENT, ask, bodies, until_sent


async def die(gateway: Gateway, *numbers: int) -> None:
    """Store dead letters with these numbers, as the gateway writes them."""
    queue = QueueName(gateway.dead_letter_topic, gateway.cluster.broker_name, 0)
    await gateway.client.create_topic(queue.topic, queues=1, broker=queue.broker)
    about: dict[str, Any] = {"DLQ_ORIGIN_TOPIC": gateway.topic, "ORDERLANE_QUEUE": "broker-a_0"}
    for number in numbers:
        letter = OutgoingMessage(queue.topic, b"%d" % number, key="k", properties=about)
        await gateway.client.send(queue, letter)


async def ended(at: Addresses, gateway: Gateway) -> None:
    """Return when the redrive is done; a failed one is requested again."""
    async with asyncio.timeout(60):
        while (shown := (await ask(at, gateway, "?limit=1"))["redrive"])["state"] != "done":
            if shown["state"] == "failed":
                await ask(at, gateway, "/redrive")
            await asyncio.sleep(0.5)


@pytest.mark.parametrize(("sent", "again"), [(3, 2), (3, 20), (32, 40)])
async def test_a_redrive_passes_over_no_dead_letter_of_a_topic_that_was_created_again(
    tmp_path: Path, sent: int, again: int
) -> None:
    """Whatever its progress in the former life: it starts over, or fails and the next one does."""
    async with run_gateway(tmp_path, queues=1, topic=DEAD_LETTERS, lock=PATIENT) as gateway:
        _, at = await gateway.start_proxy()
        await die(gateway, *range(64))
        await ask(at, gateway, "/redrive", rate=16)
        await until_sent(at, gateway, sent)
        await gateway.client.deletions.delete_topic(gateway.dead_letter_topic)
        new = range(100, 100 + again)
        await die(gateway, *new)
        await ended(at, gateway)
        found = await bodies(gateway, stored=sent + again)
        assert [number for number in found if number >= 100] == [*new]


async def test_a_follower_of_the_audit_topic_sees_records_after_it_was_created_again(
    tmp_path: Path,
) -> None:
    async with run_gateway(tmp_path, queues=1) as gateway:
        audit = Audit(gateway.client, NullHistory())

        async def change(reason: str) -> None:
            about = Change("me", "a verb", gateway.group, reason, before={}, after={})
            async with audit.change(about):
                pass

        for number in range(5):
            await change(f"old {number}")
        page = await audit.read(AuditWish(limit=100))
        assert len(page.records) == 5
        await change("unread")
        await gateway.client.deletions.delete_topic(AUDIT_TOPIC)
        await change("new 0")
        await change("new 1")
        page = await audit.read(AuditWish(limit=100), position=page.position)
        assert [record.change.reason for record in page.records] == ["new 0", "new 1"]
        await change("new 2")
        page = await audit.read(AuditWish(limit=100), position=page.position)
        assert [record.change.reason for record in page.records] == ["new 2"]
