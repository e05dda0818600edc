"""The read sessions of a broker: at most one per connection, which ends with it.

Their size is limited: a client can make the broker keep what its sessions name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from itertools import islice

from broker_core.batch_wait import BatchWait
from broker_core.broker.groups.message_filter import Wanted, inline, wanted_by
from broker_core.broker.limits import Limit
from broker_core.broker.pulling.long_polls import LongPolls, Watch
from broker_core.broker.pulling.read_session import Open, ReadSession, size_of
from broker_core.clock import now_ns
from broker_core.errors import BrokerError
from broker_core.names import Topic
from broker_core.remoting.codes import ResponseCode
from broker_core.remoting.read_sessions import MAX_QUEUES, Changes, Reading
from broker_core.remoting_channel import RemotingChannel

#: Messages expected during a wait for further ones that make it worth while: an answer costs broker
#: and client about as much as four messages.
_WORTH = 4
#: Queues whose messages are counted to find whether a wait is worth it.
_COUNTED_QUEUES = 128


class _Room:
    """The size of all sessions together, in queues, and its limit."""

    def __init__(self, limit: Limit) -> None:
        self.used = 0
        self.limit = limit

    def take(self, size: int) -> bool:
        """Take room for *size* queues; return False, with a warning, if there is none."""
        if not self.limit.allows(self.used + size):
            self.limit.refusal(
                refused="a queue is not added to a read session",
                held=f"this broker has {self.used} queues in read sessions",
            )
            return False
        self.used += size
        return True

    def give_back(self, size: int) -> None:
        """Return the room of *size* queues."""
        self.used -= size


class OpenSession:
    """A session whose queues are watched. Each request takes the turn from the one before it."""

    def __init__(
        self, number: int, *, long_polls: LongPolls, room: _Room, batch_wait: BatchWait
    ) -> None:
        """Begin session *number*, which takes *room*; *batch_wait* counts its messages."""
        self._batch_wait = batch_wait
        # End of the current wait for further messages: a request that takes the turn continues it.
        self._gathers_until_ns = 0
        self._state = ReadSession(number)
        self._long_polls = long_polls
        self._room = room
        self._watches: dict[int, Watch] = {}
        #: Filter by slot, or the error for its questions.
        self._wanted: dict[int, Wanted | BrokerError] = {}
        self._woken: asyncio.Future[None] | None = None
        self._turn = 0
        self._closed = False

    def __len__(self) -> int:
        """Return the number of queues."""
        return len(self._state.readings)

    def apply(self, number: int, epoch: int, changes: Changes) -> int:
        """Apply the changes of the request of *epoch*, which takes the turn; return its turn.

        Readings without room are left out. Raises BrokerError (3902) as ``ReadSession``: then the
        session cannot be used any more.
        """
        state = self._state
        state.advance(number, epoch)
        for slot in changes.ended:
            self._end(slot)
        for reading in changes.begun:
            state.begin(reading)
            if state.size <= MAX_QUEUES and self._room.take(size_of(reading)):
                self._watch(reading)
            else:
                state.end(reading.slot)
        for question in changes.questions:
            state.ask(question)
        self._turn += 1
        self._wake()
        return self._turn

    def has_turn(self, turn: int) -> bool:
        """Return whether the request with *turn* may still be held."""
        return turn == self._turn and not self._closed and not self._long_polls.closed

    @property
    def waits(self) -> bool:
        """True if there are open questions."""
        return self._state.waits

    @property
    def is_due(self) -> bool:
        """True if ``next`` returns one."""
        return self._state.is_due

    def next(self) -> tuple[Reading | None, Open] | None:
        """Return the next question to look at, as ``ReadSession.next``."""
        return self._state.next()

    def wanted(self, reading: Reading) -> Wanted:
        """Return the filter of *reading*. Raise BrokerError if its tags are invalid."""
        wanted = self._wanted[reading.slot]
        if isinstance(wanted, BrokerError):
            raise BrokerError(wanted.code, wanted.remark)
        return wanted

    def answered(self, slot: int) -> None:
        """Forget the question about *slot*."""
        self._state.answered(slot)

    def has_nothing(self, slot: int) -> None:
        """Let the question about *slot* wait until something happens in its queue."""
        self._state.has_nothing(slot)

    def look_again(self) -> None:
        """Make the questions due in whose queues messages were passed over."""
        self._state.look_again()

    @property
    def batch_waits(self) -> int:
        """Number of answers that waited for further messages."""
        return self._batch_wait.waits

    def gave(self, messages: int) -> None:
        """Count *messages* of an answer."""
        self._batch_wait.came(messages, now_ns())

    def gathers_s(self, end_offset: Callable[[Topic, int], int]) -> float:
        """Return for how many s an answer waits for further messages from now on, 0 if there are
        none yet.

        *end_offset* returns the end of a queue.
        """
        now = now_ns()
        if self._gathers_until_ns <= now:
            if not self._batch_wait.is_busy:
                return 0.0
            ready = room = 0
            for reading, question in islice(self._state.due, _COUNTED_QUEUES):
                more = end_offset(reading.topic, reading.queue_id) - question.offset
                ready += max(0, min(more, question.max_messages))
                room += question.max_messages
            wait_ns = self._batch_wait.begin(now, ready=ready, room=room) if ready else 0
            self._gathers_until_ns = now + wait_ns
        return (self._gathers_until_ns - now) / 1e9

    async def wait(self, timeout_s: float) -> bool:
        """Wait until a question is due or the turn is over; return False after *timeout_s*."""
        self._woken = woken = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(timeout_s):
                await woken
        except TimeoutError:
            return False
        finally:
            if self._woken is woken:
                self._woken = None
        return True

    def close(self) -> None:
        """End it: its connection ended, or another session replaces it."""
        self._closed = True
        for slot in list(self._state.readings):
            self._end(slot)
        self._wake()

    def _watch(self, reading: Reading) -> None:
        wanted: Wanted | BrokerError
        try:
            wanted = wanted_by(inline(reading.topic, reading.tags, None))
            tag_hashes = wanted.tag_hashes
        except BrokerError as error:
            wanted, tag_hashes = error.with_traceback(None), frozenset()
        watch = Watch(
            partial(self._happened, reading.slot),
            tag_hashes,
            partial(self._state.passed_over, reading.slot),
        )
        self._wanted[reading.slot] = wanted
        self._watches[reading.slot] = watch
        self._long_polls.watch(reading.topic, reading.queue_id, watch)

    def _end(self, slot: int) -> None:
        if (reading := self._state.end(slot)) is not None:
            self._room.give_back(size_of(reading))
            del self._wanted[slot]
            self._long_polls.unwatch(reading.topic, reading.queue_id, self._watches.pop(slot))

    def _happened(self, slot: int, _by_message: bool) -> None:
        if self._state.happened(slot):
            self._wake()

    def _wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)


class OpenSessions:
    """The sessions by connection."""

    def __init__(self, long_polls: LongPolls, *, limit: Limit, batch_wait_ms: int) -> None:
        """*limit*: on the queues of all sessions together; *batch_wait_ms*: see ``BatchWait``."""
        self._long_polls = long_polls
        self._batch_wait_ms = batch_wait_ms
        self._room = _Room(limit)
        self._sessions: dict[RemotingChannel, OpenSession] = {}
        self._waits_before = 0  # of sessions that ended

    def __len__(self) -> int:
        """Return the number of sessions."""
        return len(self._sessions)

    def of(self, channel: RemotingChannel) -> OpenSession | None:
        """Return the session of *channel*, if it has one."""
        return self._sessions.get(channel)

    @property
    def queues(self) -> int:
        """The queues of all sessions."""
        return sum(map(len, self._sessions.values()))

    @property
    def size(self) -> int:
        """The room that they take, in queues."""
        return self._room.used

    @property
    def batch_waits(self) -> int:
        """Answers that waited for further messages since the start."""
        return self._waits_before + sum(each.batch_waits for each in self._sessions.values())

    @property
    def refused(self) -> int:
        """Number of queues that were not added for want of room."""
        return self._room.limit.refused

    @property
    def served(self) -> bool:
        """False if the limit permits no queue."""
        return self._room.limit.most != 0

    def apply(
        self, channel: RemotingChannel, number: int, epoch: int, changes: Changes
    ) -> tuple[OpenSession, int]:
        """Apply a request at *channel*; return its session and its turn. *epoch* 0 begins one.

        Raises BrokerError (3902) if there is no such session; an earlier one has ended then.
        """
        session = self._sessions.get(channel)
        if epoch == 0:
            self.connection_closed(channel)
            session = OpenSession(
                number,
                long_polls=self._long_polls,
                room=self._room,
                batch_wait=BatchWait(self._batch_wait_ms, worth=_WORTH),
            )
            if not channel.is_closed:
                self._sessions[channel] = session
        if session is None:
            raise BrokerError(
                ResponseCode.NO_SUCH_SESSION,
                "this connection has no read session: begin one with epoch 0",
            )
        try:
            return session, session.apply(number, epoch, changes)
        except BrokerError:
            self.connection_closed(channel)
            raise

    def connection_closed(self, channel: RemotingChannel) -> None:
        """End the session of *channel*, if it has one."""
        if (session := self._sessions.pop(channel, None)) is not None:
            self._waits_before += session.batch_waits
            session.close()
