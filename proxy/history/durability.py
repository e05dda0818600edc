"""What a new owner must know: finishes that a commit or an ownership record covers (D4, D5)."""

from __future__ import annotations

from collections import deque

from proxy.history.facts import DURABLE, LaneFacts
from proxy.history.limits import ns
from proxy.history.reader import Event

#: Records of one period that may still turn out to be later than the next owner's.
_DOUBTFUL = 4


class Durability:
    """Finishes of one queue and group that are volatile still.

    A record counts if it stands before the next owner's ``own`` record: its place is its ``at``.
    """

    def __init__(self, facts: LaneFacts) -> None:
        self._facts = facts
        self._volatile: deque[tuple[int, int]] = deque()  # when, offset
        self._records: deque[tuple[int, int]] = deque()  # place, made when
        self._alive_ns = 0
        self._writes = False  # its owners write down what is finished while they serve

    def finished(self, offset: int, t_ns: int) -> None:
        """A message finished: nobody but its owner knows yet."""
        self._alive_ns = t_ns
        self._volatile.append((t_ns, offset))

    def recorded(self, event: Event) -> None:
        """An ownership record is stored: it says what had finished when it was made."""
        self._writes = True
        self._alive_ns = event["t_ns"]
        self._records.append((event["at"], event["made_ns"]))
        if len(self._records) > _DOUBTFUL:
            self._seal(self._records.popleft()[1])

    def committed(self, offset: int, t_ns: int) -> None:
        """Below *offset* the commit says it all."""
        self._alive_ns = t_ns
        while self._volatile and self._volatile[0][1] < offset:
            self._volatile.popleft()

    def reset(self) -> None:
        """What finished before concerns nobody any more."""
        self._volatile.clear()

    def new_period(self, epoch: int) -> None:
        """Another owner: what it could not know may come again."""
        made = [made_ns for at, made_ns in self._records if at < epoch]
        known_ns = max(made, default=0)
        due_ns = self._alive_ns - ns(self._facts.limits.durable_s)
        if self._writes and self._facts.calm.during(due_ns):
            known_ns = max(known_ns, due_ns)  # that much it had time to write down
        self._facts.know_until(known_ns)
        self._seal(known_ns)
        self._volatile.clear()
        self._records.clear()

    def _seal(self, until_ns: int) -> None:
        while self._volatile and self._volatile[0][0] <= until_ns:
            self._facts.flags.add(self._volatile.popleft()[1], DURABLE)
