"""Checks regularly whether retention is near the messages of failing keys, before it
deletes them.
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Callable, Iterable

import structlog

from broker_core.clock import wall_ms
from broker_core.errors import RemotingError
from proxy.core.keys.order_key import key_text
from proxy.core.keys.retry_policy import OnExhausted
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.core.records.retention import nears_the_end_before_ms
from proxy.lane.group_lane import GroupLane
from proxy.observe.logs import NoisyLog
from proxy.upstream.broker_tasks import BrokerTasks
from proxy.upstream.context import UpstreamContext
from proxy.upstream.parking.parked_keys import Parking

_EVERY_S = 60.0

_log = structlog.get_logger("retention")
_noisy = NoisyLog(_log)


async def watch_retention(
    context: UpstreamContext, parkings: Callable[[], Iterable[Parking]]
) -> None:
    """Check all queues every minute until cancelled, separately at each broker."""
    tasks = BrokerTasks("retention")
    try:
        while True:
            await asyncio.sleep(_EVERY_S)
            by_broker: defaultdict[str, list[Parking]] = defaultdict(list)
            for parking in parkings():
                by_broker[parking.pipeline.queue.broker].append(parking)
            for broker, those in by_broker.items():
                tasks.start(broker, _look_at_all, context, those)
    finally:
        await tasks.close()


async def _look_at_all(context: UpstreamContext, parkings: Iterable[Parking]) -> None:
    for parking in parkings:
        with _noisy.confined("bug", "retention check failed"):
            try:
                await look_at(context, parking)
            except RemotingError as error:
                _noisy.warning("look", "retention not checked; retrying", reason=str(error))


async def look_at(context: UpstreamContext, parking: Parking) -> None:
    """Park failing keys of one queue whose first message is near the end of retention.

    With ``block`` they are reported instead, and so are parked keys with such copies. Nothing is
    near the end at a broker that never deleted messages. Raises RemotingError.
    """
    pipeline, lane = parking.pipeline, parking.lane
    twin = pipeline.twin
    settings = lane.topics.get(pipeline.topic)
    if settings is None or pipeline.draining:
        return
    oldest_ms = None
    if pipeline.leases.attempts or (twin is not None and pipeline.parked):
        oldest_ms = await _oldest_ms(context, lane, pipeline, twin)
    near_ms = -math.inf
    if oldest_ms is not None:
        near_ms = nears_the_end_before_ms(
            oldest_ms,
            now_ms=context.clock_jumps.steady_ms(wall_ms()),
            margin_s=settings.retention_margin_s,
        )
    near = pipeline.parking.failing(stored_before_ms=near_ms)
    if pipeline.rules.retry.on_exhausted is OnExhausted.BLOCK:
        pipeline.nears_retention(near)
        for key in near:
            lane.near_retention(pipeline)
            _alarm("a blocked key nears the end of retention", pipeline, lane, key)
    else:
        for key in near:
            if parking.park(key, by="retention margin", reason="retention comes near"):
                lane.near_retention(pipeline)
    if twin is not None:
        await _look_at_copies(context, lane, twin, near_ms=near_ms)


async def _look_at_copies(
    context: UpstreamContext, lane: GroupLane, twin: QueuePipeline, *, near_ms: float
) -> None:
    near: list[bytes] = []
    if twin.jobs.unfinished and near_ms > 0:
        end = await context.client.offset_at(twin.queue, int(near_ms))
        store_ms = await _stored_ms(context, lane, twin, end)
        end += store_ms is not None and store_ms < near_ms  # brokers return the nearest offset
        near = [
            key
            for key, chain in twin.jobs.spilled_chains
            if chain.offsets[chain.head] < end and key in twin.origin.parked
        ]
    for key in near:
        if key not in twin.near_retention:
            lane.near_retention(twin)
        _alarm("a parked key nears the end of retention: redrive it", twin, lane, key)
    twin.nears_retention(near)


async def _oldest_ms(
    context: UpstreamContext, lane: GroupLane, *pipelines: QueuePipeline | None
) -> int | None:
    """Return the time of the oldest message kept by the broker, as far as *pipelines* show it.

    None if nothing was ever deleted there.
    """
    oldest: list[int] = []
    deleted = False
    for pipeline in pipelines:
        if pipeline is None:
            continue
        first = await context.client.min_offset(pipeline.queue)
        deleted |= first > 0
        store_ms = await _stored_ms(context, lane, pipeline, first)
        oldest += [] if store_ms is None else [store_ms]
    return min(oldest, default=None) if deleted else None


async def _stored_ms(
    context: UpstreamContext, lane: GroupLane, pipeline: QueuePipeline, offset: int
) -> int | None:
    found = await context.client.pull(
        pipeline.queue, group=lane.name, offset=offset, max_messages=1, suspend_ms=0
    )
    return found.messages[0].store_ms if found.messages else None


def _alarm(what: str, pipeline: QueuePipeline, lane: GroupLane, key: bytes) -> None:
    _log.error(
        f"{what}: its messages will be deleted",
        group=lane.name,
        topic=pipeline.topic,
        queue=pipeline.place,
        order=key_text(key),
    )
