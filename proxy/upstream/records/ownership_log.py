"""Reads and writes the ownership topic; see ``proxy.core.records.record`` for its contents."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import NamedTuple, Protocol

import structlog

from broker_core.client import BrokerClient, SendReceipt
from broker_core.client.batch_limits import BatchLimits
from broker_core.errors import BrokerError, ConnectionLost, RemotingError, RequestTimeout
from broker_core.names import INTERNAL_PREFIX, Group, QueueName, Topic
from broker_core.remoting.codes import ResponseCode
from broker_core.remoting.message import OutgoingMessage
from proxy.core.keys.ids import Epoch
from proxy.core.records.codec import decode, encode
from proxy.core.records.gaps import certain_base
from proxy.core.records.record import (
    LAST_SERIAL,
    Clean,
    Delta,
    Own,
    Record,
    Snapshot,
    SnapshotPart,
    Unreadable,
    ownership_topic,
)
from proxy.core.records.replay import LastOwner, replay
from proxy.core.records.snapshot_parts import parts
from proxy.upstream.records.durable import check_on_disk
from proxy.upstream.records.log_ranges import LogRanges
from proxy.upstream.records.queue_range import pull_range
from proxy.upstream.records.twin_topics import create_twins

_log = structlog.get_logger("ownership")

#: Records read first, from the tail; one of them shows where to begin. Mostly they are enough.
TAIL = 16


class Send(Protocol):
    """Sends a message to a queue."""

    def __call__(
        self, queue: QueueName, message: OutgoingMessage, *, life: int | None = None
    ) -> Awaitable[SendReceipt]:
        """Return once the broker has stored it, unless its topic is in another *life*. Raises
        RemotingError.
        """


def _no_check() -> None:
    """Do nothing."""


class _Place(NamedTuple):
    """Log offset of a record, and when it was stored, by its broker's clock."""

    log_offset: int
    stored_ms: int


class TooLong(RemotingError):
    """A record is longer than its broker allows, and is not stored; see ``OwnershipLog.limits``."""


class OwnershipLog:
    """The twin queues of all groups and topics of this proxy."""

    def __init__(self, client: BrokerClient, *, send: Send | None = None) -> None:
        """Use *client*; *send* sends a record as ``client.send`` does, perhaps with others."""
        self._client = client
        self._send = send
        self.ranges = LogRanges(client)  # Ranges kept by the brokers.
        self.limits = BatchLimits()  # Maximum lengths of records.
        self._known: set[QueueName] = set()  # twins that are in the route
        self._doubted: set[QueueName] = set()  # twins that were, before their broker's refusal
        self._lives: dict[QueueName, int | None] = {}  # of twins, when a period began
        # One search covers all twins at a broker: a topic with very many queues has a long route.
        self._looking: defaultdict[tuple[Topic, str], asyncio.Lock] = defaultdict(asyncio.Lock)

    def forget(self, topics: Iterable[Topic]) -> None:
        """Look up the ownership *topics* again before their next use, as they may be deleted."""
        gone = set(topics)
        self._known = {twin for twin in self._known if twin.topic not in gone}
        self._doubted = {twin for twin in self._doubted if twin.topic not in gone}
        self._lives = {twin: life for twin, life in self._lives.items() if twin.topic not in gone}
        for topic, broker in [each for each in self._looking if each[0] in gone]:
            del self._looking[topic, broker]

    def life(self, group: Group, queue: QueueName) -> int | None:
        """Return the life of the ownership topic in which the last epoch of *queue* here is an
        offset.

        None if it is unknown.
        """
        twin = QueueName(ownership_topic(group, queue.topic), queue.broker, queue.queue_id)
        return self._lives.get(twin)

    async def are_deleted(self, group: Group, queue: QueueName) -> bool:
        """Return whether the records of the last period begun here are deleted: their topic is in
        another life. Raises RemotingError.
        """
        twin = QueueName(ownership_topic(group, queue.topic), queue.broker, queue.queue_id)
        return self._lives.get(twin) is not None and (
            await self._client.life(twin) != self._lives[twin]
        )

    async def begin(
        self, group: Group, queue: QueueName, own: Own, *, check: Callable[[], None] = _no_check
    ) -> int:
        """Begin a period of *queue* with *own*; return its epoch. Raises RemotingError.

        *check* is called directly before the record is sent, and may raise.
        """
        async with self._twin(group, queue) as twin:
            self._lives[twin] = await self._client.life(twin)
        return (await self.append_each(group, queue, [own], check=check))[0]

    async def append(self, group: Group, queue: QueueName, *records: Record) -> int:
        """Write *records* like ``append_each``; return the queue offset of the first."""
        return (await self.append_each(group, queue, records))[0]

    async def append_each(
        self,
        group: Group,
        queue: QueueName,
        records: Iterable[Record],
        *,
        check: Callable[[], None] = _no_check,
    ) -> list[int]:
        """Write *records* in order; return their queue offsets.

        Raises RemotingError; any of the records may be stored then. TooLong: one of them must be
        split into several shorter ones.
        """
        stored: list[int] = []
        async with self._twin(group, queue) as twin:
            for record in records:
                body = encode(record)
                if isinstance(record, Delta) and len(body) > self.limits.of(queue.broker):
                    raise TooLong(f"the record has {len(body)} bytes")  # the limit is known by now
                check()
                try:
                    sent = await (self._send or self._client.send)(
                        twin,
                        OutgoingMessage(topic=twin.topic, body=body),
                        # Otherwise an owner that was away during a restore of the log would
                        # write records of an epoch that another one has by now.
                        life=self._lives.get(twin),
                    )
                except BrokerError as error:
                    if error.illegal and self.limits.refused(queue.broker, len(body)):
                        raise TooLong(str(error)) from error
                    raise
                check_on_disk([sent])
                stored.append(sent.offset)
        return stored

    async def append_snapshot(
        self, group: Group, queue: QueueName, snapshot: Snapshot, own: Own | None = None
    ) -> list[int]:
        """Write *snapshot* as the last record of its period, in as many parts as the broker needs.

        Returns their queue offsets. Raises RemotingError; any of the parts may be stored then.
        """
        while True:
            most = self.limits.of(queue.broker)
            records = parts(snapshot, own, serial=LAST_SERIAL, most=most)
            with suppress(TooLong):
                return await self.append_each(group, queue, records)

    async def repeat(self, group: Group, queue: QueueName, *, by_period: bool = False) -> None:
        """Write the last state of *queue*, which cannot be owned now, as its last owner would.

        Should there be a newer owner, the record is late and does not count. Does nothing if the
        records are damaged. *by_period*: see ``replay``. Raises RemotingError.
        """
        async with self._twin(group, queue) as twin:
            self._lives[twin] = await self._client.life(twin)
        last, _ = await self.last(group, queue, by_period=by_period)
        if last is None or last.snapshot is None or last.damage is not None:
            return
        await self.append_snapshot(group, queue, replace(last.snapshot, epoch=last.epoch), last.own)
        if last.clean:
            await self.append(group, queue, Clean(last.epoch, last.to))

    async def between(
        self, group: Group, queue: QueueName, offsets: range
    ) -> list[Record | Unreadable]:
        """Return the records at *offsets*, below a record just appended. Raises RemotingError."""
        async with self._twin(group, queue) as twin:
            found, _ = await self._read(group, twin, start=offsets.start, end=offsets.stop)
        return [record for _, record in found]

    async def last(
        self,
        group: Group,
        queue: QueueName,
        *,
        before: int | None = None,
        stored: int = 0,
        end: int | None = None,
        by_period: bool = False,
    ) -> tuple[LastOwner | None, int]:
        """Return the newest ownership period of *queue*, and the offset of the next record.

        The period is None if there was no owner, or (with an offset above 0) if retention deleted
        its records. Damaged records are logged and set ``damage``. Raises RemotingError.

        Args:
            group: The group.
            queue: The queue.
            before: Offset of a record just appended; all lower ones are then visible. Apache
                RocketMQ shows a record a moment after it is stored, so otherwise the newest may be
                missing.
            stored: The same offset plus one, to include records visible above it.
            end: As ``ends`` returned it a moment ago, which saves a request.
            by_period: See ``replay``.
        """
        async with self._twin(group, queue) as twin:
            if before is not None:
                end = before
            elif end is None:
                end = max(stored, await self._client.max_offset(twin))
            lowest, span, places = 0, TAIL, dict[int, _Place]()
            while True:
                start = max(lowest, end - span)
                records, lowest = await self._read(group, twin, start=start, end=end, places=places)
                start = max(lowest, start)
                # The first record may be a late one of an earlier owner: it is a beginning only if
                # no earlier record is left.
                found = _replayed(records, by_period=by_period, begin=start == lowest)
                base, least = None, Epoch(0)
                if found is not None and found.snapshot is None:
                    # A later owner built on it, so it is the snapshot of the owner then.
                    base = found.snapshot_at
                elif found is None and not by_period and (certain := certain_base(records)):
                    base, least = certain
                if base is not None and base >= lowest:
                    if base < start:
                        earlier, _ = await self._read(
                            group, twin, start=base, end=start, places=places
                        )
                        records = earlier + records
                    behind = [each for each in records if each[0] >= base]
                    if behind and behind[0][0] == base:
                        newest = _replayed(behind, by_period=by_period, begin=True)
                        if found is not None or _is_sound(newest, least=least):
                            found = newest
                # Owners that crashed early wrote nothing: the snapshot in effect may be far back.
                if start == lowest or (found is not None and found.snapshot is not None):
                    if found is not None:
                        found = _placed(found, places.get(found.last_at))
                    return _checked(twin, found, lowest=lowest), end
                span *= 8

    async def ends(self, group: Group, queues: Iterable[QueueName]) -> dict[QueueName, int]:
        """Return the offset of the next record of each of *queues*, by a few requests for each
        topic and broker. Queues without an ownership topic are left out. Creates no topic.

        Raises RemotingError.
        """
        twins = {
            QueueName(ownership_topic(group, queue.topic), queue.broker, queue.queue_id): queue
            for queue in queues
        }
        routed: set[QueueName] = set()
        for topic in sorted({twin.topic for twin in twins}):
            routed.update(await self._queues(topic))
        if not (there := routed & twins.keys()):
            return {}
        found = await self._client.queue_ranges(sorted(there))
        return {twins[twin]: each.end for twin, each in found.items()}

    async def owner(self, group: Group, queue: QueueName) -> LastOwner | None:
        """Return the newest ownership period of *queue*; None if it never had one. Creates no
        topic.

        Raises RemotingError.
        """
        end = (await self.ends(group, [queue])).get(queue)
        return None if end is None else (await self.last(group, queue, end=end))[0]

    async def goes_on(self, group: Group, queue: QueueName, last: LastOwner, *, end: int) -> bool:
        """Return whether the record before offset *end* shows that the period *last* of *queue*
        goes on. Raises RemotingError.
        """
        twin = QueueName(ownership_topic(group, queue.topic), queue.broker, queue.queue_id)
        records, _ = await self._read(group, twin, start=end - 1, end=end)
        newest = records[-1][1] if records else None
        return isinstance(newest, SnapshotPart | Delta) and newest.epoch == last.epoch

    async def begun_ms(self, group: Group, queue: QueueName, last: LastOwner) -> int | None:
        """Return the start of the period *last* of *queue*, by the broker's clock; None if its
        first record is deleted.

        Raises RemotingError.
        """
        twin = QueueName(ownership_topic(group, queue.topic), queue.broker, queue.queue_id)
        result = await self._client.pull(
            twin, group=group, offset=last.epoch, max_messages=1, suspend_ms=0
        )
        return next(
            (each.store_ms for each in result.messages if each.queue_offset == last.epoch), None
        )

    async def place(self, group: Group, queue: QueueName, offset: int) -> int | None:
        """Return the log offset of the record at *offset*; None if it is deleted. Raises
        RemotingError.
        """
        twin = QueueName(ownership_topic(group, queue.topic), queue.broker, queue.queue_id)
        result = await self._client.pull(
            twin, group=group, offset=offset, max_messages=1, suspend_ms=0
        )
        found = (each for each in result.messages if each.queue_offset == offset)
        return next((each.physical_offset for each in found), None)

    async def topics(self, group: Group) -> list[Topic]:
        """Return the sorted topics with ownership records of *group*. Raises RemotingError."""
        there = set(await self._client.topics())
        return [
            topic
            for topic in sorted(there)
            if not topic.startswith(INTERNAL_PREFIX) and ownership_topic(group, topic) in there
        ]

    async def any_owner(self, group: Group, topic: Topic, *, strict: bool = True) -> bool:
        """Return True if any queue of *topic* ever had an owner in *group*.

        Raises RemotingError; unless *strict*, brokers that fail are left out instead.
        """
        by_broker: defaultdict[str, list[QueueName]] = defaultdict(list)
        for twin in await self._queues(ownership_topic(group, topic)):
            by_broker[twin.broker].append(twin)
        for twins in by_broker.values():
            try:
                ranges = await self._client.queue_ranges(twins)
            except RemotingError:
                if strict:
                    raise
                continue
            if any(each.end for each in ranges.values()):
                return True
        return False

    async def _read(
        self,
        group: Group,
        twin: QueueName,
        *,
        start: int,
        end: int,
        places: dict[int, _Place] | None = None,
    ) -> tuple[list[tuple[int, Record | Unreadable]], int]:
        """Return the records from *start* to below *end*, and the lowest offset that existed then.

        *places* receives the places of the records.
        """
        records: list[tuple[int, Record | Unreadable]] = []
        lowest: int | None = None
        async for result in pull_range(self._client, twin, group=group, start=start, end=end):
            lowest = result.min_offset if lowest is None else lowest
            for message in result.messages:
                offset = message.queue_offset
                if places is not None:
                    places[offset] = _Place(message.physical_offset, message.store_ms)
                if records and (gap := records[-1][0] + 1) < offset:
                    records.append((gap, Unreadable("it is missing")))
                try:
                    records.append((offset, decode(message.body)))
                except ValueError as error:
                    records.append((offset, Unreadable(str(error))))
        return records, lowest or 0

    @asynccontextmanager
    async def _twin(self, group: Group, queue: QueueName) -> AsyncIterator[QueueName]:
        """Yield the queue of the ownership topic for *queue*; look it up again after a refusal."""
        twin = QueueName(ownership_topic(group, queue.topic), queue.broker, queue.queue_id)
        try:
            if twin not in self._known:
                async with self._looking[twin.topic, twin.broker]:
                    if twin not in self._known:
                        await self._look_up(twin, queue)
            yield twin
        except BrokerError:
            if twin in self._known:
                self._known.discard(twin)
                self._doubted.add(twin)
            raise

    async def _look_up(self, twin: QueueName, queue: QueueName) -> None:
        try:
            found = await self._found_or_created(twin, queue)
        except (ConnectionLost, RequestTimeout):
            # No nameserver answers. The refusal may have had another cause, such as a full disk:
            # the broker says again whether it has the twin.
            if twin not in self._doubted:
                raise
            return
        self._known |= found  # others may have changed it meanwhile
        self._doubted -= found

    async def _found_or_created(self, twin: QueueName, queue: QueueName) -> set[QueueName]:
        """Return *twin* and its neighbours at the broker, creating them if necessary."""
        found = {each for each in await self._queues(twin.topic) if each.broker == twin.broker}
        if twin not in found:
            count = await create_twins(self._client, twin, queue)
            found |= {QueueName(twin.topic, twin.broker, queue_id) for queue_id in range(count)}
        return found

    async def _queues(self, topic: Topic) -> list[QueueName]:
        try:
            return await self._client.queues(topic, fresh=True)
        except BrokerError as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                return []
            raise


def _placed(found: LastOwner, last: _Place | None) -> LastOwner:
    """Return *found* with the place of its *last* record."""
    return found if last is None else replace(found, **last._asdict())


def _checked(twin: QueueName, found: LastOwner | None, *, lowest: int) -> LastOwner | None:
    """Return *found*, marked as forgotten if earlier records are deleted; log damage."""
    if found is None:
        return None
    if found.snapshot is None and found.damage is None and lowest:
        return replace(found, forgotten=True)
    if found.damage is not None:
        _log.error(
            "ownership records are damaged: recently finished messages may be delivered again",
            twin=str(twin),
            reason=found.damage,
            owner=found.own.owner,
        )
    return found


def _is_sound(found: LastOwner | None, *, least: Epoch) -> bool:
    """Return whether nothing is missing between the records of which *found* is the result."""
    return found is not None and found.damage is None and found.epoch >= least


def _replayed(
    records: Sequence[tuple[int, Record | Unreadable]], *, by_period: bool, begin: bool
) -> LastOwner | None:
    """Return the replayed *records*; they *begin* the state in effect, if they start with a
    snapshot.
    """
    epoch = None
    if begin and records and isinstance(first := records[0][1], SnapshotPart) and first.number == 0:
        epoch = first.epoch
    return replay(records, epoch_before=epoch, by_period=by_period, begins=begin)
