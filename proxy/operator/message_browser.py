"""Messages of a topic for operators: in pages, as an export, one by one; sends them again.

Any proxy can read any topic. A page reads at most 10,000 messages, 16 MiB or two seconds, and at
most four pages are read at a time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Any, Literal

import orjson

from broker_core.client import PullStatus
from broker_core.clock import now_ns
from broker_core.errors import BrokerError
from broker_core.names import (
    Group,
    QueueName,
    Topic,
    check_name,
    is_internal_topic,
    parse_qid,
)
from broker_core.remoting.codes import ResponseCode
from broker_core.remoting.message import StoredMessage
from broker_core.remoting.route_bodies import Perm
from broker_core.tasks import all_results
from broker_core.time_slices import TimeSlices
from proxy.core.access.audit_record import Change
from proxy.core.dead_letters.dead_letter import NotSendable, content_of, queue_for, sent_again
from proxy.errors import Unavailable, UnknownName, WrongState
from proxy.operator.message_lookup import found_by, message_at, parse_place
from proxy.operator.message_pages import (
    MOST_QUEUES,
    SEARCHING,
    Position,
    QueueScan,
    Unread,
    lives_in,
    matches,
    merged,
    newest,
    parse_positions,
    positions_text,
    short,
)
from proxy.operator.readers import Readers
from proxy.operator.request_models import Streamed
from proxy.upstream.broker_questions import BrokerQuestions, no_route
from proxy.upstream.context import UpstreamContext
from proxy.upstream.records.durable import check_on_disk

#: Messages of a page.
MOST_LISTED = 200
_AT_ONCE, _AT_ONCE_BYTES = 256, 1 << 20
#: Messages that are read for one page.
MOST_READ = 10_000
_MOST_BYTES, _LONGEST_NS = 16 << 20, 2_000_000_000  # its other limits
#: With a filter, messages before the end of the topic that the newest ones are searched in.
SEARCHED_BACK = 5_000
_PREVIEW = 120  # characters of a body
_EXPORT_BYTES = 1 << 18

#: Where a page begins if neither positions, an offset nor a time says so.
Start = Literal["newest", "oldest", "end"]


@dataclass(frozen=True, slots=True)
class PageWish:
    """A page of messages that contain *contains* in the body or a property.

    *queue* None means all queues. The page begins at *positions* (of an earlier page), at *offset*
    of the queue, at *time_ms* (store time), or at *start*.
    """

    limit: int = 100
    queue: str | None = None
    positions: str | None = None
    offset: int | None = None
    time_ms: int | None = None
    start: Start = "newest"
    contains: str = ""

    @property
    def is_newest(self) -> bool:
        """Whether the page has the newest messages, of whatever queues."""
        places = (self.positions, self.offset, self.time_ms)
        return self.start == "newest" and not self.contains and places == (None, None, None)


@dataclass(slots=True)
class _Budget:
    """Messages, bytes and time left to a page."""

    messages: int
    size: int
    until_ns: int

    @property
    def spent(self) -> bool:
        """Whether the page has to end."""
        return self.messages <= 0 or self.size <= 0 or now_ns() >= self.until_ns


def _budget() -> _Budget:
    return _Budget(MOST_READ, _MOST_BYTES, now_ns() + _LONGEST_NS)


@dataclass(slots=True)
class _Reading:
    """The queues that one request reads. ``unread``: where the next one begins in those of brokers
    that do not answer, unless it is at the first message.
    """

    ask: BrokerQuestions
    scans: list[QueueScan] = field(default_factory=list)
    unread: dict[QueueName, Position] = field(default_factory=dict)
    #: The life of the topic at each broker that tells it, or told it to the page before.
    lives: dict[str, int] = field(default_factory=dict)

    def leave(self, scan: QueueScan, position: int) -> None:
        """Leave the queue of *scan*, with its messages, to the next request, at *position*."""
        self.scans.remove(scan)
        self.unread[scan.queue] = position

    def refuse_if_silent(self) -> None:
        """Raise Unavailable if no broker answers."""
        if not self.scans and self.ask.unanswered:
            raise Unavailable(self.ask.sentence)


def _later(wish: PageWish, position: Position | None) -> Position | None:
    """Return where to begin in a queue once its broker answers; None: at the first message."""
    if position is not None or wish.offset is not None:
        return wish.offset if position is None else position
    if wish.time_ms is not None:
        return Unread(wish.time_ms)
    return None if wish.positions is not None or wish.start == "oldest" else Unread()


class MessageBrowser:
    """Messages of all topics, one object per process."""

    def __init__(self, context: UpstreamContext, readers: Readers) -> None:
        self._context = context
        self._readers = readers
        self._slices = TimeSlices()

    async def page(self, name: str, wish: PageWish) -> dict[str, Any]:
        """Return messages of topic *name*, oldest first, and the ``positions`` of the next page.

        ``complete``: the page reaches the end of all queues whose brokers answer; ``unanswered``:
        the errors of the others, by name; ``older``: messages from before it are stored. ``read``
        counts the messages that were looked at. Raises UnknownName, WrongState, RemotingError,
        Overloaded; Unavailable if no broker answers.
        """
        async with self._readers.place():
            reading = _Reading(BrokerQuestions())
            await self._begin(reading, _topic(name), wish)
            budget = _budget()
            await self._scan(reading, wish, budget)
            if wish.is_newest and all(scan.at_end for scan in reading.scans):
                await self._read_back(reading, wish.limit, budget)
                taken = newest(reading.scans, wish.limit)
                positions = {scan.queue: scan.end for scan in reading.scans}
                passed = sum(len(scan.found) for scan in reading.scans) - len(taken)
            else:
                taken, positions = merged(reading.scans, wish.limit)
                passed = 0
            reading.refuse_if_silent()
            rows = [await self._slices.result(partial(row_of, *each)) for each in taken]
        ends = {scan.queue: scan.end for scan in reading.scans}
        return {
            "topic": name,
            "messages": rows,
            "positions": positions_text({**reading.unread, **positions}, reading.lives),
            "complete": all(offset >= ends[queue] for queue, offset in positions.items()),
            "older": passed > 0 or any(scan.has_older for scan in reading.scans),
            "read": MOST_READ - budget.messages,
            "unanswered": reading.ask.unanswered,
        }

    async def find(self, name: str, text: str, *, limit: int, is_id: bool) -> dict[str, Any]:
        """Return messages with a key or id, from the brokers' indexes: the newest *limit* per
        broker, oldest first. Raises UnknownName, Unavailable, RemotingError, Overloaded.
        """
        async with self._readers.place():
            topic = _topic(name)
            await self._queues(topic)
            found = await found_by(self._context.client, topic, text, limit=limit, is_id=is_id)
            rows = [await self._slices.result(partial(row_of, *each)) for each in found.messages]
        return {
            "topic": name,
            "messages": rows,
            "unanswered": found.unanswered,
            "complete": found.complete,
        }

    def export(self, name: str, wish: PageWish, count: int | None) -> Streamed:
        """Return messages with their bodies as lines of JSON, up to the ends at the beginning, and
        ``SEARCHING`` for each piece of the topic without any.

        The pieces raise UnknownName, WrongState, RemotingError, Overloaded; Unavailable, at the
        end, if some messages are missing, as a broker does not answer.
        """
        reading = _Reading(BrokerQuestions())
        return Streamed(self._exported(reading, name, wish, count), reading.ask.unanswered)

    async def _exported(
        self, reading: _Reading, name: str, wish: PageWish, left: int | None
    ) -> AsyncIterator[bytes]:
        topic = _topic(name)
        async with self._readers.place():
            await self._begin(reading, topic, wish)
        while left != 0:
            async with self._readers.place():
                await self._scan(reading, wish, _budget())
                limit = MOST_LISTED if left is None else min(left, MOST_LISTED)
                taken, positions = merged(reading.scans, limit)
            if not taken:
                yield SEARCHING
            async for lines in self._lines(taken):
                yield lines
            left = None if left is None else left - len(taken)
            reading.scans = [
                QueueScan(scan.queue, positions[scan.queue], scan.end)
                for scan in reading.scans
                if positions[scan.queue] < scan.end
            ]
            if not reading.scans:
                break
        if reading.ask.unanswered:
            raise Unavailable(f"messages are missing: {reading.ask.sentence}")

    async def show(self, name: str, place: str) -> tuple[QueueName, StoredMessage]:
        """Return the message at *place*, such as ``broker-a_0@17``, and its queue.

        Raises UnknownName, RemotingError.
        """
        topic = _topic(name)
        qid, offset = parse_place(place)
        queue = _one_of(topic, qid, await self._queues(topic))
        message = await message_at(self._context.client, queue, offset)
        if message is None:
            raise UnknownName(f"no message at {place}: it is deleted, or not written yet")
        return queue, message

    async def resend(
        self, name: str, place: str, *, by: str, reason: str, dry_run: bool
    ) -> dict[str, Any]:
        """Send a copy of the message at *place* to its topic: a new message, with a new id.

        Raises UnknownName, WrongState, RemotingError.
        """
        if is_internal_topic(name):
            raise WrongState(
                f"messages of {name!r} are not sent again from here: redrive dead letters with"
                " orderlane dead-letters redrive, and parked keys with orderlane key redrive"
            )
        client = self._context.client
        queue, stored = await self.show(name, place)
        try:
            message = sent_again(stored, queue)
        except NotSendable as error:
            raise WrongState(f"the message at {place} is not sent again: {error}") from None
        to = queue_for(message, await client.writable_queues(queue.topic), stored=stored)
        done = {**row_of(queue, stored), "to": to.qid, "sent": None, "dry_run": dry_run}
        if dry_run:
            return done
        change = Change(
            actor=by,
            verb="messages resend",
            group="",
            reason=reason,
            topic=queue.topic,
            target=place,
            before={"message_id": stored.message_id},
            after={"queue": to.qid},
        )
        async with self._context.audit.change(change) as entry:
            receipt = await client.send(to, message)
            check_on_disk([receipt])
            sent = f"{receipt.queue.qid}@{receipt.offset}"
            entry.ended_as({"queue": to.qid, "sent": sent, "message_id": receipt.message_id})
        return {**done, "sent": sent}

    # ---- inside ---------------------------------------------------------------------------------

    async def _queues(self, topic: Topic) -> list[QueueName]:
        try:
            route = await self._context.client.topic_route(topic)
        except BrokerError as error:
            if error.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            raise UnknownName(f"there is no topic {topic!r}: see orderlane topics ls") from None
        return sorted(
            QueueName(topic, data.broker, number)
            for data in route.queues
            if data.perm & Perm.READ
            for number in range(data.read_queues)
        )

    async def _begin(self, reading: _Reading, topic: Topic, wish: PageWish) -> None:
        """Find out where to read, at all brokers at once. Raises Unavailable if none answers."""
        queues = await self._queues(topic)
        if wish.queue is not None:
            queues = [_one_of(topic, wish.queue, queues)]
        elif len(queues) > MOST_QUEUES:
            raise WrongState(
                f"topic {topic!r} has {len(queues)} queues, and a page covers {MOST_QUEUES}: name"
                " one queue"
            )
        elif wish.offset is not None:
            raise WrongState("an offset belongs to one queue: name the queue")
        given: dict[QueueName, Position] = {}
        if wish.positions is not None:
            try:
                given = parse_positions(topic, wish.positions, queues)
            except ValueError as error:
                raise UnknownName(str(error)) from None
            reading.lives = lives_in(wish.positions)
            for queue in given.keys() - queues:
                reading.ask.note(queue.broker, no_route(queue))
                reading.unread[queue] = given[queue]
        many = max(1, len(queues))
        share = min(wish.limit, wish.limit // many + 1)
        if wish.contains:
            share = SEARCHED_BACK // many + 1

        before, lives = reading.lives, dict(reading.lives)

        async def one(queue: QueueName) -> None:
            life = before.get(queue.broker)
            begins = partial(self._from, queue, wish, given.get(queue), share, life=life)
            begun = await reading.ask.ask(queue.broker, begins)
            if begun is not None:
                scan, life = begun
                reading.scans.append(scan)
                if life is not None:
                    lives[queue.broker] = life
            elif (later := _later(wish, given.get(queue))) is not None:
                reading.unread[queue] = later

        await all_results(*map(one, queues))
        reading.lives = lives
        reading.refuse_if_silent()
        reading.scans.sort(key=attrgetter("queue"))

    async def _from(
        self,
        queue: QueueName,
        wish: PageWish,
        position: Position | None,
        share: int,
        *,
        life: int | None,
    ) -> tuple[QueueScan, int | None]:
        """Return the scan of *queue*, which begins *share* messages before the end by default, and
        the life of the topic. A *position* belongs to *life*.
        """
        client = self._context.client
        found = (await client.queue_ranges([queue]))[queue]
        begin, end = found.begin, found.end
        if isinstance(position, int) and None not in (life, found.life) and life != found.life:
            # Created again: everything in it is new. Or an older copy of the log was restored.
            former = (await client.topic_life(queue)).former
            position = min(position, former.get(life or 0, begin))
        time_ms = position.time_ms if isinstance(position, Unread) else wish.time_ms
        if isinstance(position, int):
            at = position
        elif wish.offset is not None:
            at = wish.offset
        elif time_ms is not None:
            at = await client.offset_at(queue, time_ms)
        elif position is not None:
            at = end
        elif wish.positions is not None or wish.start == "oldest":
            at = begin  # a queue that the topic did not have at the earlier page
        else:
            at = end if wish.start == "end" else end - share
        return QueueScan(queue, min(end, max(begin, at)), end, first=begin), found.life

    async def _scan(self, reading: _Reading, wish: PageWish, budget: _Budget) -> None:
        """Read queue after queue in rounds, until the page is full or *budget* spent. The first
        round reads of each queue: one that is not read may have the oldest messages.
        """
        left = [scan for scan in reading.scans if not scan.at_end]
        share = max(1, len(left))
        most = max(1, min(_AT_ONCE, MOST_READ // share))
        size = min(_AT_ONCE_BYTES, _MOST_BYTES // share)
        while left:
            for scan in left:
                if budget.spent:
                    return
                read = partial(self._read, scan, wish.contains, budget, most=most, size=size)
                if await reading.ask.ask(scan.queue.broker, read) is None:
                    reading.leave(scan, scan.begin)
            left = [
                each
                for each in left
                if each in reading.scans and not each.at_end and len(each.found) < wish.limit
            ]

    async def _read_back(self, reading: _Reading, limit: int, budget: _Budget) -> None:
        """Read queues that may have further ones of the newest *limit* messages, each time twice as
        far back, until none may or *budget* is spent.
        """
        while left := short(reading.scans, limit):
            for scan in left:
                part = scan.before()
                while not part.at_end:
                    if budget.spent:
                        return
                    read = partial(self._read, part, "", budget)
                    if await reading.ask.ask(scan.queue.broker, read) is None:
                        reading.leave(scan, scan.end)
                        break
                else:
                    scan.join(part)

    async def _read(
        self,
        scan: QueueScan,
        contains: str,
        budget: _Budget,
        *,
        most: int = _AT_ONCE,
        size: int = _AT_ONCE_BYTES,
    ) -> bool:
        """Read the next messages of a queue, at most *most* and about *size* bytes; damaged ones
        are passed over. Return True.
        """
        result = await self._context.client.pull(
            scan.queue,
            group=Group(scan.queue.topic),
            offset=scan.position,
            max_messages=min(most, scan.end - scan.position),
            max_bytes=size,
            suspend_ms=0,
        )
        for message in result.messages:
            if message.queue_offset >= scan.end:
                break
            found = await self._slices.result(partial(matches, message, contains))
            scan.saw(message, matches=found)
            scan.came_to(message.queue_offset + 1)
            budget.messages -= 1
            budget.size -= message.size + len(message.body) if found else 0
        goes_on = result.next_offset > scan.position and result.status is not PullStatus.NO_NEW
        if goes_on and not (result.messages and result.messages[-1].queue_offset >= scan.end):
            scan.came_to(result.next_offset)
        elif not result.messages:
            scan.came_to(scan.end)  # retention deleted the rest meanwhile
        return True

    async def _lines(self, messages: list[tuple[QueueName, StoredMessage]]) -> AsyncIterator[bytes]:
        lines, size = [], 0
        for queue, message in messages:
            line = await self._slices.result(partial(_line, queue, message))
            lines.append(line)
            size += len(line)
            if size >= _EXPORT_BYTES:
                yield b"".join(lines)
                lines, size = [], 0
        if lines:
            yield b"".join(lines)


def row_of(queue: QueueName, message: StoredMessage) -> dict[str, Any]:
    """Return *message* without its body, of which the beginning is shown if it is text."""
    return {
        "message": f"{queue.qid}@{message.queue_offset}",
        "topic": queue.topic,
        "queue": queue.qid,
        "offset": message.queue_offset,
        "message_id": message.message_id,
        "keys": message.key,
        "tag": message.properties.get("TAGS"),
        "born_ms": message.born_ms,
        "store_ms": message.store_ms,
        "bytes": message.size,
        "preview": _preview(message),
    }


def _preview(message: StoredMessage) -> str | None:
    """Return the beginning of the body; None if it is not text."""
    if message.body_is_compressed:
        return None
    beginning = message.body[: 4 * _PREVIEW]
    try:
        text = beginning.decode()
    except UnicodeDecodeError as error:
        if error.start < len(beginning) - 3 or len(beginning) == len(message.body):
            return None
        text = beginning[: error.start].decode()
    whole = len(text) <= _PREVIEW and len(beginning) == len(message.body)
    return text if whole else f"{text[:_PREVIEW]}…"


def _line(queue: QueueName, message: StoredMessage) -> bytes:
    row = row_of(queue, message)
    del row["preview"]
    return orjson.dumps({**row, **content_of(message)}) + b"\n"


def _topic(name: str) -> Topic:
    try:
        return Topic(check_name("topic", name))
    except ValueError as error:
        raise UnknownName(str(error)) from None


def _one_of(topic: Topic, qid: str, queues: list[QueueName]) -> QueueName:
    try:
        queue = parse_qid(topic, qid)
    except ValueError as error:
        raise UnknownName(str(error)) from None
    if queue not in queues:
        known = ", ".join(each.qid for each in queues[:20])
        more = ", …" if len(queues) > 20 else ""
        raise UnknownName(f"topic {topic!r} has no queue {qid[:80]!r}; its queues: {known}{more}")
    return queue
