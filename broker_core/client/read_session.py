"""The client's side of a read session: its readings at one broker, and those known there. Pure.

1. The broker's session after a request equals one begun with all readings and open questions.
2. Each call of ``ask`` is answered by at most one part; a part for an earlier question, of an ended
   reading or of an earlier session counts for nothing.
3. A restart loses no reading and no question.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from broker_core.names import Group, QueueName
from broker_core.remoting.read_sessions import MAX_QUEUES, Changes, Part, Question, Reading


class Request(NamedTuple):
    """The next request of session ``session``."""

    session: int
    epoch: int
    changes: Changes


@dataclass(slots=True)
class _Read:
    """A queue that is read."""

    reading: Reading
    question: Question | None = None
    epoch: int | None = None  # of the request with the question; None: it is not sent yet


class ReadSession:
    """The readings of one client at one broker. Slots are never used twice."""

    def __init__(self, number: int) -> None:
        """Begin session *number*."""
        self.number = number
        self._epoch = 0  # of the next request
        self._slots = 0
        self._reads: dict[int, _Read] = {}
        self._open: set[int] = set()  # slots with questions
        # Differences to the last request, in the order of the calls.
        self._ended: list[int] = []
        self._begun: dict[int, None] = {}
        self._asked: dict[int, None] = {}

    def __len__(self) -> int:
        """Return the number of queues."""
        return len(self._reads)

    @property
    def is_full(self) -> bool:
        """True if no other queue can be added."""
        return len(self._reads) >= MAX_QUEUES

    @property
    def has_questions(self) -> bool:
        """True if questions are open, sent or not."""
        return bool(self._open)

    @property
    def is_urgent(self) -> bool:
        """True if the broker does not know a question yet."""
        return bool(self._asked)

    @property
    def is_changed(self) -> bool:
        """True if the broker does not know everything yet."""
        return bool(self._asked or self._begun or self._ended)

    def begin(self, group: Group, queue: QueueName, *, tags: str, life: int | None) -> int:
        """Add a reading of *queue*; return its slot."""
        self._slots += 1
        slot = self._slots
        reading = Reading(slot, group, queue.topic, queue.queue_id, tags, life)
        self._reads[slot] = _Read(reading)
        self._begun[slot] = None
        return slot

    def ask(self, slot: int, *, offset: int, max_messages: int) -> None:
        """Ask for messages, in place of an earlier question."""
        read = self._reads[slot]
        read.question, read.epoch = Question(slot, offset, max_messages), None
        self._open.add(slot)
        self._asked[slot] = None

    def end(self, slot: int) -> None:
        """End the reading of *slot*, if there is one, with its question."""
        if self._reads.pop(slot, None) is None:
            return
        self._open.discard(slot)
        self._asked.pop(slot, None)
        if slot in self._begun:
            del self._begun[slot]
        else:
            self._ended.append(slot)

    def next_request(self) -> Request:
        """Return the next request. If very many readings ended, the next but one has the rest."""
        begun = [self._reads[slot].reading for slot in self._begun]
        questions: list[Question] = []
        for slot in self._asked:
            read = self._reads[slot]
            if read.question is not None:
                questions.append(read.question)
                read.epoch = self._epoch
        ended, self._ended = self._ended[:MAX_QUEUES], self._ended[MAX_QUEUES:]
        self._begun.clear()
        self._asked.clear()
        self._epoch += 1
        return Request(self.number, self._epoch - 1, Changes(ended, begun, questions))

    def answers(self, session: int, parts: Iterable[Part]) -> Iterator[Part]:
        """Yield the *parts* of an answer in *session* that answer open questions; these end."""
        for part in parts:
            read = self._reads.get(part.slot)
            if session == self.number and read is not None and read.epoch == part.epoch:
                read.question = read.epoch = None
                self._open.discard(part.slot)
                yield part

    def restart(self, number: int) -> None:
        """Begin again as session *number*, with all readings and open questions."""
        self.number, self._epoch = number, 0
        self._ended.clear()
        self._begun = dict.fromkeys(self._reads)
        self._asked = dict.fromkeys(sorted(self._open))
        for slot in self._asked:
            self._reads[slot].epoch = None

    def drop_questions(self) -> None:
        """Forget all questions: the broker did not answer."""
        for slot in self._open:
            read = self._reads[slot]
            read.question = read.epoch = None
        self._open.clear()
        self._asked.clear()
