"""Verbs whose queue or key changed while their audit record was stored.

Uses real upstream components and in-memory brokers.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from proxy.errors import OrderlaneError, WrongState
from proxy.operator.key_verbs import KeyVerbs
from proxy.operator.lease_desk import LeaseDesk, LeaseWish
from proxy.operator.offset_desk import OffsetDesk, SkipWish
from proxy.upstream.ownership.owner_book import OwnerBook
from testkit.eventually import eventually
from testkit.lanes import TOPIC
from tests.integration.upstream.upstreams import BILLING, Upstream, once, one_queue, upstream


def book_and_lanes(us: Upstream) -> tuple[OwnerBook, Any]:
    book = OwnerBook(us.client, us.context.log)
    return book, SimpleNamespace(named=lambda _: us.lane)


async def test_no_note_is_confirmed_for_a_key_that_was_resumed_meanwhile() -> None:
    brokers, queue = one_queue()
    async with upstream(brokers) as us:
        owned, _ = await us.owned(queue)
        assert owned.parking is not None
        with pytest.raises(WrongState, match="key 'k' is neither paused nor parked there any more"):
            await KeyVerbs(us.context, owned.parking).note(b"k", "the bank calls back")


async def test_no_lease_is_revoked_after_the_last_record_of_its_queue() -> None:
    """The record names the lease, so the next owner waits for its end anyway."""
    brokers, queue = one_queue()
    brokers.logs[queue] = [b"x"]
    async with upstream(brokers) as us:
        _, pipeline = await us.owned(queue)
        await eventually(lambda: us.ready(queue))
        assert us.lease() == 1
        book, lanes = book_and_lanes(us)
        desk = LeaseDesk(us.context, lanes, book)
        (row,) = (await desk.rows(BILLING, LeaseWish()))["leases"]
        pipeline.ended()
        with pytest.raises(OrderlaneError, match="its queue is being handed over"):
            await desk.revoke(BILLING, row["lease"], by="ann", reason="why")
        assert len(pipeline.leases) == 1


async def test_no_message_is_skipped_under_a_lock_in_doubt() -> None:
    brokers, queue = one_queue()
    brokers.logs[queue] = [b"x"] * 3
    brokers.damaged.add((queue, 1))
    async with upstream(brokers) as us:
        owned, pipeline = await us.owned(queue)
        await eventually(lambda: pipeline.damaged != "")
        book, lanes = book_and_lanes(us)
        ownerships: Any = {BILLING: SimpleNamespace(owned=lambda _: owned)}
        desk = OffsetDesk(us.context, lanes, ownerships, book)
        us.client.before["send"] = once(lambda *_: owned.connection_lost())
        with pytest.raises(WrongState, match="is being taken over or handed over"):
            await desk.skip(BILLING, TOPIC, queue.qid, SkipWish("ann", "why", 1))
        assert pipeline.position == 1
