"""The broker's side of a read session: the queues that a client reads over one connection. Pure.

1. The session equals one that was begun with all its queues and open questions, whatever the
   differences were by which it came about.
2. A question is answered at most once, and forgotten when its reading ends or another question
   replaces it.
3. Open questions are looked at in order of their arrival, or of the arrival of their messages: a
   queue that was just answered comes after all others that have something.
4. A question with nothing to answer is not looked at again before something happens in its queue.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple

from broker_core.errors import BrokerError
from broker_core.remoting.codes import ResponseCode
from broker_core.remoting.read_sessions import Question, Reading

#: Characters of tags that count as another queue in the size of a session.
_TAG_CHARS = 512


class Open(NamedTuple):
    """An open question, with the epoch of its request."""

    question: Question
    epoch: int


def size_of(reading: Reading) -> int:
    """Return how many queues *reading* counts for: one, and more if its tags are long."""
    return 1 + len(reading.tags) // _TAG_CHARS


class ReadSession:
    """The readings of a client and its open questions."""

    def __init__(self, number: int) -> None:
        """Begin an empty session with the client's *number*."""
        self.number = number
        self.readings: dict[int, Reading] = {}
        #: Sum of the readings' sizes.
        self.size = 0
        self._epoch = -1
        self._open: dict[int, Open] = {}
        # Slots to look at, the next one first; slots in whose queues only other tags arrived.
        self._due: OrderedDict[int, None] = OrderedDict()
        self._passed_over: dict[int, None] = {}

    @property
    def open(self) -> list[Question]:
        """The open questions, by slot."""
        return [self._open[slot].question for slot in sorted(self._open)]

    @property
    def waits(self) -> bool:
        """True if there are open questions."""
        return bool(self._open)

    @property
    def is_due(self) -> bool:
        """True if ``next`` returns one."""
        return bool(self._due)

    @property
    def due(self) -> Iterator[tuple[Reading, Question]]:
        """Known queues of due questions, in their order."""
        for slot in self._due:
            if (reading := self.readings.get(slot)) is not None:
                yield reading, self._open[slot].question

    def advance(self, number: int, epoch: int) -> None:
        """Enter *epoch*. Raise BrokerError (3902) unless it is the next one of session *number*."""
        if (number, epoch) != (self.number, self._epoch + 1):
            raise _unknown(
                f"this connection has read session {self.number} at epoch {self._epoch}, not"
                f" {number} before epoch {epoch}"
            )
        self._epoch = epoch

    def end(self, slot: int) -> Reading | None:
        """Forget the reading of *slot*, if there is one, and its question; return it."""
        self._forget_question(slot)
        reading = self.readings.pop(slot, None)
        if reading is not None:
            self.size -= size_of(reading)
        return reading

    def begin(self, reading: Reading) -> None:
        """Add *reading*. Raise BrokerError (3902) if its slot is in use."""
        if reading.slot in self.readings:
            raise _unknown(f"slot {reading.slot} of read session {self.number} is in use")
        self.readings[reading.slot] = reading
        self.size += size_of(reading)

    def ask(self, question: Question) -> None:
        """Open *question*, of the current epoch, in place of an earlier one.

        One about an unknown slot becomes due as well: it has to be refused.
        """
        slot = question.slot
        self._open[slot] = Open(question, self._epoch)
        self._due.pop(slot, None)
        self._due[slot] = None

    def next(self) -> tuple[Reading | None, Open] | None:
        """Return the next question to look at, with its reading (None: the slot is unknown).

        It stays the next one until ``answered`` or ``has_nothing``.
        """
        for slot in self._due:
            return self.readings.get(slot), self._open[slot]
        return None

    def answered(self, slot: int) -> None:
        """Forget the question about *slot*."""
        self._forget_question(slot)

    def has_nothing(self, slot: int) -> None:
        """Let the question about *slot* wait until something happens in its queue."""
        self._due.pop(slot, None)
        self._passed_over.pop(slot, None)

    def happened(self, slot: int) -> bool:
        """Note that a wanted message arrived in the queue of *slot*, or that its topic ended.

        Return True if its question, which waited, is due now.
        """
        if slot not in self._open or slot in self._due:
            return False
        self._due[slot] = None
        return True

    def passed_over(self, slot: int) -> None:
        """Note that messages with other tags arrived in the queue of *slot*."""
        if slot in self._open and slot not in self._due:
            self._passed_over[slot] = None

    def look_again(self) -> None:
        """Make the questions due in whose queues messages were passed over.

        Their answers tell the client that it needs none of these.
        """
        for slot in self._passed_over:
            self._due[slot] = None
        self._passed_over.clear()

    def _forget_question(self, slot: int) -> None:
        self._open.pop(slot, None)
        self._due.pop(slot, None)
        self._passed_over.pop(slot, None)


def _unknown(what: str) -> BrokerError:
    return BrokerError(ResponseCode.NO_SUCH_SESSION, f"{what}: begin a session with epoch 0")
