"""Recovers the parked keys of a queue from their copies when its ownership records are damaged or
deleted.
"""

from __future__ import annotations

import structlog

from broker_core.client import BrokerClient
from broker_core.errors import BrokerError
from broker_core.names import Group, QueueName
from broker_core.remoting.codes import ResponseCode
from proxy.core.parking.parked_recovery import FoundParked
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.core.records.parked_key import ParkedKey, parked_topic
from proxy.upstream.context import UpstreamContext
from proxy.upstream.records.anchors import in_life
from proxy.upstream.records.queue_range import read_range

_log = structlog.get_logger("parking")


async def parked_in_twin(
    context: UpstreamContext, group: Group, pipeline: QueuePipeline
) -> dict[bytes, ParkedKey]:
    """Return the keys with unfinished copies in the twin of *pipeline*'s queue.

    The queue's ``own`` record must be stored, so that copies of previous owners no longer count.
    Raises RemotingError.
    """
    client = context.client
    twin, end = await twin_of(client, group, pipeline.queue)
    if not end:
        return {}
    last, _ = await context.log.last(group, twin, by_period=True)
    last = await in_life(client, group, twin, last, life=await client.topic_life(twin))
    last = None if last is None else pipeline.state_of_twin(last)
    anew = last is not None and last.begins_life
    committed = 0 if anew else await client.committed_offset(group, twin) or 0
    start = max(committed, await client.min_offset(twin))
    found = FoundParked(pipeline, None if last is None else last.snapshot, start)
    async for copy in read_range(client, twin, group=group, start=found.position, end=end):
        found.see(copy)
    if found.keys:
        _log.warning(
            "keys with copies count as parked, as the records are damaged or deleted; redrive them"
            " if needed",
            group=group,
            topic=pipeline.topic,
            queue=pipeline.place,
            keys=len(found.keys),
        )
    return found.keys


async def twin_of(client: BrokerClient, group: Group, queue: QueueName) -> tuple[QueueName, int]:
    """Return the parked twin of *queue*, and its end offset: 0 if it never had a copy.

    Raises RemotingError.
    """
    twin = queue._replace(topic=parked_topic(group, queue.topic))
    try:
        there = twin in await client.queues(twin.topic, fresh=True)
    except BrokerError as error:
        if error.code != ResponseCode.TOPIC_NOT_EXIST:
            raise
        there = False
    return twin, await client.max_offset(twin) if there else 0
