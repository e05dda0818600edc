"""The redrive of a group's dead letters as a state machine. Pure.

Dead letters are sent back one by one, the oldest first, up to the ends of their queues at the
start: those that fail again are not redriven again. Progress is the committed offset of the
consumer group ``%DLQ%group`` in the queues of the topic with that name. So:

1. A message is stored before progress passes its dead letter; progress is stored before the next
   message is sent. A crash at any point loses nothing, and at most one message is sent twice.
2. Messages are sent and offsets committed only under the group's orderly locks, trusted as those of
   owned queues: a second redrive cannot get them.
3. After a lapse of trust, or a failed request, locks and committed offsets are requested again,
   because another redrive may have continued meanwhile.
4. Progress is never set back by a commit that arrives late: the embedded broker refuses it.

``Redrive.step`` returns the next step; the caller executes it, reports the result, and asks again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from broker_core.names import QueueName
from broker_core.remoting.message import StoredMessage

_SECOND = 1_000_000_000
_FIRST_PAUSE_NS = _SECOND // 10


class RedriveState(StrEnum):
    """State of a redrive. Stopped: by an operator, or because its proxy ends."""

    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Lock:
    """Request the locks of all queues: ``granted``, ``refused``."""


@dataclass(frozen=True, slots=True)
class Locate:
    """Request the committed offset of *queue*, and its bounds: ``located``."""

    queue: QueueName


@dataclass(frozen=True, slots=True)
class Read:
    """Read *queue* from *offset* on: ``found``."""

    queue: QueueName
    offset: int


@dataclass(frozen=True, slots=True)
class Send:
    """Send the message of a dead letter back: ``sent``, ``not_sendable``.

    *doubtful*: an earlier redrive may have sent it without storing its progress.
    """

    queue: QueueName
    stored: StoredMessage
    doubtful: bool
    within_ns: int
    """How long the lock is trusted."""


@dataclass(frozen=True, slots=True)
class Commit:
    """Store that *queue* is redriven up to *offset*: ``committed``. *skipped*: the dead letter
    before it was skipped.
    """

    queue: QueueName
    offset: int
    skipped: bool = False


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing for a while, unless stopped."""

    ns: int


@dataclass(frozen=True, slots=True)
class End:
    """Release the locks: the redrive is over."""


Step = Lock | Locate | Read | Send | Commit | Wait | End


@dataclass(slots=True)
class _Place:
    """One queue of dead letters. ``until``: its end when the redrive began, None before that."""

    until: int | None = None
    position: int = 0  # next to send back; everything below is done, as far as known
    read_to: int = 0
    located: bool = False
    doubtful: bool = True
    letters: deque[StoredMessage] = field(default_factory=deque)

    @property
    def wants_reading(self) -> bool:
        return not self.letters and self.until is not None and self.read_to < self.until


class Redrive:
    """One redrive of one group. Every method is O(queues), ``left`` also O(skips)."""

    def __init__(
        self,
        queues: Collection[QueueName],
        *,
        renewal_ns: int,
        trust_ns: int,
        rate: float = 0.0,
        skip: Collection[tuple[QueueName, int]] = (),
    ) -> None:
        """*rate*: messages per second, 0 for no limit. *skip*: dead letters to skip."""
        self.state = RedriveState.RUNNING
        self.reason = ""
        """Why it failed, or what it waits for."""
        self.note = ""
        """The last remark for operators about the dead letters."""
        self.sent_back = self.skipped = 0
        self._places = {queue: _Place() for queue in sorted(queues)}
        self._renewal_ns, self._trust_ns = renewal_ns, trust_ns
        self._interval_ns = int(_SECOND / rate) if rate else 0
        self._skip = frozenset(skip)
        self._lock_due_ns = self._trusted_until_ns = 0
        self._not_before_ns = 0  # time of the next message according to the rate
        self._pause_ns = self._paused_until_ns = 0  # after failures
        self._to_commit: Commit | None = None
        self._stopping = False

    @property
    def left(self) -> int:
        """Dead letters still to send back, without those to skip, as far as known."""
        ranges = {
            queue: range(place.position, place.until or 0) for queue, place in self._places.items()
        }
        to_skip = sum(offset in ranges[queue] for queue, offset in self._skip)
        return sum(map(len, ranges.values())) - to_skip

    def step(self, now_ns: int) -> Step:
        """Return the next step."""
        if self._stopping and (self._to_commit is None or self._pause_ns):
            self._end(RedriveState.STOPPED)
        if self.state is not RedriveState.RUNNING:
            return End()
        if now_ns < self._paused_until_ns:
            return Wait(self._paused_until_ns - now_ns)
        if now_ns >= self._lock_due_ns:
            return Lock()
        for queue, place in self._places.items():
            if not place.located:
                return Locate(queue)
        if self._to_commit is not None:
            return self._to_commit
        for queue, place in self._places.items():
            if place.wants_reading:
                return Read(queue, place.read_to)
        return self._next_letter(now_ns)

    def _next_letter(self, now_ns: int) -> Step:
        heads = [
            (place.letters[0].store_ms, queue)
            for queue, place in self._places.items()
            if place.letters
        ]
        if not heads:
            self._end(RedriveState.DONE)
            return End()
        _, queue = min(heads)
        place = self._places[queue]
        stored = place.letters[0]
        if (queue, stored.queue_offset) in self._skip:
            self.skipped += 1
            return self._passed(queue, place, skipped=True)
        if now_ns < self._not_before_ns:
            return Wait(min(self._not_before_ns, self._lock_due_ns) - now_ns)
        return Send(queue, stored, place.doubtful, self._trusted_until_ns - now_ns)

    # ---- results of steps ------------------------------------------------------------------------

    def granted(self, *, asked_ns: int) -> None:
        """Note that the locks of all queues, requested at *asked_ns*, were granted."""
        if asked_ns >= self._trusted_until_ns:
            self._doubt()
        self._lock_due_ns = asked_ns + self._renewal_ns
        self._trusted_until_ns = asked_ns + self._trust_ns

    def refused(self, reason: str) -> None:
        """Note that another process has the lock of a queue."""
        self.failed(reason)

    def located(self, queue: QueueName, *, committed: int, low: int, end: int) -> None:
        """Note the *committed* offset of *queue* (0: possibly none), which begins at *low* and ends
        at
        *end*.
        """
        place = self._places[queue]
        place.located = place.doubtful = True
        place.letters.clear()
        place.until = end if place.until is None else min(end, place.until)
        due = self._to_commit
        if due is not None and due.queue == queue and committed >= due.offset:
            self._to_commit = None
        done = max(committed, place.position)
        if done > end:  # it lost its end, or was created again: as with any other queue
            self.note = f"{queue} ends at {end}, below its progress {done}: it continues there"
            self._to_commit = Commit(queue, end)
            done = end
        elif committed and done < low:
            self._lost(queue, low - done)
        place.position = place.read_to = max(done, low)

    def found(
        self,
        read: Read,
        messages: Sequence[StoredMessage],
        *,
        next_offset: int,
        end: int,
        now_ns: int,
    ) -> None:
        """Note the *messages* of *read*, the next offset to read, and the *end* of the queue."""
        place = self._places[read.queue]
        place.until = min(end, place.until or 0)
        if next_offset <= read.offset < place.until:
            self.trouble(f"{read.queue} returns nothing at its offset {read.offset}", now_ns=now_ns)
            return
        place.letters.extend(each for each in messages if each.queue_offset < place.until)
        place.read_to = max(next_offset, read.offset)
        place.position = place.letters[0].queue_offset if place.letters else place.read_to
        if (lost := min(place.position, place.until) - read.offset) > 0:
            self._lost(read.queue, lost)

    def sent(self, step: Send, *, now_ns: int) -> None:
        """Note that the message of *step* is stored."""
        self.sent_back += 1
        self._not_before_ns = now_ns + self._interval_ns
        self._passed(step.queue, self._places[step.queue])

    def not_sendable(self, step: Send, reason: str) -> None:
        """Fail, because no broker will accept the message of *step*."""
        place = f"{step.queue.qid}@{step.stored.queue_offset}"
        self.failed(
            f"dead letter {place} cannot be sent back: {reason}; fix that, or skip it with"
            f" --skip {place}"
        )

    def committed(self) -> None:
        """Note that progress is stored."""
        self._to_commit = None
        self._pause_ns = 0
        self.reason = ""

    def trouble(self, reason: str, *, now_ns: int) -> None:
        """Note that the last step failed with unknown outcome; it is repeated after a pause."""
        self.reason = reason
        self._pause_ns = min(max(2 * self._pause_ns, _FIRST_PAUSE_NS), self._renewal_ns)
        self._paused_until_ns = now_ns + self._pause_ns
        self._lock_due_ns = 0
        self._doubt()

    def failed(self, reason: str) -> None:
        """Fail the redrive."""
        self.reason = reason
        self._end(RedriveState.FAILED)

    def stop(self) -> None:
        """Stop the redrive after the message under way."""
        self._stopping = True

    # ---- internals -------------------------------------------------------------------------------

    def _passed(self, queue: QueueName, place: _Place, *, skipped: bool = False) -> Commit:
        offset = place.letters.popleft().queue_offset + 1
        place.position, place.doubtful = offset, False
        self._to_commit = Commit(queue, offset, skipped)
        return self._to_commit

    def _lost(self, queue: QueueName, count: int) -> None:
        self.note = f"retention deleted {count} dead letters of {queue} before their redrive"

    def _doubt(self) -> None:
        for place in self._places.values():
            place.located = False

    def _end(self, state: RedriveState) -> None:
        if self.state is RedriveState.RUNNING:
            self.state = state


def parse_skips(texts: Sequence[str], queues: Iterable[QueueName]) -> set[tuple[QueueName, int]]:
    """Return the places of dead letters such as ``broker-a_0@17``. Raise ValueError if invalid."""
    by_name = {queue.qid: queue for queue in queues}
    places = set()
    for text in texts:
        qid, _, offset = text.rpartition("@")
        if qid not in by_name or not (offset.isascii() and offset.isdecimal()):
            known = ", ".join(by_name)
            raise ValueError(
                f"{text!r} is not a dead letter: write a queue ({known}), '@' and an offset"
            )
        places.add((by_name[qid], int(offset)))
    return places
