"""Looks now and then whether retention comes near to keys that fail, before it deletes them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import structlog

from broker_core.clock import wall_ms
from broker_core.errors import RemotingError
from proxy.core.order_key import key_text
from proxy.core.retention import nears_the_end_before_ms
from proxy.core.retry_policy import OnExhausted
from proxy.logs import NoisyLog
from proxy.upstream.context import UpstreamContext
from proxy.upstream.parking import Parking

_EVERY_S = 60.0

_log = structlog.get_logger("retention")
_noisy = NoisyLog(_log)


async def watch_retention(
    context: UpstreamContext, parkings: Callable[[], Iterable[Parking]]
) -> None:
    """Look at all queues every minute, until cancelled."""
    while True:
        await asyncio.sleep(_EVERY_S)
        for parking in list(parkings()):
            try:
                await look_at(context, parking)
            except RemotingError as error:
                _noisy.warning("look", "retention not looked at", reason=str(error))
            except Exception as error:  # a bug with one queue must not end the look at others
                _noisy.warning("bug", "look failed", reason=str(error), exc_info=error)


async def look_at(context: UpstreamContext, parking: Parking) -> None:
    """Park the keys of one queue that fail and whose first message nears the end of retention; or
    (``block``) say so. Nothing is near where the broker never deleted anything. Raises
    RemotingError.
    """
    pipeline, lane = parking.pipeline, parking.lane
    settings = lane.settings.topic(pipeline.topic)
    if settings is None or pipeline.draining or not pipeline.attempts:
        return
    first = await context.client.min_offset(pipeline.queue)
    if not first:
        return
    oldest = await context.client.pull(
        pipeline.queue, group=lane.name, offset=first, max_messages=1, suspend_ms=0
    )
    if not oldest.messages:
        return
    oldest_ms = oldest.messages[0].store_ms
    near_ms = nears_the_end_before_ms(
        oldest_ms, now_ms=wall_ms(), margin_s=settings.retention_margin_s
    )
    for key in pipeline.failing(stored_before_ms=near_ms):
        blocks = pipeline.rules.retry.on_exhausted is OnExhausted.BLOCK
        if blocks:
            lane.near_retention(pipeline)
            _log.error(
                "a blocked key nears the end of retention: its messages are going to be deleted",
                group=lane.name,
                topic=pipeline.topic,
                queue=pipeline.place,
                order=key_text(key),
            )
        elif parking.park(key, by="retention", reason="retention comes near"):
            lane.near_retention(pipeline)
