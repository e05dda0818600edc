"""Writes ownership records again before retention deletes them.

Records contain state that must live as long as the queue: paused and parked keys, numbers of
attempts, the rule for order keys, messages finished above the committed offset. But brokers delete
whole files of their log, of all topics together, so the records of a quiet queue are deleted along
with the messages of a busy one.

1. For an owned queue, and for its parked twin, the snapshot that its records build on is watched,
   with or without pulls and regardless of its writer. The owner knows its contents, so it can also
   replace a deleted snapshot.
2. A queue without an owner is checked by each proxy that has its group. One of them owns it for a
   moment to write the last snapshot again.
3. A queue that is not there now, because it was removed or its topic was deleted, cannot be owned,
   but may come back, with pauses at least. Its last state is repeated for its last owner.
4. An owner also checks at its hand-over (``hand_over.last_record``).
5. At a broker that has never begun a second file of its log, nothing is checked.

Nothing is checked while no proxy of the group runs (``docs/guarantees.md``).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import structlog

from broker_core import chance
from broker_core.errors import BrokerError, NotRegistered, RemotingError
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.codes import ResponseCode
from broker_core.tasks import cancel_and_wait, spawn
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.core.records.parked_key import parked_topic
from proxy.core.records.record import ownership_topic
from proxy.core.records.replay import LastOwner
from proxy.core.records.retention import LogRange, is_to_be_renewed, keeps_everything
from proxy.errors import OrderlaneError, WrongState
from proxy.lane.group_lane import GroupLane
from proxy.observe.logs import NoisyLog
from proxy.upstream.broker_tasks import BrokerTasks
from proxy.upstream.context import UpstreamContext
from proxy.upstream.ownership.group_ownership import GroupOwnership
from proxy.upstream.pace import interval_s

#: Approximate interval of checks. Brokers delete every ten seconds or less often.
_EVERY_S = 5.0
#: The same with very many queues, and queues checked per second.
_LONGEST_S, _QUEUES_PER_S = 30.0, 200.0
#: Queues without an owner checked per run at a broker, and concurrently.
_FREE_PER_RUN, _AT_ONCE = 256, 16

#: Writes the records of a queue without an owner again.
_Renew = Callable[[GroupLane, QueueName, LastOwner], Awaitable[None]]

_NOT_CHECKED = "ownership records not checked; retrying"

_noisy = NoisyLog(structlog.get_logger("kept_records"))


@dataclass(slots=True)
class _AtBroker:
    owned: list[tuple[GroupLane, QueuePipeline]] = field(default_factory=list)
    free: list[tuple[GroupLane, QueueName]] = field(default_factory=list)
    gone: list[tuple[GroupLane, QueueName]] = field(default_factory=list)


class KeptRecords:
    """Watches the records of all groups of one proxy."""

    def __init__(
        self,
        context: UpstreamContext,
        lanes: Iterable[GroupLane],
        ownerships: Mapping[Group, GroupOwnership],
    ) -> None:
        """*lanes* is iterated again each time."""
        self._context = context
        self._lanes = lanes
        self._ownerships = ownerships
        # For queues without an owner here: log offset of the last snapshot, or without one the end
        # of the log when that was seen. Later records have a higher log offset.
        self._free: dict[tuple[Group, QueueName], int] = {}
        self._asking: asyncio.Task[None] | None = None  # for routes that are not known yet
        self._deleted: set[Topic] = set()  # topics without a route, as a nameserver says

    async def run(self) -> None:
        """Check every few seconds until cancelled, separately at each broker."""
        tasks = BrokerTasks("kept records")
        try:
            while True:
                every_s = interval_s(
                    self._context.reads.number,
                    least_s=_EVERY_S,
                    most_s=_LONGEST_S,
                    per_s=_QUEUES_PER_S,
                )
                await asyncio.sleep(every_s * chance.between(0.8, 1.2))
                at_brokers = await self._by_broker()
                for broker, queues in at_brokers.items():
                    tasks.start(broker, self._look, broker, queues)
        finally:
            await cancel_and_wait(self._asking)
            await tasks.close()

    async def _by_broker(self) -> dict[str, _AtBroker]:
        """Return the queues to check. Topics without a known route are left to the next check: no
        broker waits for a nameserver.
        """
        found: defaultdict[str, _AtBroker] = defaultdict(_AtBroker)
        free: dict[tuple[Group, QueueName], None] = {}
        unknown: list[tuple[GroupLane, Topic]] = []
        for lane in self._lanes:
            with _noisy.confined(f"bug {lane.name}", _NOT_CHECKED, group=lane.name):
                for pipeline in lane.buffer:
                    if not pipeline.draining:
                        found[pipeline.queue.broker].owned.append((lane, pipeline))
                for queue in await self._free_of(lane, unknown):
                    free[lane.name, queue] = None
                    found[queue.broker].free.append((lane, queue))
                for queue in await self._gone_of(lane):
                    free[lane.name, queue] = None
                    found[queue.broker].gone.append((lane, queue))
        for gone in self._free.keys() - free.keys():
            del self._free[gone]
        if unknown and (self._asking is None or self._asking.done()):
            self._asking = spawn(self._ask_for(unknown), name="routes for kept records")
        return found

    async def _free_of(
        self, lane: GroupLane, unknown: list[tuple[GroupLane, Topic]]
    ) -> list[QueueName]:
        """Return the queues that this proxy may check and does not own; add topics without a known
        route to *unknown*.
        """
        ownership = self._ownerships.get(lane.name)
        if ownership is None or self._context.away or lane.is_broadcast:
            return []
        free: list[QueueName] = []
        for each in lane.settings.topics:
            topic = Topic(each.name)
            if self._context.client.knows_route(topic):
                self._deleted.discard(topic)
                queues = await self._context.client.queues(topic)
                free += [queue for queue in queues if ownership.owned(queue) is None]
            else:
                unknown.append((lane, topic))
        return free

    async def _gone_of(self, lane: GroupLane) -> list[QueueName]:
        """Return the queues of topics of *lane* that have records but are not there now."""
        client, ownership = self._context.client, self._ownerships.get(lane.name)
        if ownership is None or self._context.away or lane.is_broadcast:
            return []
        gone: list[QueueName] = []
        for topic in ownership.topics:
            records = ownership_topic(lane.name, topic)
            is_known = client.knows_route(topic)
            if not client.knows_route(records) or not (is_known or topic in self._deleted):
                continue
            there = set(await client.queues(topic)) if is_known else set[QueueName]()
            recorded = (each._replace(topic=topic) for each in await client.queues(records))
            gone += [
                each for each in recorded if each not in there and ownership.owned(each) is None
            ]
        return gone

    async def _ask_for(self, unknown: Iterable[tuple[GroupLane, Topic]]) -> None:
        """Ask for the routes of topics, which the client keeps."""
        for lane, topic in unknown:
            try:
                try:
                    await self._context.client.queues(topic)
                except BrokerError as error:
                    if error.code != ResponseCode.TOPIC_NOT_EXIST:
                        raise
                    self._deleted.add(topic)
                    await self._context.client.queues(ownership_topic(lane.name, topic))
            except BrokerError as error:
                if error.code != ResponseCode.TOPIC_NOT_EXIST:
                    self._complain(lane, error)
            except NotRegistered as error:
                self._complain(lane, error)
            except RemotingError as error:
                self._complain(lane, error)
                return  # the nameserver would not answer for the others either

    async def _look(self, broker: str, queues: _AtBroker) -> None:
        recorder = self._context.recorder
        try:
            log = await self._context.log.ranges.of(broker)
        except RemotingError as error:
            _noisy.warning(
                broker, "the broker's log range is unknown", broker=broker, reason=str(error)
            )
            return
        if keeps_everything(log):
            return
        free_slots = asyncio.Semaphore(_AT_ONCE)

        async def limited(lane: GroupLane, look: Callable[[], Awaitable[None]]) -> None:
            async with free_slots:
                try:
                    await look()
                except WrongState:
                    pass  # it has an owner by now
                except Exception as error:
                    self._complain(lane, error)

        looks: list[Coroutine[Any, Any, None]] = []
        for lane, pipeline in queues.owned:
            with _noisy.confined(f"bug {lane.name}", _NOT_CHECKED, queue=str(pipeline.queue)):
                if not (pipeline.closed or recorder.watch(pipeline, log)):
                    looks.append(limited(lane, partial(recorder.keep, lane, pipeline)))
        for unowned, renew in ((queues.free, self._renew_free), (queues.gone, self._renew_gone)):
            due = [each for each in unowned if self._is_due(*each, log)]
            looks += [
                limited(lane, partial(self._look_at_unowned, lane, queue, log, renew))
                for lane, queue in due[:_FREE_PER_RUN]
            ]
        await asyncio.gather(*looks)

    def _is_due(self, lane: GroupLane, queue: QueueName, log: LogRange) -> bool:
        place = self._free.get((lane.name, queue))
        return place is None or is_to_be_renewed(place, log)

    async def _look_at_unowned(
        self, lane: GroupLane, queue: QueueName, log: LogRange, renew: _Renew
    ) -> None:
        """Find the last records of *queue*; *renew* them if it is time and it has no owner.

        Raises RemotingError, OrderlaneError.
        """
        name = lane.name, queue
        self._free.pop(name, None)
        last = await self._context.log.owner(lane.name, queue)
        place = await self._oldest(lane.name, queue, last)
        if last is not None and place is not None and is_to_be_renewed(place, log):
            if not last.clean and last.own.owner in await self._context.client.consumer_ids(
                lane.name, ownership_topic(lane.name, queue.topic)
            ):
                return  # the owner takes care of it
            await renew(lane, queue, last)
            place = log.end
        self._free[name] = log.end if place is None else place

    async def _renew_free(self, lane: GroupLane, queue: QueueName, _last: LastOwner) -> None:
        if (ownership := self._ownerships.get(lane.name)) is not None:  # it was not removed
            await ownership.renew_free(queue)

    async def _renew_gone(self, lane: GroupLane, queue: QueueName, last: LastOwner) -> None:
        log, group = self._context.log, lane.name
        if last.snapshot is not None and last.snapshot.parked:  # first, as in ``renew_records``
            twin = queue._replace(topic=parked_topic(group, queue.topic))
            if await log.owner(group, twin) is not None:
                await log.repeat(group, twin, by_period=True)
        await log.repeat(group, queue)

    async def _oldest(self, group: Group, queue: QueueName, last: LastOwner | None) -> int | None:
        """Return the log offset of the oldest snapshot in effect, of *queue* or its parked twin;
        None if there is none.
        """
        found: list[int] = []
        log, records = self._context.log, last
        for each in (queue, queue._replace(topic=parked_topic(group, queue.topic))):
            if each is not queue:
                records = await log.owner(group, each)
            if records is None or records.snapshot is None or records.snapshot_at is None:
                break
            if (place := await log.place(group, each, records.snapshot_at)) is not None:
                found.append(place)
            if not records.snapshot.parked:
                break
        return min(found, default=None)

    def _complain(self, lane: GroupLane, error: Exception) -> None:
        bug = None if isinstance(error, RemotingError | OrderlaneError) else error
        _noisy.warning(
            lane.name,
            _NOT_CHECKED,
            group=lane.name,
            reason=str(error),
            exc_info=bug,
        )
