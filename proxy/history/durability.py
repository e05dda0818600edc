"""Finishes that a new owner must know because a commit or an ownership record covers
them (D4, D5).
"""

from __future__ import annotations

from collections import deque

from proxy.history.facts import DURABLE, LaneFacts
from proxy.history.limits import ns
from proxy.history.reader import Event

#: Records per period that may turn out to be later than the next owner's first one.
_DOUBTFUL = 4


class Durability:
    """Volatile finishes of one queue and group.

    A record counts if its offset (``at``) is below that of the next owner's ``own`` record.
    """

    def __init__(self, facts: LaneFacts) -> None:
        self._facts = facts
        self._volatile: deque[tuple[int, int]] = deque()  # when, offset
        self._records: deque[tuple[int, int]] = deque()  # place, made when
        self._alive_ns = 0
        self._writes = False  # True once its owners write records while they serve

    def finished(self, offset: int, t_ns: int) -> None:
        """Record a finish, known to the owner only."""
        self._alive_ns = t_ns
        self._volatile.append((t_ns, offset))

    def recorded(self, event: Event) -> None:
        """Record an ownership record; it covers the finishes until it was made."""
        self._writes = True
        self._alive_ns = event["t_ns"]
        self._records.append((event["at"], event["made_ns"]))
        if len(self._records) > _DOUBTFUL:
            self._seal(self._records.popleft()[1])

    def committed(self, offset: int, t_ns: int) -> None:
        """Drop finishes below *offset*: the commit covers them."""
        self._alive_ns = t_ns
        while self._volatile and self._volatile[0][1] < offset:
            self._volatile.popleft()

    def reset(self) -> None:
        """Drop all volatile finishes, after a reset of the group."""
        self._volatile.clear()

    def new_period(self, epoch: int) -> None:
        """Begin an ownership period; uncovered finishes may be repeated."""
        made = [made_ns for at, made_ns in self._records if at < epoch]
        known_ns = max(made, default=0)
        due_ns = self._alive_ns - ns(self._facts.limits.durable_s)
        if self._writes and self._facts.faults.none_since(due_ns):
            known_ns = max(known_ns, due_ns)  # it had time to record that much
        if self._facts.records_damaged:
            known_ns = 0
        self._facts.know_until(known_ns)
        self._seal(known_ns)
        self._volatile.clear()
        self._records.clear()

    def _seal(self, until_ns: int) -> None:
        while self._volatile and self._volatile[0][0] <= until_ns:
            offset = self._volatile.popleft()[1]
            if not self._facts.records_damaged:
                self._facts.flags.add(offset, DURABLE)
