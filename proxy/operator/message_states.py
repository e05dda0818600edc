"""The state of one message in a consumer group, as far as a proxy knows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker_core.clock import now_ns
from broker_core.names import Group, QueueName
from broker_core.remoting.message import StoredMessage
from proxy.core.keys.order_key import key_text
from proxy.core.keys.retry_policy import MS
from proxy.core.parking.parking_pipeline import ParkingPipeline
from proxy.core.records.parked_key import parked_topic
from proxy.lane.lanes import Lanes, topic_named
from proxy.operator.message_lookup import has_copy
from proxy.upstream.context import UpstreamContext
from proxy.upstream.dead_letters.copier import dead_letter_topic
from proxy.upstream.ownership.group_ownership import GroupOwnership
from proxy.upstream.ownership.owner_book import OwnerBook


class MessageStates:
    """Looks up states in the queues that this proxy owns, and in the committed offsets of others.

    ``waiting``: not delivered yet. ``leased``: a client has it. ``delivered``: it failed and waits
    for its next delivery. ``parked``, ``dead-lettered``: a copy waits for an operator.
    ``finished``: handled, skipped or filtered. ``unknown``: the queue has no owner and the message
    is not committed, or brokers do not tell whether they have a copy.
    """

    def __init__(
        self,
        context: UpstreamContext,
        lanes: Lanes,
        ownerships: Mapping[Group, GroupOwnership],
        book: OwnerBook,
    ) -> None:
        self._context = context
        self._lanes = lanes
        self._ownerships = ownerships
        self._book = book

    async def of(self, name: str, queue: QueueName, message: StoredMessage) -> dict[str, Any]:
        """Return the state of *message* in group *name*.

        Raises UnknownName, OwnedElsewhere for a queue of another proxy, RemotingError.
        """
        lane = self._lanes.named(name)
        topic_named(lane, queue.topic)
        owned = self._ownerships[lane.name].owned(queue)
        pipeline = None if owned is None else owned.pipeline
        offset = message.queue_offset
        if pipeline is None:
            await self._book.refuse_elsewhere(lane.name, queue)
            committed = await self._context.client.committed_offset(lane.name, queue)
            if committed is None or offset >= committed:
                return _state(lane.name, "unknown")
        elif (live := _unfinished(pipeline, message)) is not None:
            return {**_state(lane.name, live.pop("state")), **live}
        client = self._context.client
        dead = await has_copy(client, dead_letter_topic(lane.name), queue, message)
        if dead:
            return _state(lane.name, "dead-lettered")
        parked = await has_copy(client, parked_topic(lane.name, queue.topic), queue, message)
        if parked:
            if pipeline is None:
                return _state(lane.name, "unknown")  # its owner knows whether it was redriven
            key = _chain(pipeline, message)
            if key is not None and key in pipeline.parked:
                return {**_state(lane.name, "parked"), "key": key_text(key)}
        return _state(lane.name, "unknown" if None in (dead, parked) else "finished")


def _state(group: Group, state: str) -> dict[str, Any]:
    return {
        "group": group,
        "state": state,
        "key": None,
        "client": None,
        "attempt": None,
        "ends_in_ms": None,
    }


def _unfinished(pipeline: ParkingPipeline, message: StoredMessage) -> dict[str, Any] | None:
    """Return the state of an unfinished message of an owned queue; None if it is finished."""
    offset, key = message.queue_offset, _chain(pipeline, message)
    if (lease := pipeline.leases.at(offset)) is not None:
        job = lease.job
        return {
            "state": "leased",
            "key": None if job.key is None else key_text(job.key),
            "client": lease.holder.client,
            "attempt": job.attempts,
            "ends_in_ms": max(0, (lease.deadline_ns - now_ns()) // MS),
        }
    if not pipeline.jobs.is_unfinished(offset, key):
        return None
    attempts = pipeline.leases.attempts.get(offset, 0)
    state = "delivered" if attempts else "waiting"
    if key is not None and key in pipeline.parked:
        state = "parked"  # its copy is still to be made
    shown = None if key is None else key_text(key)
    return {"state": state, "key": shown, "attempt": attempts or None}


def _chain(pipeline: ParkingPipeline, message: StoredMessage) -> bytes | None:
    """Return the chain of *message* by the recorded order key, which settings may not be."""
    return pipeline.keys.rule_of(message).chain_of(message)
