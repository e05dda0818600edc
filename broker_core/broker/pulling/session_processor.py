"""Reads of many queues by one request: code 7111, held until one of them has something.

Each queue is checked, read and refused as by a pull of its own, so none fails or delays another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from broker_core.access.file import CallerRights
from broker_core.access.needs import reading_needs
from broker_core.broker.pulling.long_polls import MAX_SUSPEND_MS
from broker_core.broker.pulling.open_sessions import OpenSession, OpenSessions
from broker_core.broker.pulling.queue_reads import QueueReads, Wish
from broker_core.broker.pulling.read_session import Open
from broker_core.clock import now_ns
from broker_core.errors import BrokerError, InvalidCommand
from broker_core.printable import printable
from broker_core.remoting.codes import RequestCode, ResponseCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.read_sessions import (
    Part,
    Reading,
    ReadQueuesHeader,
    changes_from_bytes,
    parts_to_bytes,
)
from broker_core.remoting_channel import Answer, Handler, RemotingChannel
from broker_core.store.reader import MAX_READ_BYTES

#: Questions looked at before other work of the event loop may run.
_AT_ONCE = 128
_MAX_REMARK_CHARS = 1000
_PART_BYTES = 64  # of a part, besides its texts: many parts without messages fill an answer too

_log = structlog.get_logger("broker")


class SessionProcessor:
    """Answers with slices of the log, at most about 1 MiB."""

    def __init__(
        self,
        reads: QueueReads,
        sessions: OpenSessions,
        *,
        rights_of: Callable[[RemotingCommand, RemotingChannel], CallerRights | None],
    ) -> None:
        """*rights_of* returns the rights of a request's account, None if it may do everything."""
        self._reads = reads
        self._sessions = sessions
        self._rights_of = rights_of

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request code; none if sessions are not permitted."""
        return {RequestCode.READ_QUEUES: self._read} if self._sessions.served else {}

    def _read(
        self, request: RemotingCommand, channel: RemotingChannel
    ) -> Answer | Awaitable[Answer]:
        header = ReadQueuesHeader.from_ext(request.ext)
        if header.max_bytes < 1:
            raise InvalidCommand(f"maxBytes is {header.max_bytes}: expected at least 1")
        changes = changes_from_bytes(request.body)
        session, turn = self._sessions.apply(channel, header.session, header.epoch, changes)
        look = _Look(
            self._reads,
            session,
            channel,
            rights=self._rights_of(request, channel),
            most_bytes=min(header.max_bytes, MAX_READ_BYTES),
        )
        may_wait = header.suspend_timeout_millis > 0
        gathers = may_wait and session.gathers_s(self._reads.end_offset) > 0
        if not gathers:
            look.go_on()
        if gathers or (not look.is_over and (look.parts or may_wait)):
            suspend_ms = min(header.suspend_timeout_millis, MAX_SUSPEND_MS)
            return self._hold(request, session, turn, look, suspend_ms)
        return look.answer(request)

    async def _hold(
        self,
        request: RemotingCommand,
        session: OpenSession,
        turn: int,
        look: _Look,
        suspend_ms: int,
    ) -> Answer:
        """Look again when something happens, until a question is answered or the time is up."""
        ends_ns = now_ns() + suspend_ms * 1_000_000
        rested = look.looked_at == 0  # whether other work could run since the last look
        while session.has_turn(turn) and not look.is_over:
            if not session.is_due:
                if not session.waits or (left_ns := ends_ns - now_ns()) <= 0:
                    break
                if not await session.wait(left_ns / 1e9):
                    session.look_again()
                rested = True
                if not session.is_due:
                    continue
            gathers_s = 0.0 if look.parts else session.gathers_s(self._reads.end_offset)
            if gathers_s > 0 or not rested:
                await asyncio.sleep(gathers_s)
            if session.has_turn(turn):
                look.go_on()
                rested = False
        return look.answer(request)


class _Look:
    """Looks at due questions, until the answer of one request is complete."""

    def __init__(
        self,
        reads: QueueReads,
        session: OpenSession,
        channel: RemotingChannel,
        *,
        rights: CallerRights | None,
        most_bytes: int,
    ) -> None:
        self._reads = reads
        self._session = session
        self._channel = channel
        self._rights = rights
        self._left_bytes = self._most_bytes = most_bytes
        self._full = False
        self._messages = 0
        #: Questions looked at so far.
        self.looked_at = 0
        self.parts: list[Part] = []

    @property
    def is_over(self) -> bool:
        """True if the answer is full, or has something and nothing more is due."""
        return self._full or bool(self.parts and not self._session.is_due)

    def answer(self, request: RemotingCommand) -> RemotingCommand:
        """Return the answer to *request*, with all parts."""
        if self._messages:
            self._session.gave(self._messages)
        return request.response(body=parts_to_bytes(self.parts))

    def go_on(self) -> None:
        """Look at the next due questions, not at all of them if they are many."""
        session = self._session
        for _ in range(_AT_ONCE):
            if self._full or (due := session.next()) is None:
                return
            self.looked_at += 1
            reading, asked = due
            part = self._part(reading, asked)
            slot = asked.question.slot
            if part is None:
                session.has_nothing(slot)
                continue
            if self.parts and len(part.records) > self._left_bytes:
                self._full = True  # it is the first one of the next answer
                return
            session.answered(slot)
            self.parts.append(part)
            self._left_bytes -= len(part.records) + len(part.remark) + _PART_BYTES
            # A little room would be filled by one or two messages of a queue that has many.
            self._full = self._left_bytes * 4 < self._most_bytes

    def _part(self, reading: Reading | None, asked: Open) -> Part | None:
        """Return the answer to a question, None if there is nothing yet."""
        slot, epoch = asked.question.slot, asked.epoch
        if reading is None:
            return Part(
                slot,
                epoch,
                ResponseCode.NOT_IN_SESSION,
                remark="the session has no such queue, or no room for it: pull from it",
            )
        try:
            return self._answer(reading, asked)
        except BrokerError as error:
            return Part(slot, epoch, error.code, remark=_remark(error.remark))
        except Exception as error:  # of this queue alone
            # A full disk, say, keeps a damaged index from being repaired.
            cause = {"reason": str(error)} if isinstance(error, OSError) else {"exc_info": error}
            _log.error("read failed", topic=reading.topic, queue=reading.queue_id, **cause)
            remark = _remark(str(error) or type(error).__name__)
            return Part(slot, epoch, ResponseCode.SYSTEM_ERROR, remark=remark)

    def _answer(self, reading: Reading, asked: Open) -> Part | None:
        slot, group, topic, queue_id, _, known_life = reading
        reads = self._reads
        if self._rights is not None:
            self._rights.check(reading_needs(group, topic))
        life = reads.check(group, topic, queue_id)
        wanted = self._session.wanted(reading)
        question = asked.question
        wish = Wish(
            group, topic, queue_id, question.offset, question.max_messages, self._left_bytes
        )
        reads.asked(self._channel, wish, life)
        result = reads.read(wish, wanted)
        code, remark = reads.outcome(wish, result)
        if code == ResponseCode.PULL_NOT_FOUND and known_life in (None, life):
            return None
        fits = not self.parts or len(result.body) <= self._left_bytes
        if fits:
            reads.gave(wish, result)
            self._messages += result.messages
        return Part(
            slot,
            asked.epoch,
            code,
            result.next_offset,
            result.min_offset,
            result.max_offset,
            life,
            "" if code == ResponseCode.SUCCESS else remark,
            result.body,
        )


def _remark(text: str) -> str:
    return printable(text[:_MAX_REMARK_CHARS])[:_MAX_REMARK_CHARS]
