"""Operations on dead letters: list, show, export, redrive, stop.

Any proxy can run them, even for a group that it does not serve. A redrive runs in the proxy that
received the request and ends with that proxy; a new request, to any proxy, continues it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from itertools import accumulate
from typing import Any

import orjson

from broker_core.client import PullStatus
from broker_core.errors import BrokerError
from broker_core.names import Group, QueueName
from broker_core.remoting.codes import ResponseCode
from broker_core.remoting.message import StoredMessage
from broker_core.tasks import all_results
from broker_core.time_slices import TimeSlices
from proxy.core.access.audit_record import Change
from proxy.core.dead_letters.dead_letter import DeadLetter, content_of, dead_letter
from proxy.core.dead_letters.redrive import RedriveState, parse_skips
from proxy.core.keys.group_names import check_group
from proxy.core.keys.order_key import known_as
from proxy.errors import OrderlaneError, Unavailable, UnknownName
from proxy.operator.message_pages import SEARCHING, parse_positions, positions_text
from proxy.operator.request_models import Streamed
from proxy.upstream.broker_questions import BrokerQuestions, no_route
from proxy.upstream.context import UpstreamContext
from proxy.upstream.dead_letters.copier import dead_letter_topic
from proxy.upstream.dead_letters.redrive_run import RedriveRun, progress_group

#: Dead letters read by one request; bounds its duration.
_MOST_READ = 10_000
AT_ONCE = 256
#: Messages, and the next offset; what stands for a batch behind the last one.
_Batch = tuple[Sequence[StoredMessage], int]
_END: _Batch = ((), -1)
_SHOWN = tuple(each.name for each in fields(DeadLetter) if each.name not in ("queue", "offset"))


@dataclass(frozen=True, slots=True)
class Wish:
    """Selects dead letters. ``everything`` includes redriven ones; ``limit`` None means all.

    ``since_ms``: first store time; ``reason``: a part of the reason. ``positions``: of an earlier
    page, which this one continues.
    """

    limit: int | None = 100
    topic: str | None = None
    key: str | None = None
    everything: bool = False
    since_ms: int | None = None
    reason: str | None = None
    positions: str | None = None

    def takes(self, letter: DeadLetter) -> bool:
        """Return whether *letter* is selected."""
        return (
            self.topic in (None, letter.topic)
            and (self.key is None or letter.key == known_as(self.key))
            and (self.since_ms is None or letter.store_ms >= self.since_ms)
            and (self.reason is None or self.reason in (letter.reason or ""))
        )


class DeadLetterDesk:
    """Operations on dead letters, one object per process."""

    def __init__(self, context: UpstreamContext, *, is_known: Callable[[Group], bool]) -> None:
        """*is_known*: whether this proxy has a group. One without a topic for dead letters has
        none; of other groups only that topic is known.
        """
        self._context = context
        self._is_known = is_known
        self._runs: dict[Group, RedriveRun] = {}  # the last one of each group
        self._slices = TimeSlices()
        #: Redriven messages, by group and topic.
        self.counts: Counter[tuple[str, str]] = Counter()

    async def show(self, name: str, wish: Wish) -> dict[str, Any]:
        """Return dead letters of a group, oldest first, and the number not yet redriven: None if a
        broker does not answer, whose errors are in ``unanswered`` by name.

        ``complete``: no selected dead letter of the other brokers is left out; ``positions``: where
        the next page begins. Raises UnknownName, RemotingError; Unavailable if no broker answers.
        """
        group, queues = await self._look(name)
        given, ask = _positions(wish, queues), BrokerQuestions()
        reached = dict(given)
        for queue in given.keys() - queues:
            ask.note(queue.broker, no_route(queue))
        bounds = await self._all_bounds(ask, group, queues)
        found: list[tuple[int, DeadLetter]] = []  # with the latest store time so far in its queue
        complete, room = True, _MOST_READ
        for queue, (start, first, end) in bounds.items():
            begin = start if wish.everything else first
            begin = min(end, max(begin, given.get(queue, 0)))
            to = min(end, begin + room)
            read = await ask.ask(
                queue.broker, partial(self._read, queue, wish, start=begin, end=to)
            )
            if read is None:
                continue
            letters, read_to = read
            # A page ends at an offset of each queue, also if a broker's clock was set back.
            found += zip(accumulate((each.store_ms for each in letters), max), letters, strict=True)
            reached[queue] = read_to
            room -= read_to - begin
            complete = complete and read_to >= end
        ask.refuse_if_silent({queue.broker for queue in queues})
        found.sort(key=lambda each: (each[0], each[1].queue, each[1].offset))
        for _, letter in found[wish.limit :] if wish.limit is not None else ():
            reached[letter.queue] = min(reached[letter.queue], letter.offset)
        waiting = sum(end - first for _, first, end in bounds.values())
        shown = [letter for _, letter in found[: wish.limit]]
        return {
            "group": group,
            "positions": positions_text(reached),
            "waiting": None if ask.unanswered else waiting,
            "dead_letters": [await self._slices.result(partial(_row, each)) for each in shown],
            "complete": complete and (wish.limit is None or len(found) <= wish.limit),
            "redrive": self._view(group),
            "unanswered": ask.unanswered,
        }

    async def find(self, name: str, which: str) -> dict[str, Any]:
        """Return a dead letter with its body, by message id or location (``broker-a_0@17``).

        Raises UnknownName, RemotingError.
        """
        group, queues = await self._find(name)
        if "@" not in which:
            return await self._by_id(group, queues, which)
        try:
            ((queue, offset),) = parse_skips([which], queues)
        except ValueError as error:
            raise UnknownName(str(error)) from None
        client = self._context.client
        begin, end = await client.min_offset(queue), await client.max_offset(queue)
        if begin <= offset < end:
            async for messages, _ in self._batches(queue, offset, offset + 1, at_once=1):
                for stored in messages:
                    if stored.queue_offset == offset:
                        return _whole(stored, queue)
        raise UnknownName(
            f"group {group!r} has no dead letter {which}: {queue.qid} has {begin} to {end - 1}"
            if begin < end
            else f"group {group!r} has no dead letter {which}: {queue.qid} is empty"
        )

    def export(self, name: str, wish: Wish) -> Streamed:
        """Return dead letters with their bodies as lines of JSON, queue by queue, oldest first, and
        ``SEARCHING`` for each batch without any.

        Dead letters that arrive later are not included. The pieces raise UnknownName,
        RemotingError; Unavailable, at the end, if some are missing, as a broker does not answer.
        """
        ask = BrokerQuestions()
        return Streamed(self._exported(ask, name, wish), ask.unanswered)

    async def _exported(self, ask: BrokerQuestions, name: str, wish: Wish) -> AsyncIterator[bytes]:
        group, queues = await self._look(name)
        left = wish.limit
        for queue, (start, first, end) in (await self._all_bounds(ask, group, queues)).items():
            batches = self._batches(queue, start if wish.everything else first, end)
            while left != 0:
                batch = await ask.ask(queue.broker, partial(_next, batches))
                if batch is None or batch is _END:
                    break
                lines: list[bytes] = []
                for stored in batch[0]:
                    if len(lines) == left or stored.queue_offset >= end:
                        break
                    line = await self._slices.result(partial(_line, stored, queue, wish))
                    if line:
                        lines.append(line)
                left = None if left is None else left - len(lines)
                yield b"".join(lines) or SEARCHING
        if ask.unanswered:
            raise Unavailable(f"dead letters are missing: {ask.sentence}")

    async def redrive(
        self, name: str, *, by: str, reason: str, rate: float, skip: Sequence[str], dry_run: bool
    ) -> dict[str, Any]:
        """Start sending the dead letters of a group to their original topics.

        *rate* is the maximum of messages per second (0: no limit), *skip* lists dead letters to
        leave out (``broker-a_0@17``), and *dry_run* only counts them. Raises UnknownName,
        RemotingError, and OrderlaneError if it cannot start.
        """
        group, queues = await self._find(name)
        try:
            skips = parse_skips(skip, queues)
        except ValueError as error:
            raise OrderlaneError(str(error)) from None
        if dry_run:
            waiting: dict[QueueName, range] = {}
            for queue in queues:
                _, first, end = await self._bounds(group, queue)
                waiting[queue] = range(first, end)
            skipped = sum(offset in waiting[queue] for queue, offset in skips)
            left = sum(map(len, waiting.values())) - skipped
            return {"group": group, "state": "dry run", "left": left, "skipped": skipped}
        if (last := self._runs.get(group)) is not None and last.running:
            raise OrderlaneError(
                f"a redrive of the dead letters of {group!r} is running: stop it first"
            )
        after = {"state": "redriven", "rate": rate, "skip": list(skip)}
        change = Change(by, "dead-letters redrive", group, reason, before={}, after=after)
        async with self._context.audit.change(change) as entry:
            if (last := self._runs.get(group)) is not None and last.running:
                raise OrderlaneError(
                    f"another redrive of the dead letters of {group!r} has started"
                )
            run = self._runs[group] = RedriveRun(
                *(self._context, group, queues),
                by=by,
                audit=entry.id,
                rate=rate,
                skip=skips,
                counts=self.counts,
            )
            await run.begun()
            if run.redrive.state is RedriveState.FAILED:
                raise OrderlaneError(run.redrive.reason)
        return self._view(group) or {}

    async def stop(self, name: str, *, by: str, reason: str) -> dict[str, Any]:
        """Stop the redrive and wait for sends in progress.

        Raises OrderlaneError if this proxy runs no redrive of the group.
        """
        run = self._runs.get(Group(name))
        if run is None or not run.running:
            raise OrderlaneError(
                f"this proxy does not redrive the dead letters of {name!r}: ask the one that does"
            )
        before = self._view(run.group)
        change = Change(
            by, "dead-letters stop", run.group, reason, before=before, after={"state": "stopped"}
        )
        async with self._context.audit.change(change):
            await run.stop()
        return self._view(run.group) or {}

    async def close(self) -> None:
        """Stop all redrives."""
        running = [run for run in self._runs.values() if run.running]
        await asyncio.gather(*(run.stop() for run in running))

    # ---- inside ---------------------------------------------------------------------------------

    def _view(self, group: Group) -> dict[str, Any] | None:
        """Return the state of this proxy's last redrive of *group*."""
        if (run := self._runs.get(group)) is None:
            return None
        redrive = run.redrive
        return {
            "group": group,
            "state": run.state,
            "sent": redrive.sent_back,
            "skipped": redrive.skipped,
            "left": redrive.left,
            "rate": run.rate,
            "by": run.by,
            "reason": redrive.reason,
            "note": redrive.note,
        }

    async def _find(self, name: str) -> tuple[Group, list[QueueName]]:
        """Return the group and its queues of dead letters. Raises UnknownName if there are none."""
        group, queues = await self._look(name)
        if not queues:
            raise UnknownName(
                f"group {name!r} has no dead letters: topic {dead_letter_topic(group)} does not"
                " exist"
            )
        return group, queues

    async def _look(self, name: str) -> tuple[Group, list[QueueName]]:
        """Return the group and its queues of dead letters: none if a known group has no topic for
        them yet. Raises UnknownName for an unknown group.
        """
        try:
            topic = dead_letter_topic(group := Group(check_group(name)))
            queues = await self._context.client.queues(topic)
        except ValueError as error:
            raise UnknownName(str(error)) from None
        except BrokerError as error:
            if error.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            if self._is_known(group):
                return group, []
            raise UnknownName(
                f"there is no group {name!r} here, and no dead letters of it: topic {topic} does"
                " not exist"
            ) from None
        if not queues:
            raise OrderlaneError(f"topic {topic} is not readable: set its permission to 6 (RW)")
        return group, queues

    async def _all_bounds(
        self, ask: BrokerQuestions, group: Group, queues: Sequence[QueueName]
    ) -> dict[QueueName, tuple[int, int, int]]:
        """Return the offsets of those of *queues* whose brokers answer, in order."""

        async def at_broker(there: list[QueueName]) -> dict[QueueName, tuple[int, int, int]]:
            bounds = await all_results(*(self._bounds(group, queue) for queue in there))
            return dict(zip(there, bounds, strict=True))

        answers = await ask.ask_each(queues, at_broker)
        found = {queue: bounds for answer in answers for queue, bounds in answer.items()}
        return {queue: found[queue] for queue in queues if queue in found}

    async def _bounds(self, group: Group, queue: QueueName) -> tuple[int, int, int]:
        """Return the offsets of *queue*: minimum, next to redrive, end."""
        client = self._context.client
        committed = await client.committed_offset(progress_group(group), queue)
        low, end = await client.min_offset(queue), await client.max_offset(queue)
        return low, min(end, max(low, committed or 0)), end

    async def _read(
        self, queue: QueueName, wish: Wish, *, start: int, end: int
    ) -> tuple[list[DeadLetter], int]:
        """Return selected dead letters of *queue*, at most limit + 1, and the next offset."""
        found: list[DeadLetter] = []
        read_to = start
        async for messages, read_to in self._batches(queue, start, end):  # noqa: B007
            for each in messages:
                letter = await self._slices.result(partial(dead_letter, each, queue))
                if wish.takes(letter):
                    found.append(letter)
            if wish.limit is not None and len(found) > wish.limit:
                break
        return found, read_to

    async def _batches(
        self, queue: QueueName, start: int, end: int, *, at_once: int | None = None
    ) -> AsyncIterator[_Batch]:
        """Yield batches of messages of *queue*, maybe beyond *end*, each with the next offset."""
        offset = start
        while offset < end:
            result = await self._context.client.pull(
                queue,
                group=Group(queue.topic),  # the progress group has the same name
                offset=offset,
                max_messages=at_once or AT_ONCE,
                suspend_ms=0,
            )
            goes_on = result.next_offset > offset and result.status is not PullStatus.NO_NEW
            offset = result.next_offset if goes_on else offset
            yield result.messages, offset
            if not goes_on:
                return

    async def _in_queue(
        self, queue: QueueName, message_id: str, start: int, end: int
    ) -> StoredMessage | None:
        async for messages, _ in self._batches(queue, start, end):
            for stored in messages:
                if stored.message_id == message_id:
                    return stored
        return None

    async def _by_id(
        self, group: Group, queues: Sequence[QueueName], message_id: str
    ) -> dict[str, Any]:
        room, ask = _MOST_READ, BrokerQuestions()
        for queue, (start, _, end) in (await self._all_bounds(ask, group, queues)).items():
            look = partial(self._in_queue, queue, message_id, start, min(end, start + room))
            if (stored := await ask.ask(queue.broker, look)) is not None:
                return _whole(stored, queue)
            room = max(0, room - (end - start))
        if ask.unanswered:
            raise Unavailable(
                f"dead letter {message_id!r} is at none of the brokers that answer: {ask.sentence}"
            )
        among = "" if room else f" among the first {_MOST_READ:,}: give its queue and offset"
        raise UnknownName(f"group {group!r} has no dead letter {message_id!r}{among}")


async def _next(batches: AsyncIterator[_Batch]) -> _Batch:
    async for batch in batches:
        return batch
    return _END


def _positions(wish: Wish, queues: Sequence[QueueName]) -> dict[QueueName, int]:
    """Return the positions of *wish*, none if it has none. Raises UnknownName."""
    if wish.positions is None or not queues:
        return {}
    try:
        given = parse_positions(queues[0].topic, wish.positions, queues)
    except ValueError as error:
        raise UnknownName(str(error)) from None
    return {queue: each for queue, each in given.items() if isinstance(each, int)}


def _row(letter: DeadLetter) -> dict[str, Any]:
    row: dict[str, Any] = {"dead_letter": f"{letter.queue.qid}@{letter.offset}"}
    for name in _SHOWN:
        row[name] = getattr(letter, name)
    return row


def _whole(stored: StoredMessage, queue: QueueName) -> dict[str, Any]:
    return {**_row(dead_letter(stored, queue)), **content_of(stored)}


def _line(stored: StoredMessage, queue: QueueName, wish: Wish) -> bytes:
    """Return *stored* as a line of JSON; nothing if it is not selected."""
    if not wish.takes(dead_letter(stored, queue)):
        return b""
    return orjson.dumps(_whole(stored, queue)) + b"\n"
