"""Reads of many queues by one request per broker: the shell of ``read_session``.

A request is held by the broker until a queue has messages. Questions that come up meanwhile go with
the next request, which ends the wait of the one before it. At most two requests are under way at a
broker, so questions of one round trip go together.

Brokers without sessions, and queues for which a broker's sessions have no room, are left to pulls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from broker_core import chance
from broker_core.client.gathered import ASK_AGAIN_NS, NOT_SERVED, same_error
from broker_core.client.pulling import ANSWER_S
from broker_core.client.read_session import ReadSession, Request
from broker_core.client.requests import BrokerRequests
from broker_core.client.results import PulledRecords, PullResult, PullStatus
from broker_core.clock import now_ns
from broker_core.errors import BrokerError, NotConnected, RemotingError
from broker_core.names import Group, QueueName
from broker_core.rare_warnings import RareWarnings
from broker_core.remoting.codes import RequestCode, ResponseCode, request_name
from broker_core.remoting.read_sessions import (
    Part,
    ReadQueuesHeader,
    changes_to_bytes,
    parts_from_bytes,
)
from broker_core.tasks import cancel_and_wait, spawn

_STATUSES = frozenset(PullStatus)
#: Time, in s, for which a broker holds a request without messages.
SUSPEND_S = 15.0
_UNDER_WAY = 2

#: The answer to a question; None: it has to be a pull.
_Answer = asyncio.Future[PulledRecords | None]


class ReadSessions:
    """The read sessions of one client, by broker."""

    def __init__(
        self,
        requests: BrokerRequests,
        *,
        decode: Callable[[PulledRecords, int], Awaitable[PullResult]],
    ) -> None:
        """Send *requests*; *decode* decodes messages."""
        self._requests = requests
        self._decode = decode
        self._brokers: dict[str, _AtBroker] = {}

    def reading(self, group: Group, queue: QueueName) -> QueueReading:
        """Return the reading of *queue* for *group*; the caller ends it."""
        at = self._brokers.get(queue.broker)
        if at is None:
            at = self._brokers[queue.broker] = _AtBroker(self._requests, queue.broker)
        return QueueReading(at, group, queue, self._decode)

    def broker_lost(self, broker: str) -> None:
        """Note a lost connection: another version may answer at *broker* from now on."""
        if (at := self._brokers.get(broker)) is not None:
            at.lost()

    async def close(self) -> None:
        """Stop reading all queues."""
        for at in self._brokers.values():
            await at.close()


class QueueReading:
    """One queue that is read for a group, one question at a time."""

    def __init__(
        self,
        at: _AtBroker,
        group: Group,
        queue: QueueName,
        decode: Callable[[PulledRecords, int], Awaitable[PullResult]],
    ) -> None:
        self._at = at
        self._group = group
        self._queue = queue
        self._decode = decode
        self._slot: int | None = None
        self._read_as: tuple[str, int | None] | None = None
        self._no_room_ns: int | None = None  # when the session had no room for it

    async def next(
        self,
        *,
        offset: int,
        max_messages: int,
        max_bytes: int,
        tags: str = "*",
        life: int | None = None,
    ) -> PullResult | None:
        """Wait for messages from *offset* on; return them as ``BrokerClient.pull`` does.

        Return None if they have to be pulled. Raises RemotingError.

        Args:
            offset: first offset to return
            max_messages: most messages returned
            max_bytes: most bytes that the broker returns now for all queues of the client, unless
                the first message is larger
            tags: tags as in ``a || b``; ``*``: all
            life: do not wait if the topic is in another life
        """
        at = self._at
        if not at.serves_since(self._no_room_ns):
            return None
        if self._slot is None or self._read_as != (tags, life):
            self.end()
            self._slot = at.begin(self._group, self._queue, tags=tags, life=life)
            self._read_as = (tags, life)
            if self._slot is None:
                return None
        slot = self._slot
        found = await at.ask(slot, offset=offset, max_messages=max_messages, max_bytes=max_bytes)
        if found is None:
            self.end()
            self._no_room_ns = now_ns()
            return None
        return await self._decode(found, offset)

    def end(self) -> None:
        """Stop reading the queue."""
        if self._slot is not None:
            self._at.end(self._slot)
            self._slot = None


class _AtBroker:
    """The session at one broker."""

    def __init__(self, requests: BrokerRequests, broker: str) -> None:
        self._requests = requests
        self._broker = broker
        self._session = ReadSession(_number())
        self._answers: dict[int, _Answer] = {}  # by slot
        self._max_bytes = 1
        self._under_way = 0  # requests of the session
        self._tasks: set[asyncio.Task[None]] = set()
        self._planned = False
        self._closed = False
        self._warnings = RareWarnings("broker-client")
        self._refused_ns: int | None = None  # when the broker refused sessions
        self._lost_ns = 0  # when the connection was lost

    def serves_since(self, no_room_ns: int | None) -> bool:
        """Return whether a queue may be read by the session, for which there was no room at
        *no_room_ns*.
        """
        refused_ns = max(self._refused_ns or 0, no_room_ns or 0)
        return refused_ns <= self._lost_ns or now_ns() - refused_ns >= ASK_AGAIN_NS

    def begin(self, group: Group, queue: QueueName, *, tags: str, life: int | None) -> int | None:
        """Add a queue to the session; return its slot, None if there is no room."""
        if self._session.is_full:
            self._warn("its session is full")
            return None
        return self._session.begin(group, queue, tags=tags, life=life)

    async def ask(
        self, slot: int, *, offset: int, max_messages: int, max_bytes: int
    ) -> PulledRecords | None:
        """Return the answer to a question about *slot*; None if the queue has to be pulled."""
        if self._closed:
            raise self._is_closed()
        self._session.ask(slot, offset=offset, max_messages=max_messages)
        self._max_bytes = max_bytes
        answer: _Answer = asyncio.get_running_loop().create_future()
        self._answers[slot] = answer
        self._plan()
        return await answer

    def end(self, slot: int) -> None:
        """Remove a queue from the session."""
        self._session.end(slot)
        self._answers.pop(slot, None)
        self._plan()

    def lost(self) -> None:
        """Offer sessions again, if they were refused."""
        self._lost_ns = now_ns()

    async def close(self) -> None:
        """End all requests."""
        self._closed = True
        await cancel_and_wait(*self._tasks)
        self._fail(self._is_closed())

    def _is_closed(self) -> NotConnected:
        return NotConnected(f"{self._broker} is not read any more: this client is closed")

    # ---- requests -------------------------------------------------------------------------------

    def _plan(self) -> None:
        """Send a request soon: at the end of this pass, with the questions that come up in it."""
        if not self._planned and not self._closed:
            self._planned = True
            asyncio.get_running_loop().call_soon(self._send)

    def _send(self) -> None:
        self._planned = False
        session = self._session
        if self._closed or self._under_way == _UNDER_WAY:
            return  # an answer plans again
        if self._under_way and not session.is_urgent:
            return
        if not (session.has_questions or session.is_changed):
            return
        suspend_ms = int(SUSPEND_S * 1000) if session.has_questions else 0
        self._under_way += 1
        task = spawn(
            self._exchange(session.next_request(), suspend_ms),
            name=f"read queues at {self._broker}",
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _exchange(self, request: Request, suspend_ms: int) -> None:
        header = ReadQueuesHeader(
            session=request.session,
            epoch=request.epoch,
            suspend_timeout_millis=suspend_ms,
            max_bytes=self._max_bytes,
        )
        try:
            answer = await self._requests.ask(
                self._broker,
                RequestCode.READ_QUEUES,
                header.to_ext(),
                body=changes_to_bytes(request.changes),
                timeout_s=suspend_ms / 1000 + ANSWER_S,
            )
            parts = parts_from_bytes(answer.body)
        except RemotingError as error:
            if request.session == self._session.number:
                self._failed(request, error)
            return
        if request.session == self._session.number:
            self._under_way -= 1
            self._answered(request, parts)
            self._plan()

    def _answered(self, request: Request, parts: list[Part]) -> None:
        for part in self._session.answers(request.session, parts):
            answer = self._answers.pop(part.slot)
            if part.code == ResponseCode.NOT_IN_SESSION:
                self._has_no_room(part, answer)
            elif answer.done():  # its reader does not wait any more
                continue
            elif part.code in _STATUSES:
                answer.set_result(_records(part))
            else:
                name = request_name(RequestCode.READ_QUEUES)
                answer.set_exception(BrokerError(part.code, part.remark, request=name))

    def _has_no_room(self, part: Part, answer: _Answer) -> None:
        self._warn(part.remark)
        self._session.end(part.slot)
        if not answer.done():
            answer.set_result(None)

    def _warn(self, reason: str) -> None:
        self._warnings.warn(
            "queues are pulled one by one: the read session has no room for them",
            peer=self._broker,
            queues=len(self._session),
            reason=reason,
        )

    def _failed(self, request: Request, error: RemotingError) -> None:
        """Begin another session, of which the broker knows nothing."""
        code = error.code if isinstance(error, BrokerError) else None
        self._under_way = 0
        if code == ResponseCode.NO_SUCH_SESSION and request.epoch > 0:
            # Nothing was read: the connection is another one.
            self._session.restart(_number())
            self._plan()
            return
        self._session.drop_questions()
        self._session.restart(_number())
        if code not in NOT_SERVED:
            self._fail(error)
            return
        self._refused_ns = now_ns()
        answers, self._answers = self._answers, {}
        for answer in answers.values():
            if not answer.done():
                answer.set_result(None)

    def _fail(self, error: RemotingError) -> None:
        answers, self._answers = self._answers, {}
        for answer in answers.values():
            if not answer.done():
                answer.set_exception(same_error(error))


def _records(part: Part) -> PulledRecords:
    status = PullStatus(part.code)
    return PulledRecords(
        status=status,
        records=part.records if status is PullStatus.FOUND else b"",
        next_offset=part.next_offset,
        min_offset=part.min_offset,
        max_offset=part.max_offset,
        life=part.life,
        damage=part.remark if status is PullStatus.DAMAGED else "",
    )


def _number() -> int:
    return chance.number_below(1 << 31)
