"""Delivers delayed messages when they are due, and protects waiting ones from retention.

Each delivery is one write: the message stored in its topic also ends the waiting one. After a crash
it is therefore either waiting or delivered, never both. It may be late while the broker is down or
its clock stands still or was set back, but by that clock it is never early.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import structlog

from broker_core.broker.delays.records import delivered, moved, recalled
from broker_core.broker.delays.waiting_messages import Due, WaitingMessages
from broker_core.broker.sending.placement import Placement
from broker_core.broker.table_saver import TableSaver
from broker_core.broker.topics.ended_lives import EndedLives
from broker_core.broker.topics.topics import Topics
from broker_core.clock import wall_ms
from broker_core.errors import StoreError
from broker_core.names import (
    DELAY_TOPICS,
    MAX_NAME_CHARS,
    TIMER_QUEUE,
    DelayedPlace,
    Topic,
)
from broker_core.rare_warnings import RareWarnings
from broker_core.remoting.delay_properties import REAL_TOPIC
from broker_core.remoting.message import StoredMessage, decode_message
from broker_core.remoting.recall_handle import RecallHandle
from broker_core.store.message_store import MessageStore
from broker_core.store.pending import Kept
from broker_core.store.reader import ReadStatus
from broker_core.tasks import cancel_and_wait, finished, spawn

_AT_ONCE = 128  # messages, before the loop runs other work
_PUT_BYTES = 512 * 1024  # one write, unless a single message is larger
LOOK_AGAIN_S = 1.0  # a wall clock may be set
AGAIN_S = 1.0  # after the disk refused
_MOST_MOVED = 4  # a segment of which more than this fraction (1/n) waits is kept
_TAKEN_AT_ONCE = 20_000  # a few ms for messages of the same due time
_SEARCHED_AT_ONCE = 100

_log = structlog.get_logger("broker")


class _Ending(NamedTuple):
    due: Due
    placed: Placement | None = None  # None: nothing can be stored
    size: int = 0
    not_now: bool = False


class _Ended(NamedTuple):
    all_of_them: bool  # False if some could not be stored now
    kept: Kept  # the last ones
    log_end: int  # after the last ones, 0 if nothing was stored


class DelayedDelivery:
    """The delayed messages of one broker. Create it before the store is started."""

    def __init__(
        self,
        store: MessageStore,
        topics: Topics,
        *,
        ended_lives: EndedLives,
        store_host: Callable[[], bytes],
        was_promoted: bool = False,
    ) -> None:
        """Read which messages wait. Raise OSError.

        Takes 2 µs for each message delayed lately; for each one kept if the log was read
        completely, or is the copy of a slave.
        """
        self._store = store
        self._topics = topics
        self._ended_lives = ended_lives
        self._store_host = store_host
        self._waiting = WaitingMessages()
        self._seen: dict[int, int] = {}
        self._copied_end = store.end_offset  # of the log, behind all copies made by ``make_way``
        self._arrival = asyncio.Event()
        self._turn = asyncio.Lock()  # held while ending messages
        self._task: asyncio.Task[None] | None = None
        self._warnings = RareWarnings("broker")
        self._load(was_promoted)
        self._saver = TableSaver(
            store.table("delayOffset", is_derived=True),
            content=self._to_table,
            change=lambda: self._waiting.change,
            before=store.sync,
        )

    def __len__(self) -> int:
        """Return the number of waiting messages."""
        return len(self._waiting)

    def start(self) -> None:
        """Start to deliver. Needs the running loop and a started store."""
        self._task = spawn(self._deliver(), name="deliver delayed messages")

    async def close(self) -> None:
        """Stop; an operation under way is written or not, as in a crash."""
        await cancel_and_wait(self._task)

    async def save(self) -> None:
        """Save where waiting messages begin, so that a start reads less. Raise OSError."""
        await self._saver.save()

    def arrived(self, topic: Topic, queue_id: int) -> None:
        """Add newly visible messages that are delayed. Called by the store."""
        if topic in DELAY_TOPICS:
            number = DelayedPlace.of(topic, queue_id, 0).queue
            for due in self._store.delays.arrived(number, self._seen.get(number, 0)):
                self._waiting.add(Due(*due))
            self._seen[number] = self._store.delays.end_offset(number)
            self._arrival.set()

    async def recall(self, handle: RecallHandle) -> Kept | None:
        """Cancel a delivery durably; return how durably, None if the message does not wait.

        Raises OSError.
        """
        # A task of its own, so that a cancelled caller does not leave it half done.
        recalled = await finished(spawn(self._recall(handle), name="recall a message"))
        if isinstance(recalled, OSError):
            raise recalled
        return recalled

    async def make_way(self, end: int, segment_bytes: int) -> bool:
        """Copy messages that wait before *end* of the log to its end, so that they may be deleted.

        Returns False if these are too many, longer than a segment allows now, of a topic that is
        being deleted, or if replicas have not confirmed all copies: slaves delete the segment, too,
        perhaps before they have them. Raises OSError; the segment must then be kept.
        """
        async with self._turn:
            due: list[Due] = []
            size = 0
            for some in self._waiting.below(self._store.delays.before(end)):
                due += some
                sizes = [self._store.delays.size(one.place) for one in some]
                size += sum(sizes)
                longest = max(sizes, default=0)
                if size * _MOST_MOVED > segment_bytes or longest > self._store.largest_put_bytes:
                    return False
                await asyncio.sleep(0)  # lets the loop run other work
            taken: list[Due] = []
            for start in range(0, len(due), _TAKEN_AT_ONCE):
                taken += self._waiting.take_those(due[start : start + _TAKEN_AT_ONCE])
                await asyncio.sleep(0)
            # On a full disk no segment could be deleted if waiting messages could not be moved.
            ended = await self._end_in_portions(taken, self._move, short_segment=True)
            self._copied_end = max(self._copied_end, ended.log_end)
            return ended.all_of_them and self._copied_end <= self._store.visible_end

    def _load(self, was_promoted: bool) -> None:
        table = self._store.table("delayOffset", is_derived=True)
        try:
            content = table.load()
        except StoreError as error:
            _log.warning("all delayed messages are read again", reason=str(error))
            content = {}
        lowest = _lowest_offsets(content)
        # The log may have lost, and a copied one may have missed, endings that the table counts.
        # Delete it before there is a checkpoint, which the next start would trust.
        if lowest and (was_promoted or self._may_count_lost(content.get("logEnd"))):
            table.delete()
            lowest = {}
        for due_ms, place in self._store.delays.waiting(lowest):
            self._waiting.add(Due(due_ms, place))
        for number in range(TIMER_QUEUE + 1):
            self._seen[number] = self._store.delays.end_offset(number)
        if len(self._waiting):
            _log.info("delayed messages wait", messages=len(self._waiting))

    def _may_count_lost(self, log_end: object) -> bool:
        """Return whether a table that was saved when the log ended at *log_end* may count messages
        that the log lost. Tables of earlier versions do not contain it.
        """
        recovery = self._store.recovery
        if recovery.rebuilt or recovery.gaps:
            return True
        if isinstance(log_end, int):
            return log_end > self._store.end_offset
        return bool(recovery.dropped)

    def _to_table(self) -> dict[str, Any]:
        lowest = self._seen | self._waiting.lowest_offsets()
        return {
            "offsetTable": {
                str(number + 1): offset for number, offset in lowest.items() if number < TIMER_QUEUE
            },
            "timerOffset": lowest[TIMER_QUEUE],
            "logEnd": self._store.end_offset,
        }

    async def _deliver(self) -> None:
        while True:
            self._arrival.clear()
            more = self._waiting.turn(wall_ms())
            try:
                more = await self._deliver_some() or more
            except OSError as error:
                self._warnings.warn("delayed messages not delivered", peer="", reason=str(error))
                await asyncio.sleep(AGAIN_S)
            await (asyncio.sleep(0) if more else self._something_due())

    async def _something_due(self) -> None:
        next_ms = self._waiting.next_ms()
        wait_s = None if next_ms is None else min((next_ms - wall_ms()) / 1000, LOOK_AGAIN_S)
        if wait_s is None or wait_s > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._arrival.wait()

    async def _deliver_some(self) -> bool:
        """Deliver some due messages; return whether there were any."""
        async with self._turn:
            due = self._waiting.take(wall_ms(), _AT_ONCE)
            await self._end_in_portions(due, self._delivery)
        return bool(due)

    async def _recall(self, handle: RecallHandle) -> Kept | OSError | None:
        async with self._turn:
            due = await self._find(handle)
            if due is None or not self._waiting.take_one(due):
                return None
            try:
                return (await self._end_in_portions([due], self._word_of_recall)).kept
            except OSError as error:
                return error

    async def _find(self, handle: RecallHandle) -> Due | None:
        """Return the message of *handle*: where it was stored, or where it was moved to."""
        if handle.number is not None and handle.number > 0:
            place = DelayedPlace.from_number(handle.number)
            if _is_of(self._message(place), handle):
                return Due(handle.due_ms, place)
        for looked_at, place in enumerate(self._waiting.due_at(handle.due_ms)):
            if _is_of(self._message(place), handle):
                return Due(handle.due_ms, place)
            if looked_at % _SEARCHED_AT_ONCE == 0:
                await asyncio.sleep(0)
        return None

    async def _end_in_portions(
        self, taken: list[Due], become: Callable[[Due], _Ending], *, short_segment: bool = False
    ) -> _Ended:
        """Store the outcomes of *taken*. Raise OSError; messages that were not stored wait again.

        Those that cannot be stored now wait longer, without delaying others.
        """
        left, all_ended, kept, log_end = len(taken), True, Kept.WELL, 0
        try:
            for some in self._portions(become(due) for due in taken):
                parts = [(e.placed.envelope, e.placed.entries) for e in some if e.placed]
                if parts:
                    stored = await self._store.put_all(
                        parts, store_ms=wall_ms(), short_segment=short_segment
                    )
                    kept, log_end = stored[-1].kept, stored[-1].log_end
                self._waiting.end(ending.due for ending in some if not ending.not_now)
                later = [ending.due for ending in some if ending.not_now]
                all_ended = all_ended and not later
                self._waiting.postpone(later, wall_ms() + max(1, int(AGAIN_S * 1000)))
                left -= len(some)
        finally:
            self._waiting.put_back(taken[len(taken) - left :])
        return _Ended(all_ended, kept, log_end)

    def _portions(self, endings: Iterable[_Ending]) -> Iterator[list[_Ending]]:
        most = min(_PUT_BYTES, self._store.largest_put_bytes // 2)
        some: list[_Ending] = []
        size = 0
        for ending in endings:
            if some and size + ending.size > most:
                yield some
                some, size = [], 0
            some.append(ending)
            size += ending.size
        if some:
            yield some

    def _delivery(self, due: Due) -> _Ending:
        message = self._message(due.place)
        placed = None
        if message is not None:
            placed = delivered(message, due.place, store_host=self._store_host())
        if message is None or placed is None:
            _log.error("a delayed message cannot be read", **due.place._asdict())
            return _Ending(due)
        if self._ended_lives.is_former(message):
            self._warn_of_former(message)
            return _Ending(due)
        config = self._topics.find(placed.envelope.topic)
        if config is None:
            _log.warning("the topic of a delayed message was deleted", topic=placed.envelope.topic)
            return _Ending(due)
        if self._store.is_deleting(placed.envelope.topic):
            # It ends with its topic, which may take long: others do not wait for it.
            return _Ending(due, not_now=True)
        if message.size + MAX_NAME_CHARS > self._store.largest_put_bytes:
            # Sent under other settings. It stays in the log, for a start with those.
            _log.error(
                "a delayed message exceeds segment_bytes and is skipped until a restart",
                bytes=message.size,
                topic=placed.envelope.topic,
                **due.place._asdict(),
            )
            return _Ending(due)
        queue_id = placed.envelope.queue_id % config.read_queues  # there may be fewer by now
        envelope = placed.envelope._replace(queue_id=queue_id)
        return _Ending(due, placed._replace(envelope=envelope), message.size)

    def _move(self, due: Due) -> _Ending:
        message = self._message(due.place)
        if message is None or self._ended_lives.is_former(message):
            return _Ending(due)
        if self._ended_lives.is_ending(message):
            return _Ending(due, not_now=True)  # after the deletion it would belong to the next life
        return _Ending(due, moved(message, due.place, store_host=self._store_host()), message.size)

    def _word_of_recall(self, due: Due) -> _Ending:
        message = self._message(due.place)
        if message is None:
            return _Ending(due)
        return _Ending(due, recalled(message, due.place, store_host=self._store_host()))

    def _warn_of_former(self, message: StoredMessage) -> None:
        self._warnings.warn(
            "a delayed message was dropped because its topic was deleted",
            peer="",
            topic=message.properties.get(REAL_TOPIC),
            message=message.message_id,
        )

    def _message(self, place: DelayedPlace) -> StoredMessage | None:
        """Return the message at *place*, its body as stored; None if it is deleted or damaged.

        Raises OSError while the index is under examination.
        """
        read = self._store.reader.read(place.topic, place.queue_id, place.offset, max_messages=1)
        if read.status is ReadStatus.EXAMINED:
            raise OSError(errno.EBUSY, "the index of delayed messages is under examination")
        if read.status is not ReadStatus.FOUND:
            return None
        return decode_message(read.body, plain=False)


def _is_of(message: StoredMessage | None, handle: RecallHandle) -> bool:
    return (
        message is not None
        and message.topic in DELAY_TOPICS
        and message.properties.get(REAL_TOPIC) == handle.topic
        and message.message_id == handle.message_id
    )


def _lowest_offsets(table: dict[str, Any]) -> dict[int, int]:
    """Return the valid offsets of the table; missing ones only make a start read more."""
    levels = table.get("offsetTable")
    lowest = {
        int(level) - 1: offset
        for level, offset in (levels if isinstance(levels, dict) else {}).items()
        if level.isdecimal() and isinstance(offset, int)
    }
    timer = table.get("timerOffset")
    return lowest | ({TIMER_QUEUE: timer} if isinstance(timer, int) else {})
