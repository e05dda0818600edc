"""Whether messages of each key come in their order, as they come. Pure.

1. The first handling of message n + 1 of a key comes after that of n: none is left out.
2. It comes after n has come to an end: after a handling that did not fail, or the last one that
   there may be.
3. What came to its end does not come again.

So when as many messages have been handled for the first time as were sent, all have. Kept are four
bytes a key, for ever, and what is open.
"""

from __future__ import annotations

from array import array
from dataclasses import asdict, dataclass

_CHUNK = 4_096


@dataclass(slots=True)
class Counts:
    """What was seen. ``early``: messages before one of their key that never came; ``overtaking``:
    before one that had failed and had not ended; ``again``: those that had ended before.
    """

    handled: int = 0  # for the first time
    keys: int = 0
    retried: int = 0
    given_up: int = 0
    early: int = 0
    overtaking: int = 0
    again: int = 0
    garbled: int = 0  # bodies that are not what was sent

    def as_dict(self) -> dict[str, int]:
        """For JSON."""
        return asdict(self)


class Sequences:
    """Of one group, all of whose messages are handled in this process."""

    def __init__(self, *, most_deliveries: int) -> None:
        """A message is given up after so many hand-outs."""
        self.counts = Counts()
        self._most = most_deliveries
        self._next = array("I")
        self._open: dict[int, int] = {}  # by key: how often its last message has failed

    def tries(self, key: int, number: int) -> int:
        """The how many-th handling of message *number* would be the next one, from 1 on."""
        return self._open.get(key, 0) + 1 if number == self._expected(key) - 1 else 1

    def note_garbled(self) -> None:
        """A body was not what was sent."""
        self.counts.garbled += 1

    def handled(self, key: int, number: int, *, failed: bool = False) -> None:
        """Message *number* of *key* went through its handler."""
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
