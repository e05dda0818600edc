"""The redrive of a group's dead letters: what to do next. Pure.

Dead letters go back one by one, the oldest first, as far as they stood there when it began: what
comes back and fails again does not go round for ever. Progress is what the consumer group
``%DLQ%group`` has committed in the queues of the topic of that name. So:

1. A message is stored before progress passes its dead letter; progress is stored before the next
   message is sent. After a crash at any point nothing is lost, and at most one is sent twice.
2. Nothing is sent or committed but under the group's orderly locks, trusted as those of owned
   queues: whoever redrives elsewhere is refused them.
3. After a lapse of trust, or a request that failed, the locks are asked for anew, and what is
   committed: somebody else may have gone on meanwhile.

``Redrive.step`` says what to do; whoever does it tells what came of it, and asks again.
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
    """How far it is. Stopped: by an operator, or because its proxy ends."""

    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Lock:
    """Ask for the locks of all queues: ``granted``, ``refused``."""


@dataclass(frozen=True, slots=True)
class Locate:
    """Ask what is committed in *queue*, and where it begins and ends: ``located``."""

    queue: QueueName


@dataclass(frozen=True, slots=True)
class Read:
    """Read *queue* from *offset* on: ``found``."""

    queue: QueueName
    offset: int


@dataclass(frozen=True, slots=True)
class Send:
    """Send the message of a dead letter back: ``sent``, ``not_sendable``.

    *doubtful*: a redrive before may have sent it, and did not come to say so.
    """

    queue: QueueName
    stored: StoredMessage
    doubtful: bool
    within_ns: int
    """The lock is trusted for so long."""


@dataclass(frozen=True, slots=True)
class Commit:
    """Store that *queue* is redriven up to *offset*: ``committed``. *skipped*: the dead letter
    before it was passed over.
    """

    queue: QueueName
    offset: int
    skipped: bool = False


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing for a while, unless it is stopped."""

    ns: int


@dataclass(frozen=True, slots=True)
class End:
    """Give the locks back: there is nothing more to do."""


Step = Lock | Locate | Read | Send | Commit | Wait | End


@dataclass(slots=True)
class _Place:
    """One queue of dead letters. ``until``: its end when the redrive began, None before that."""

    until: int | None = None
    position: int = 0  # next to be sent back; what lies below is done, as far as we know
    read_to: int = 0
    located: bool = False
    doubtful: bool = True
    letters: deque[StoredMessage] = field(default_factory=deque)

    @property
    def left(self) -> int:
        return 0 if self.until is None else max(0, self.until - self.position)

    @property
    def wants_reading(self) -> bool:
        return not self.letters and self.until is not None and self.read_to < self.until


class Redrive:
    """One redrive of one group. Every method O(queues)."""

    def __init__(
        self,
        queues: Collection[QueueName],
        *,
        renewal_ns: int,
        trust_ns: int,
        rate: float = 0.0,
        skip: Collection[tuple[QueueName, int]] = (),
    ) -> None:
        """*rate*: messages a second at most, 0 for no limit. *skip*: dead letters to pass over."""
        self.state = RedriveState.RUNNING
        self.reason = ""
        """Why it failed, or what it waits for."""
        self.note = ""
        """The last thing that somebody should know about the dead letters."""
        self.sent_back = self.skipped = 0
        self._places = {queue: _Place() for queue in sorted(queues)}
        self._renewal_ns, self._trust_ns = renewal_ns, trust_ns
        self._interval_ns = int(_SECOND / rate) if rate else 0
        self._skip = frozenset(skip)
        self._lock_due_ns = self._trusted_until_ns = 0
        self._not_before_ns = 0  # the next message, by the rate
        self._pause_ns = self._paused_until_ns = 0  # after troubles
        self._to_commit: Commit | None = None
        self._stopping = False

    @property
    def left(self) -> int:
        """Dead letters still to be sent back, as far as it is known."""
        return sum(place.left for place in self._places.values())

    def step(self, now_ns: int) -> Step:
        """What to do now."""
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

    # ---- what came of it ------------------------------------------------------------------------

    def granted(self, *, asked_ns: int) -> None:
        """The locks of all queues are ours; they were asked for at *asked_ns*."""
        if asked_ns >= self._trusted_until_ns:
            self._doubt()
        self._lock_due_ns = asked_ns + self._renewal_ns
        self._trusted_until_ns = asked_ns + self._trust_ns

    def refused(self, reason: str) -> None:
        """Someone else has the lock of a queue."""
        self.failed(reason)

    def located(self, queue: QueueName, *, committed: int, low: int, end: int) -> None:
        """The group has *committed* so much of *queue* (0: maybe nothing), which begins at *low*
        and ends at *end*.
        """
        place = self._places[queue]
        place.located = place.doubtful = True
        place.letters.clear()
        place.until = end if place.until is None else min(end, place.until)
        due = self._to_commit
        if due is not None and due.queue == queue and committed >= due.offset:
            self._to_commit = None
        done = max(committed, place.position)
        if done > end:  # it lost its tail, or was deleted and made anew: as with any other queue
            self.note = f"{queue} ends at {end}, below what was redriven ({done}): it begins there"
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
        """*messages* were read, reading goes on at *next_offset*, and *end* is the queue's."""
        place = self._places[read.queue]
        place.until = min(end, place.until or 0)
        if next_offset <= read.offset < place.until:
            self.trouble(f"{read.queue} shows nothing at its offset {read.offset}", now_ns=now_ns)
            return
        place.letters.extend(each for each in messages if each.queue_offset < place.until)
        place.read_to = max(next_offset, read.offset)
        place.position = place.letters[0].queue_offset if place.letters else place.read_to
        if (lost := min(place.position, place.until) - read.offset) > 0:
            self._lost(read.queue, lost)

    def sent(self, step: Send, *, now_ns: int) -> None:
        """The message of *step* is stored."""
        self.sent_back += 1
        self._not_before_ns = now_ns + self._interval_ns
        self._passed(step.queue, self._places[step.queue])

    def not_sendable(self, step: Send, reason: str) -> None:
        """No broker will ever take the message of *step* as it is."""
        place = f"{step.queue.qid}@{step.stored.queue_offset}"
        self.failed(
            f"dead letter {place} cannot be sent back: {reason}; mend that, or pass over it by"
            f" --skip {place}"
        )

    def committed(self) -> None:
        """Progress is stored."""
        self._to_commit = None
        self._pause_ns = 0
        self.reason = ""

    def trouble(self, reason: str, *, now_ns: int) -> None:
        """The last step failed, and may succeed later. Nobody knows what came of it."""
        self.reason = reason
        self._pause_ns = min(max(2 * self._pause_ns, _FIRST_PAUSE_NS), self._renewal_ns)
        self._paused_until_ns = now_ns + self._pause_ns
        self._lock_due_ns = 0
        self._doubt()

    def failed(self, reason: str) -> None:
        """It cannot go on."""
        self.reason = reason
        self._end(RedriveState.FAILED)

    def stop(self) -> None:
        """End it behind the message that is on its way."""
        self._stopping = True

    # ---- inside ---------------------------------------------------------------------------------

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
    """Places of dead letters such as ``broker-a_0@17``. Raises ValueError for anything else."""
    by_name = {queue.qid: queue for queue in queues}
    places = set()
    for text in texts:
        qid, _, offset = text.rpartition("@")
        if qid not in by_name or not (offset.isascii() and offset.isdecimal()):
            known = ", ".join(by_name)
            raise ValueError(
                f"{text!r} names no dead letter: it should be a queue of {known}, '@' and an offset"
            )
        places.add((by_name[qid], int(offset)))
    return places
