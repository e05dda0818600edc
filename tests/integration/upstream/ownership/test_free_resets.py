"""Resets of queues without an owner, beside owned queues of the same group.

Real upstream components on brokers in memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from broker_core.client import LockAnswer
from broker_core.clock import now_ns
from broker_core.errors import RequestTimeout
from broker_core.tasks import spawn
from proxy.core.records.codec import decode
from proxy.core.records.record import Clean, Own, Record
from proxy.upstream.ownership.resets import FreeReset, NoOwnerNow, Place
from testkit.eventually import eventually
from testkit.lanes import TOPIC
from tests.integration.upstream.memory_broker import MemoryBrokers
from tests.integration.upstream.upstreams import BILLING, taking_part, twin_of, upstream

#: Renewed often, and trusted during pauses of the machine.
LOCK = {"renewal_s": 0.05, "trust_s": 9.0, "request_timeout_s": 0.05}


async def test_a_reset_of_a_free_queue_holds_up_no_renewal_of_others() -> None:
    """Its audit record, or its own, may wait for a broker that hangs."""
    brokers = MemoryBrokers()
    ours, free = brokers.add_topic(TOPIC, 2)
    brokers.logs[free] = [b"x"] * 9
    brokers.holders[BILLING, free] = "rival@1#1"
    begun, may_end = asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def slow(place: Place) -> AsyncIterator[tuple[int, dict[str, object]]]:
        begun.set()
        await may_end.wait()
        yield 7, {}

    async with upstream(brokers, lock=LOCK) as us, taking_part(us) as ownership:
        await eventually(lambda: us.lane.buffer.find(ours) is not None)
        del brokers.holders[BILLING, free]
        resetting = spawn(ownership.reset_free(free, slow), name="reset")
        await begun.wait()
        renewed = us.client.asked["lock"]
        await eventually(lambda: us.client.asked["lock"] >= renewed + 10)
        await eventually(lambda: us.pipeline(ours).trusted_until_ns > now_ns())
        ownership.wake()
        with pytest.raises(NoOwnerNow):
            await ownership.reset_free(free, slow)
        assert ownership.owned(free) is None
        resetting.cancel()
        await asyncio.wait([resetting])

        may_end.set()
        await ownership.reset_free(free, slow)
        await eventually(lambda: us.lane.buffer.find(free) is not None)
        assert us.pipeline(free).committable == 7
        records: list[Record] = [decode(body) for body in brokers.logs[twin_of(brokers, free)]]
        kinds = [type(each) for each in records if isinstance(each, Own | Clean)]
        assert kinds == [Own, Clean, Own, Clean, Own]


async def test_a_lock_without_an_answer_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a lock that was granted late would keep the queue from its next owner."""
    brokers = MemoryBrokers()
    (free,) = brokers.add_topic(TOPIC, 1)

    @asynccontextmanager
    async def move(place: Place) -> AsyncIterator[tuple[int, dict[str, object]]]:
        yield place.base, {}

    async with upstream(brokers, lock=LOCK) as us:
        lock = us.client.lock

        async def granted_late(*asked: Any, **others: Any) -> LockAnswer:
            await lock(*asked, **others)
            return LockAnswer(unanswered=frozenset({free}))

        monkeypatch.setattr(us.client, "lock", granted_late)
        reset = FreeReset(us.context, us.lane, free, lock_requests=us.lock_requests)
        with pytest.raises(RequestTimeout, match="did not answer the request for the lock"):
            await reset.run(move)
        assert brokers.holders == {}
