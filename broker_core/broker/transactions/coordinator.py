"""Transactions of a broker: ends them as producers request, and checks undecided ones.

The table decides which transactions are open, the records define what is stored; this module
connects both to the store. Nothing is answered before it is stored, and a decision is made and
appended without interruption, so that the first of two concurrent ones counts.

A committed message may be repeated in two cases: a producer sends its half message twice, as with
any repeated send; or, with ``flush="async"``, a power failure removes a message that was read
already, and its producer is asked again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import structlog

from broker_core.broker.check_rules import CheckRules
from broker_core.broker.groups.offsets import CommittedOffsets
from broker_core.broker.store_answers import not_written
from broker_core.broker.topics.directory import TopicDirectory
from broker_core.broker.topics.ended_lives import EndedLives
from broker_core.broker.topics.topics import HALF_OP_TOPIC, HALF_TOPIC
from broker_core.broker.transactions.records import (
    PRODUCER_GROUP,
    PlacedMessage,
    announces,
    place_decision,
    place_renewed,
    read_decision,
    read_half,
    real_queue,
)
from broker_core.broker.transactions.table import CheckAction, Decision, Half, TransactionTable
from broker_core.clock import wall_ms
from broker_core.errors import BrokerError, LocalProtocolError
from broker_core.names import TRANSACTION_GROUP, Topic
from broker_core.remoting.codes import ResponseCode
from broker_core.remoting.message import UNIQ_KEY, StoredMessage, decode_message
from broker_core.remoting.transaction_headers import End, EndTransactionHeader
from broker_core.store.message_store import MessageStore
from broker_core.store.pending import Kept
from broker_core.store.reader import ReadStatus
from broker_core.tasks import all_results

#: Messages read before the loop runs other work: some milliseconds.
_AT_ONCE = 256
#: Reads continue behind messages that were deleted, are damaged, or never were complete.
_STEPPED_OVER = (ReadStatus.TOO_SMALL, ReadStatus.DAMAGED, ReadStatus.NO_MATCH)
_ACTIONS_AT_ONCE = 64
#: Records searched for a decision that is not remembered: a tenth of a second.
_SEARCHED = 10_000
_DECISIONS = {End.COMMIT: Decision.COMMIT, End.ROLLBACK: Decision.ROLLBACK}

_log = structlog.get_logger("broker")

#: Asks a producer of a group about a half message; returns False if there is none.
Ask = Callable[[str, StoredMessage], bool]


class TransactionCoordinator:
    """The transactions of one broker. One event loop only."""

    def __init__(
        self,
        store: MessageStore,
        *,
        rules: CheckRules,
        directory: TopicDirectory,
        offsets: CommittedOffsets,
        ended_lives: EndedLives,
        store_host: Callable[[], bytes],
    ) -> None:
        self._store = store
        self._reader = store.reader
        self._directory = directory
        self._offsets = offsets
        self._ended_lives = ended_lives
        self._store_host = store_host
        self._table = TransactionTable(rules)
        self._found_end = 0  # of the log, at the start
        self._checked_end = 0  # of the log, after the last check
        self._last_read = -1  # physical offset of the last half message or decision
        self._noted = (0, 0)

    def __len__(self) -> int:
        """Return the number of undecided transactions read so far."""
        return len(self._table)

    def undecided(self) -> list[Half]:
        """Return the half messages of undecided transactions read so far."""
        return self._table.undecided()

    def load(self) -> None:
        """Find undecided transactions before anything is served, reading messages since the last
        save.

        Reads all messages if the log lacks the last one read: it lost its tail, or is a slave's,
        and the table of offsets is ahead of the log.
        """
        self._found_end = self._store.end_offset
        last = self._offsets.epoch(TRANSACTION_GROUP, HALF_TOPIC, 0)
        found = None if last is None else self._reader.record_at(last)
        if found is not None and found.topic in (HALF_TOPIC, HALF_OP_TOPIC):
            self._table.read_on(
                half_end=self._committed(HALF_TOPIC), record_end=self._committed(HALF_OP_TOPIC)
            )
            self._last_read = found.physical_offset
        else:
            self._offsets.delete(TRANSACTION_GROUP)
        self._noted = self._table.progress()
        self.catch_up()
        if self._table:
            _log.info("undecided transactions found", transactions=len(self._table))

    def catch_up(self, *, most: int | None = None) -> bool:
        """Read half messages and decisions that became visible; return False if *most* did not
        suffice.
        """
        # Decisions up to here have half messages that can be read now.
        records_end = self._reader.end_offset(HALF_OP_TOPIC, 0)
        left = most
        while halves := self._read(HALF_TOPIC, self._table.half_end):
            for half in halves:
                self._table.add_half(read_half(half))
            self._last_read = max(self._last_read, halves[-1].physical_offset)
            self._add_decisions(records_end, before=halves[-1].physical_offset)
            left = None if left is None else left - len(halves)
            if left is not None and left <= 0:
                return False
        self._add_decisions(records_end, before=None)
        return True

    async def keep_up(self) -> None:
        """Read a long backlog as ``catch_up``, while the loop also runs other work."""
        while not self.catch_up(most=_AT_ONCE):  # noqa: ASYNC110  # nothing is waited for
            await asyncio.sleep(0)

    def oldest_place(self) -> int | None:
        """Return the log offset of the oldest undecided half message, which must be kept, or
        None.
        """
        self.catch_up()
        return self._table.oldest_place()

    def note_progress(self) -> None:
        """Commit how far a restart need not read, as the group that RocketMQ has for it."""
        progress = self._table.progress()
        if progress == self._noted or self._last_read < 0:
            return
        self._noted = progress
        half_offset, record_offset = progress
        # The epoch identifies the log for which that holds: one with this record.
        epoch = self._last_read
        self._offsets.commit(TRANSACTION_GROUP, HALF_TOPIC, 0, half_offset, epoch=epoch)
        self._offsets.commit(TRANSACTION_GROUP, HALF_OP_TOPIC, 0, record_offset)

    async def end(
        self, header: EndTransactionHeader, *, check_topic: Callable[[Topic], None] = lambda _: None
    ) -> Kept:
        """Commit or roll back as *header* requests; return when that is stored, and how well.

        *check_topic* raises BrokerError if the sender may not send to the message's topic.

        Raises BrokerError: 1 if there is no such half message or the transaction ended otherwise,
        17 if its queue is gone (it stays undecided) or its topic was deleted since, perhaps created
        again (it is rolled back), 14 if the log cannot be written; ``says_unconfirmed`` if it has
        failed with the decision, which the next start may find.
        """
        decision = _DECISIONS.get(header.commit_or_rollback)
        if decision is None:
            if header.commit_or_rollback == End.UNKNOWN:
                return Kept.WELL  # a check will ask
            raise _wrong(
                f"header field commitOrRollback is {header.commit_or_rollback}: expected"
                f" {End.COMMIT} (commit), {End.ROLLBACK} (roll back) or {End.UNKNOWN} (unknown)"
            )
        if not self._sees_all():
            raise BrokerError(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                "replicas have not confirmed yet the messages stored before the start",
            )
        self.catch_up()
        message = self._named_half(header)
        check_topic(real_queue(message)[0])
        half = read_half(message)
        if self._table.newest(half.number) is None:
            return await self._end_again(half, decision)
        if decision is Decision.COMMIT:
            topic, queue_id = real_queue(message)
            if self._ended_lives.is_former(message):
                await self._decide(message, half, Decision.ROLLBACK)
                raise BrokerError(
                    ResponseCode.TOPIC_NOT_EXIST,
                    f"topic {topic!r} was deleted since the half message was stored; the"
                    " transaction is rolled back",
                )
            if not self._directory.has_queue(topic, queue_id):
                raise BrokerError(
                    ResponseCode.TOPIC_NOT_EXIST,
                    f"there is no queue {queue_id} of topic {topic!r} any more; the transaction"
                    " stays undecided",
                )
        return await self._decide(message, half, decision)

    async def check(self, now_ms: int, ask: Ask) -> None:
        """Check all undecided transactions once. Raise OSError if the log cannot be written."""
        if not self._sees_all() or self._store.visible_end < self._checked_end:
            return  # messages of the last check are not confirmed and would be stored again
        await self.keep_up()
        due = self._table.due(now_ms)
        report = _CheckReport()
        for start in range(0, len(due), _ACTIONS_AT_ONCE):
            actions = due[start : start + _ACTIONS_AT_ONCE]
            await all_results(
                *(self._apply(number, action, ask, report) for number, action in actions)
            )
        self._checked_end = self._store.end_offset
        report.log()

    async def _apply(
        self, number: int, action: CheckAction, ask: Ask, report: _CheckReport
    ) -> None:
        half = self._table.newest(number)
        if half is None:
            return  # ended since
        try:
            await self._act(half, action, ask, report)
        except (BrokerError, LocalProtocolError, ValueError) as error:
            # Of this one alone: under other settings than before it may be too large, say.
            report.failed.append(str(error))

    async def _act(self, half: Half, action: CheckAction, ask: Ask, report: _CheckReport) -> None:
        status, message = self._read_half(half.offset)
        if message is None:
            if status is not ReadStatus.EXAMINED:  # otherwise the next check
                # Kept as open, it would keep the log from its place on from being deleted.
                self._table.forget(half.number)
                report.lost += 1
            return
        if self._ended_lives.is_former(message):
            await self._decide(message, half, Decision.ROLLBACK)
            report.former += 1
            return
        if self._ended_lives.is_ending(message):
            return  # a new copy would belong to the next life
        if action is CheckAction.GIVE_UP:
            await self._decide(message, half, Decision.GIVE_UP)
            report.given_up.append(message.message_id)
            return
        checks = half.checks + (action is CheckAction.CHECK)
        part = place_renewed(message, half, checks=checks, store_host=self._store_host())
        stored = await self._store.put(part.envelope, part.entries, store_ms=wall_ms())
        if action is not CheckAction.CHECK:
            return
        renewed = self._half_at(stored.first_queue_offset)
        if renewed is not None:
            group = renewed.properties.get(PRODUCER_GROUP, "")
            if not ask(group, renewed):
                report.without_producer[group] += 1

    async def _decide(self, message: StoredMessage, half: Half, decision: Decision) -> Kept:
        parts = place_decision(message, half, decision, store_host=self._store_host())
        self._table.begin(half.number, decision)
        try:
            return await self._put_all(parts)
        except BrokerError:
            self._table.cancel(half.number)
            raise

    async def _put_all(self, parts: list[PlacedMessage]) -> Kept:
        try:
            stored = await self._store.put_all(parts, store_ms=wall_ms())
            return stored[0].kept
        except (ValueError, LocalProtocolError) as error:
            raise BrokerError(ResponseCode.MESSAGE_ILLEGAL, str(error)) from error
        except OSError as error:
            raise not_written(error) from error

    async def _end_again(self, half: Half, decision: Decision) -> Kept:
        """Confirm a repeated decision as the first one; refuse a different one."""
        first = self._table.decision(half.number) or await self._recorded(half)
        if first is not decision:
            what = "was ended before" if first is None else f"ended before by {first.value}"
            raise _wrong(f"the transaction {what}: {decision.value} comes too late")
        if not self._table.was_begun(half.number):
            return Kept.WELL
        try:
            return await self._store.confirmed()
        except OSError as error:
            raise not_written(error) from error

    async def _recorded(self, half: Half) -> Decision | None:
        """Return the decision that the log has, which an earlier process may have made.

        None if more records than ``_SEARCHED`` are between.
        """
        at = self._reader.offset_at(HALF_OP_TOPIC, 0, half.store_ms)
        end = at + _SEARCHED
        while at < end and (records := self._read(HALF_OP_TOPIC, at)):
            for record in records:
                known = read_decision(record)
                if known is not None and known[0] == half.number and self._is_whole(record):
                    return known[1]
            at = records[-1].queue_offset + 1
            await asyncio.sleep(0)
        return None

    def _sees_all(self) -> bool:
        """Return False while unseen decisions of the time before the start may be in the log.

        Replicas have yet to confirm them.
        """
        return self._store.visible_end >= self._found_end

    def _named_half(self, header: EndTransactionHeader) -> StoredMessage:
        message = self._half_at(header.tran_state_table_offset)
        if message is None and (renewed := self._renewed_half(header)) is not None:
            message, header = renewed
        if message is None:
            raise _wrong(
                "Find prepared transaction message failed: there is none at tranStateTableOffset"
                f" {header.tran_state_table_offset}"
            )
        if message.properties.get(PRODUCER_GROUP) != header.producer_group:
            raise _wrong(f"The producer group wrong: it is not {header.producer_group!r}")
        if message.physical_offset != header.commit_log_offset:
            raise _wrong(
                f"The commit log offset wrong: commitLogOffset is {header.commit_log_offset}, the"
                f" half message at that offset of its queue has another one"
            )
        return message

    def _renewed_half(
        self, header: EndTransactionHeader
    ) -> tuple[StoredMessage, EndTransactionHeader] | None:
        """Return the newest half message where retention deleted the one that *header* names.

        Message id and topic have to be those of *header*, which the sender cannot have looked up.
        """
        half = self._table.newest(header.tran_state_table_offset)
        message = None if half is None else self._half_at(half.offset)
        if message is None or message.properties.get(UNIQ_KEY) != header.msg_id:
            return None
        if header.topic not in (None, real_queue(message)[0]):
            return None
        return message, replace(header, commit_log_offset=message.physical_offset)

    def _add_decisions(self, end: int, *, before: int | None) -> None:
        """Read decisions up to *end*, those in the log *before* a half message."""
        while self._table.record_end < end:
            records = self._read(HALF_OP_TOPIC, self._table.record_end)
            if not records:
                return
            for record in records:
                if before is not None and record.physical_offset > before:
                    return
                self._add_decision(record)
            self._last_read = max(self._last_read, records[-1].physical_offset)

    def _add_decision(self, record: StoredMessage) -> None:
        known = read_decision(record)
        if known is not None:
            number, decision = known
            # Records that this process stored are whole.
            is_open = self._table.newest(number) is not None
            if self._table.was_begun(number) or (is_open and self._is_whole(record)):
                self._table.add_decision(record.queue_offset, number, decision)
        self._table.skip_record(record.queue_offset)

    def _is_whole(self, record: StoredMessage) -> bool:
        return announces(record, self._reader.record_at(record.physical_offset + record.size))

    def _half_at(self, offset: int) -> StoredMessage | None:
        return self._read_half(offset)[1]

    def _read_half(self, offset: int) -> tuple[ReadStatus, StoredMessage | None]:
        read = self._reader.read(HALF_TOPIC, 0, offset, max_messages=1)
        if read.status is not ReadStatus.FOUND:
            return read.status, None
        return read.status, decode_message(read.body, plain=False)

    def _read(self, topic: Topic, offset: int) -> list[StoredMessage]:
        read = self._reader.read(topic, 0, offset, max_messages=_AT_ONCE)
        while read.status in _STEPPED_OVER:
            read = self._reader.read(topic, 0, read.next_offset, max_messages=_AT_ONCE)
        if read.status is not ReadStatus.FOUND:
            return []
        messages, position = [], 0
        while position < len(read.body):
            message = decode_message(read.body, position, plain=False)
            messages.append(message)
            position += message.size
        return messages

    def _committed(self, topic: Topic) -> int:
        return self._offsets.committed(TRANSACTION_GROUP, topic, 0) or 0


@dataclass(slots=True)
class _CheckReport:
    """Results of one check, logged in a few lines for any number of transactions."""

    given_up: list[str] = field(default_factory=list)  # their message ids
    former: int = 0  # transactions that ended with their topic
    lost: int = 0  # transactions whose half message is damaged
    failed: list[str] = field(default_factory=list)  # reasons
    without_producer: Counter[str] = field(default_factory=Counter)  # transactions by group

    def log(self) -> None:
        if self.without_producer:
            _log.warning(
                "transactions not checked: no producer of their groups is connected",
                groups=dict(self.without_producer.most_common(5)),
            )
        if self.lost:
            _log.error(
                "undecided transactions ended because their messages are damaged on disk",
                transactions=self.lost,
            )
        if self.failed:
            _log.error(
                "undecided transactions could not be checked",
                transactions=len(self.failed),
                reason=self.failed[0],
            )
        if self.former:
            _log.warning(
                "transactions rolled back because their topic was deleted", transactions=self.former
            )
        if self.given_up:
            _log.warning(
                "undecided transactions given up and moved to TRANS_CHECK_MAX_TIME_TOPIC",
                transactions=len(self.given_up),
                among_them=self.given_up[:5],
            )


def _wrong(remark: str) -> BrokerError:
    return BrokerError(ResponseCode.SYSTEM_ERROR, remark)
