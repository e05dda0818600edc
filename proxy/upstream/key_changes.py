"""Changes of order keys: stores and reads the state of changes in owned queues.

``proxy.core.jobs.key_change`` decides which messages wait for which. Each step ends before the next
begins:

1. the switch is chosen, and reading stops;
2. an ownership record contains the switch and both rules, so that the next owner knows them;
3. reading continues; older messages that are not in memory are read again to be counted under their
   new keys, and so are the copies of parked ones;
4. after the last older message has finished, the next record ends the change, and another one may
   begin.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial

import structlog

from broker_core.errors import BrokerError, RemotingError
from broker_core.names import Group
from broker_core.remoting.codes import ResponseCode
from broker_core.tasks import spawn
from proxy.core.dead_letters.copies import as_sent
from proxy.core.parking.parked_copy import is_of_its_life, origin_of, parked_chain
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.core.records.parked_key import parked_topic
from proxy.lane.group_lane import GroupLane
from proxy.observe.logs import NoisyLog
from proxy.upstream.broker_tasks import Selection
from proxy.upstream.context import UpstreamContext
from proxy.upstream.reading.refills import Refills
from proxy.upstream.records.queue_range import read_range

#: Interval at which queues are checked: the maximum delay of a change.
_EVERY_S = 0.5
#: Older messages read per request.
_AT_ONCE = 1024
_FIRST_BACK_OFF_S, _LONGEST_BACK_OFF_S = 0.1, 2.0

_log = structlog.get_logger("order_key")
_noisy = NoisyLog(_log)


class KeyChanges:
    """Changes in all queues of this proxy; one task per queue while it has work."""

    def __init__(self, context: UpstreamContext, refills: Refills) -> None:
        self._context = context
        self._refills = refills
        self._tasks: dict[QueuePipeline, asyncio.Task[None]] = {}

    async def run(self, lanes: Iterable[GroupLane]) -> None:
        """Check the queues until cancelled. *lanes* is iterated again each time."""
        selection = Selection(lanes)
        while True:
            await asyncio.sleep(_EVERY_S)
            for lane, pipeline in selection.take():
                with _noisy.confined("bug", "order key not checked", queue=str(pipeline.queue)):
                    if _is_due(pipeline) and pipeline not in self._tasks:
                        self._start(lane, pipeline)

    def _start(self, lane: GroupLane, pipeline: QueuePipeline) -> None:
        task = spawn(self._look_after(lane, pipeline), name=f"order key {pipeline.queue}")
        self._tasks[pipeline] = task
        task.add_done_callback(partial(self._done, pipeline))

    def _done(self, pipeline: QueuePipeline, _: asyncio.Task[None]) -> None:
        del self._tasks[pipeline]

    def tasks(self) -> set[asyncio.Task[None]]:
        """Return the running tasks."""
        return set(self._tasks.values())

    async def _look_after(self, lane: GroupLane, pipeline: QueuePipeline) -> None:
        log = _log.bind(group=lane.name, topic=pipeline.topic, queue=pipeline.place)
        back_off_s = _FIRST_BACK_OFF_S
        while _is_due(pipeline):
            try:
                if pipeline.key_change_due or pipeline.keys.planned:
                    await self._begin(lane, pipeline)
                    record = pipeline.keys.record
                    log.warning("order key changed", rule=str(record.rule), since=record.since)
                else:
                    await self._count(lane, pipeline)
                back_off_s = _FIRST_BACK_OFF_S
            except Exception as error:  # including bugs: no key may stop silently
                log.error(
                    "the change of the order key is delayed; retrying",
                    state=pipeline.key_change_in_words,
                    reason=str(error),
                    exc_info=None if isinstance(error, RemotingError) else error,
                )
                await asyncio.sleep(back_off_s)
                back_off_s = min(back_off_s * 2, _LONGEST_BACK_OFF_S)

    async def _begin(self, lane: GroupLane, pipeline: QueuePipeline) -> None:
        if not pipeline.keys.planned:
            pipeline.plan_key_change()
        await self._context.recorder.record(lane, pipeline)
        lane.apply_effects(pipeline, pipeline.key_change_recorded())
        self._context.settled.fire()  # its reader waits

    async def _count(self, lane: GroupLane, pipeline: QueuePipeline) -> None:
        change = pipeline.jobs.change
        if change is None:
            return
        if change.twin_unread:
            found = await self._copies(lane.name, pipeline)
            lane.apply_effects(pipeline, pipeline.older_copies_read(found))
        asked = change.to_count(_AT_ONCE)
        wanted = change.to_read(asked)
        messages = await self._refills.fetch(lane, pipeline, wanted) if wanted else {}
        lane.apply_effects(pipeline, pipeline.older_counted(asked, messages))
        await asyncio.sleep(0)  # messages in memory need no read, but counting takes time

    async def _copies(self, group: Group, pipeline: QueuePipeline) -> dict[bytes, set[bytes]]:
        """Return the new keys of older messages with copies in the parked twin, by parked key."""
        client, record = self._context.client, pipeline.keys.record
        found: dict[bytes, set[bytes]] = {}
        twin = pipeline.queue._replace(topic=parked_topic(group, pipeline.topic))
        try:
            if record.before is None or twin not in await client.queues(twin.topic, fresh=True):
                return found
        except BrokerError as error:
            if error.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            return found
        start = max(await client.committed_offset(group, twin) or 0, await client.min_offset(twin))
        end = await client.max_offset(twin)
        async for copy in read_range(client, twin, group=group, start=start, end=end):
            if 0 <= origin_of(copy)[0] < record.since and is_of_its_life(copy, pipeline):
                parked = parked_chain(copy, record.before)
                key = record.rule.chain_of(as_sent(copy))
                if parked is not None:
                    found.setdefault(parked, set()).update(() if key is None else (key,))
        return found


def _is_due(pipeline: QueuePipeline) -> bool:
    if pipeline.closed or pipeline.draining or pipeline.origin.doubtful:
        return False
    change = pipeline.jobs.change
    return (
        pipeline.key_change_due or pipeline.keys.planned or (change is not None and change.counting)
    )
