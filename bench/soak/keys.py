"""Messages of a soak: keys that appear, live for some messages and end. Pure.

Key and number alone decide whether a handling fails, so sender and consumer need no coordination.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from bench.load.shape import HEAD_BYTES, Head, packed

#: Messages per key: of most keys, and of the busiest one of each connection, which has long chains.
LIFE, LONG_LIFE = 100, 5_000
#: One message in this number fails once; one in this number always, until it is given up.
_FAILS_EVERY, _FAILS_ALWAYS_EVERY = 500, 20_000
#: Deliveries before a message is given up.
MOST_DELIVERIES = 3


def fails(key: int, number: int, tries: int) -> bool:
    """Return whether the handler of message *number* of *key* fails at its *tries*-th delivery,
    from 1 on.
    """
    drawn = (key * 2_654_435_761 + number * 2_246_822_519) & 0xFFFFFFFF
    drawn ^= drawn >> 15
    if drawn % _FAILS_ALWAYS_EVERY == 0:
        return True
    return drawn % _FAILS_EVERY == 1 and tries == 1


@dataclass(slots=True)
class _Slot:
    key: int
    sent: int
    life: int


class ChurningKeys:
    """Messages for one connection of *connections*; keys never share one, so that messages of a key
    are stored in the order in which they were made.
    """

    def __init__(
        self, *, alive: int, number: int, connections: int, body_bytes: int, seed: int
    ) -> None:
        """Prepare the connection *number*, from 0, with *alive* keys at a time."""
        self._step = connections
        self._next_key = number
        self._chosen = random.Random(f"{seed}/{number}").random
        self._pad = bytes(max(0, body_bytes - HEAD_BYTES))
        self._slots = [self._fresh(LIFE if slot else LONG_LIFE) for slot in range(max(1, alive))]
        #: Number of keys so far.
        self.keys = len(self._slots)

    def next(self, count: int, due_ns: int) -> list[tuple[int, bytes]]:
        """Return key and body of *count* messages. Some keys are busier than others."""
        return [self._message(due_ns) for _ in range(count)]

    def _message(self, due_ns: int) -> tuple[int, bytes]:
        slots = self._slots
        place = int(self._chosen() ** 2 * len(slots))
        slot = slots[place]
        if slot.sent == slot.life:
            slot = slots[place] = self._fresh(slot.life)
            self.keys += 1
        body = packed(Head(slot.key, slot.sent, due_ns)) + self._pad
        slot.sent += 1
        return slot.key, body

    def _fresh(self, life: int) -> _Slot:
        key = self._next_key
        self._next_key += self._step
        return _Slot(key, 0, life)
