"""Concurrent pauses and resumes of the same key.

Uses real upstream components and in-memory brokers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from broker_core.errors import RequestTimeout
from broker_core.tasks import spawn
from proxy.errors import Unavailable, WrongState
from proxy.operator.key_verbs import Act, KeyVerbs
from testkit.eventually import eventually
from tests.integration.upstream.upstreams import BILLING, Upstream, one_queue, upstream

ANN, BEN = Act("ann", "why", "a-1"), Act("ben", "why", "a-2")
KEY = b"k"


class Broker:
    """Holds records until released, then stores them or fails."""

    def __init__(self, us: Upstream) -> None:
        self.may = asyncio.Event()
        self.asked = 0
        self.fails = False
        us.client.before["send"] = self._stands_still

    async def _stands_still(self, *_: Any) -> None:
        self.asked += 1
        waited = not self.may.is_set()
        await self.may.wait()
        if waited and self.fails:
            raise RequestTimeout("no answer")


@asynccontextmanager
async def _desks() -> AsyncIterator[tuple[Upstream, KeyVerbs, Broker]]:
    brokers, queue = one_queue()
    async with upstream(brokers) as us:
        owned, pipeline = await us.owned(queue)
        assert owned.parking is not None
        await us.context.recorder.record(us.lane, pipeline)
        yield us, KeyVerbs(us.context, owned.parking), Broker(us)


async def test_a_concurrent_pause_is_answered_once_it_is_recorded() -> None:
    """R4: after a kill before that record, the next owner would deliver the key."""
    async with _desks() as (us, verbs, broker):
        pauses = [spawn(verbs.pause(KEY, act), name=f"pause {act.by}") for act in (ANN, BEN)]
        await eventually(lambda: KEY in verbs.pipeline.paused and broker.asked == 1)
        await asyncio.sleep(0.05)
        assert not any(each.done() for each in pauses)
        broker.may.set()
        await asyncio.gather(*pauses)
        last, _ = await us.context.log.last(BILLING, verbs.pipeline.queue)
        assert last is not None
        assert last.snapshot is not None
        assert last.snapshot.paused[KEY].by == "ann"


@pytest.mark.failing_tasks
async def test_a_pause_that_was_not_stored_is_confirmed_to_no_caller() -> None:
    async with _desks() as (_, verbs, broker):
        broker.fails = True
        pauses = [spawn(verbs.pause(KEY, act), name=f"pause {act.by}") for act in (ANN, BEN)]
        await eventually(lambda: KEY in verbs.pipeline.paused and broker.asked == 1)
        await asyncio.sleep(0.05)
        broker.may.set()
        with pytest.raises(Unavailable, match="the ownership record cannot be stored: no answer"):
            await pauses[0]
        with pytest.raises(WrongState, match="an earlier pause could not be recorded; retry"):
            await pauses[1]
        assert KEY not in verbs.pipeline.paused
        await verbs.pause(KEY, BEN)


async def test_a_concurrent_resume_is_answered_once_it_is_recorded() -> None:
    """Otherwise the next owner would pause it again."""
    async with _desks() as (us, verbs, broker):
        broker.may.set()
        await verbs.pause(KEY, ANN)
        broker.may.clear()
        broker.asked = 0
        resumes = [spawn(verbs.resume(KEY, act), name=f"resume {act.by}") for act in (ANN, BEN)]
        await eventually(lambda: KEY not in verbs.pipeline.paused and broker.asked == 1)
        await asyncio.sleep(0.05)
        assert not any(each.done() for each in resumes)
        broker.may.set()
        await asyncio.gather(*resumes)
        last, _ = await us.context.log.last(BILLING, verbs.pipeline.queue)
        assert last is not None
        assert last.snapshot is not None
        assert not last.snapshot.paused
