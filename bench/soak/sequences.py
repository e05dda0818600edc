"""Checks that messages of each key arrive in order, as they arrive. Pure.

1. The first handling of message n + 1 of a key comes after that of n: none is left out.
2. It comes after the end of n: a successful handling, or the last permitted one.
3. A message that ended is not repeated.

So when as many messages have been handled for the first time as were sent, all have. Memory: four
bytes per key, forever, and the open messages.
"""

from __future__ import annotations

from array import array
from dataclasses import asdict, dataclass

_CHUNK = 4_096


@dataclass(slots=True)
class Counts:
    """Counts of one group.

    ``early``: messages before one of their key that never arrived; ``overtaking``: before one that
    had failed and had not ended; ``again``: repeated after their end.
    """

    handled: int = 0  # for the first time
    keys: int = 0
    retried: int = 0
    given_up: int = 0
    early: int = 0
    overtaking: int = 0
    again: int = 0
    garbled: int = 0  # bodies that differ from what was sent

    def as_dict(self) -> dict[str, int]:
        """Return a dictionary for JSON."""
        return asdict(self)


class Sequences:
    """The messages of one group, all handled in this process."""

    def __init__(self, *, most_deliveries: int) -> None:
        """Give a message up after *deliveries* deliveries."""
        self.counts = Counts()
        self._most = most_deliveries
        self._next = array("I")
        self._open: dict[int, int] = {}  # by key: number of failures of its last message

    def tries(self, key: int, number: int) -> int:
        """Return the number that the next handling of message *number* would have, from 1 on."""
        return self._open.get(key, 0) + 1 if number == self._expected(key) - 1 else 1

    def note_garbled(self) -> None:
        """Note a body that differs from what was sent."""
        self.counts.garbled += 1

    def handled(self, key: int, number: int, *, failed: bool = False) -> None:
        """Note that message *number* of *key* was handled."""
        counts, expected, failures = self.counts, self._expected(key), self._open.get(key)
        if number >= expected:
            counts.handled += 1
            counts.keys += expected == 0
            counts.early += number > expected
            if failures is not None:
                counts.overtaking += 1
                del self._open[key]
            self._next[key] = number + 1
            failures = 0
        elif number == expected - 1 and failures is not None:
            counts.retried += 1
        else:
            counts.again += 1
            return
        if not failed:
            self._open.pop(key, None)
        elif failures + 1 < self._most:
            self._open[key] = failures + 1
        else:
            self._open.pop(key, None)
            counts.given_up += 1

    def _expected(self, key: int) -> int:
        if key >= len(self._next):
            self._next.extend([0] * max(key + 1 - len(self._next), _CHUNK))
        return self._next[key]
