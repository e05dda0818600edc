"""The audit topic: operators' changes and their reasons, stored before each change is made.

The topic has a queue at each broker. The records of a group are in one of them, so they are in
order; if that broker is down, another one is used. A change that cannot be recorded is refused.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import structlog

from broker_core.client import BrokerClient
from broker_core.client.message_ids import MessageIds
from broker_core.clock import wall_ms
from broker_core.errors import BrokerError, RemotingError
from broker_core.names import Group, QueueName
from broker_core.remoting.codes import ResponseCode
from broker_core.remoting.message import UNIQ_KEY, OutgoingMessage
from proxy.core.access.audit_record import (
    AUDIT_TOPIC,
    AuditRecord,
    AuditWish,
    Change,
    Merged,
    Phase,
    audit_text,
    decode,
    encode,
    shortened,
)
from proxy.errors import Refused, Unavailable
from proxy.history.record import History
from proxy.upstream.broker_questions import BrokerQuestions
from proxy.upstream.records.durable import check_on_disk
from proxy.upstream.records.queue_range import read_range, shown_end

_log = structlog.get_logger("audit")

#: Name of the reader at brokers; it commits nothing.
_READER = Group("orderlane-audit")
#: Maximum records read per queue for one request, the newest ones.
MOST_READ = 10_000


@dataclass(slots=True)
class Entry:
    """A change in progress. ``id`` names its record, ``after`` is its result."""

    id: str
    after: Any

    def ended_as(self, after: Any) -> None:
        """Set a result that differs from the intended one."""
        self.after = after


@dataclass(frozen=True, slots=True)
class AuditPage:
    """Records, oldest first, and the position of the next page: offset by queue. ``complete``: no
    matching record is left out because it is older than these, or than the newest that are read, or
    because its broker did not answer; ``unanswered``: the errors of such brokers, by name.
    """

    records: list[AuditRecord]
    position: dict[str, int]
    complete: bool
    unanswered: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Part:
    """The matching records of one queue, and its end. ``cut``: older ones were not read."""

    queue: QueueName
    records: list[AuditRecord]
    end: int
    cut: bool


class Audit:
    """Reads and writes the audit topic. One per process."""

    def __init__(
        self, client: BrokerClient, history: History, *, most_read: int = MOST_READ
    ) -> None:
        """*most_read*: the newest records of each queue that a request reads."""
        self._client = client
        self._history = history
        self._most_read = most_read
        self._ids = MessageIds()
        #: End offsets after the newest record that this process stored and has not read yet.
        self._stored: dict[QueueName, int] = {}

    @asynccontextmanager
    async def change(self, change: Change) -> AsyncIterator[Entry]:
        """Record *change*, then let the caller make it.

        If the caller raises, or sets another ``after``, a second record contains that. Raises
        Refused without a reason, and Unavailable if no broker stores the record; nothing was
        changed then.
        """
        change = replace(
            change,
            actor=audit_text(change.actor) or "unknown",
            reason=audit_text(change.reason).strip(),
            target=audit_text(change.target),
        )
        if not change.reason:
            raise Refused(f"{change.verb} needs a reason for the audit: state why it is done")
        begun = AuditRecord(self._ids.new(), wall_ms(), self._client.client_id, change)
        try:
            await self._store(begun)
        except RemotingError as error:
            raise Unavailable(
                f"{change.verb} was not done, because no broker stores its audit record: {error}"
            ) from None
        self._note(begun)
        entry = Entry(begun.id, change.after)
        try:
            yield entry
        except BaseException as error:
            await self._end(begun, after=None, failed=str(error) or type(error).__name__)
            raise
        if entry.after != change.after:
            await self._end(begun, after=entry.after)

    async def read(self, wish: AuditWish, *, position: dict[str, int] | None = None) -> AuditPage:
        """Return the newest matching records from *position* on, including those of this process.

        A queue whose broker does not answer keeps its place in *position*. Raises RemotingError,
        and Unavailable if no broker answers.
        """
        queues = await self._queues(fresh=True)
        ask, known = BrokerQuestions(), position or {}
        parts = await ask.ask_each(queues, lambda there: self._parts(there, wish, position=known))
        ask.refuse_if_silent({queue.broker for queue in queues})
        merged, places = (
            Merged(),
            {each.qid: known[each.qid] for each in queues if each.qid in known},
        )
        for part in (part for there in parts for part in there):
            merged.add(part.records)
            places[part.queue.qid] = part.end
        cut = any(part.cut for there in parts for part in there)
        return AuditPage(
            merged.newest(wish.limit),
            places,
            not (cut or ask.unanswered or len(merged) > wish.limit),
            ask.unanswered,
        )

    # ---- internals ------------------------------------------------------------------------------

    async def _parts(
        self, queues: Sequence[QueueName], wish: AuditWish, *, position: Mapping[str, int]
    ) -> list[_Part]:
        """Return the parts of *queues*, which are at one broker."""
        return [await self._part(queue, wish, position.get(queue.qid, 0)) for queue in queues]

    async def _part(self, queue: QueueName, wish: AuditWish, known: int) -> _Part:
        low = await self._client.min_offset(queue)
        end = await self._end_of(queue)
        if known > end:  # it was deleted and created again, or lost records
            known = 0
        start = max(low, end - self._most_read, known)
        records = [each async for each in self._read(queue, wish, start=start, end=end)]
        return _Part(queue, records, end, cut=start > max(low, known))

    async def _end_of(self, queue: QueueName) -> int:
        """Return the end offset of *queue*, after our own records unless it has lost them."""
        stored = self._stored.get(queue, 0)
        end = await shown_end(self._client, queue, stored=stored)
        if self._stored.get(queue) == stored:
            del self._stored[queue]
        return end

    async def _read(
        self, queue: QueueName, wish: AuditWish, *, start: int, end: int
    ) -> AsyncIterator[AuditRecord]:
        if start >= end:
            return
        async for message in read_range(self._client, queue, group=_READER, start=start, end=end):
            try:
                record = decode(message.body)
            except ValueError as error:
                _log.warning("invalid audit record skipped", queue=str(queue), reason=str(error))
                continue
            if wish.takes(record):
                yield record

    async def _end(self, begun: AuditRecord, *, after: Any, failed: str = "") -> None:
        """Record the actual result of a change; may fail, as the change is already recorded."""
        change = replace(begun.change, after=after)
        ended = AuditRecord(begun.id, wall_ms(), begun.proxy, change, Phase.END, audit_text(failed))
        try:
            await asyncio.shield(self._store(ended))
        except RemotingError as error:
            _log.error("result of a change not recorded", id=begun.id, reason=str(error))
        self._note(ended)

    def _note(self, record: AuditRecord) -> None:
        row = record.row()
        about = {name: row[name] for name in ("verb", "group", "topic", "target", "reason")}
        _log.warning("change", phase=row["phase"], id=record.id, by=row["actor"], **about)
        self._history.write(
            "audit",
            id=record.id,
            phase=row["phase"],
            by=row["actor"],
            before=row["before"],
            after=row["after"],
            failed=record.failed,
            **about,
        )

    async def _store(self, record: AuditRecord) -> None:
        if queues := await self._queues():
            try:
                await self._store_in_any(queues, record)
                return
            except BrokerError as error:
                if error.code != ResponseCode.TOPIC_NOT_EXIST:
                    raise
        # It is new, or was deleted, or its broker continues with a copy from before.
        await self._client.create_topic(AUDIT_TOPIC, queues=1)
        await self._store_in_any(await self._queues(fresh=True), record)

    async def _store_in_any(self, queues: Sequence[QueueName], record: AuditRecord) -> None:
        first = zlib.crc32(record.change.group.encode()) % len(queues)
        last = len(queues) - 1
        for number, queue in enumerate([*queues[first:], *queues[:first]]):
            try:
                await self._store_in(queue, record)
                return
            except RemotingError as error:
                if number == last:
                    raise
                _log.warning("trying another broker", broker=queue.broker, reason=str(error))

    async def _store_in(self, queue: QueueName, record: AuditRecord) -> None:
        try:
            receipt = await self._client.send(queue, _message(record))
        except BrokerError as error:
            if not error.illegal:
                raise
            _log.warning(
                "audit record stored without before and after", id=record.id, reason=str(error)
            )
            receipt = await self._client.send(queue, _message(shortened(record)))
        self._stored[queue] = max(self._stored.get(queue, 0), receipt.offset + 1)
        check_on_disk([receipt])

    async def _queues(self, *, fresh: bool = False) -> list[QueueName]:
        """Return a queue of each broker; none if the topic does not exist."""
        try:
            return await self._client.queues(AUDIT_TOPIC, fresh=fresh)
        except BrokerError as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                return []
            raise


def _message(record: AuditRecord) -> OutgoingMessage:
    return OutgoingMessage(
        topic=AUDIT_TOPIC,
        body=encode(record),
        key=record.change.group,
        properties={UNIQ_KEY: f"{record.id}-{record.phase}"},
    )
