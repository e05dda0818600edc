"""What is sent in a soak: keys that come, live for some messages and go. Pure.

Which handlings fail follows from key and number alone, so sender and consumer need not agree on
anything.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from bench.load.shape import HEAD_BYTES, Head, packed

#: Messages of a key: of most, and of the busiest one of each connection, which come in crowds.
LIFE, LONG_LIFE = 100, 5_000
#: One message of so many fails once; of so many, each time, until it is given up.
_FAILS_EVERY, _FAILS_ALWAYS_EVERY = 500, 20_000
#: Hand-outs until a message is given up.
MOST_DELIVERIES = 3


def fails(key: int, number: int, tries: int) -> bool:
    """Whether the handler of message *number* of *key* fails when it has it for the *tries*-th
    time, from 1 on.
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
        """*alive*: keys of this connection at a time; *number*: the connection's, from 0."""
        self._step = connections
        self._next_key = number
        self._chosen = random.Random(f"{seed}/{number}").random
        self._pad = bytes(max(0, body_bytes - HEAD_BYTES))
        self._slots = [self._fresh(LIFE if slot else LONG_LIFE) for slot in range(max(1, alive))]
        #: Keys that were begun.
        self.keys = len(self._slots)

    def next(self, count: int, due_ns: int) -> list[tuple[int, bytes]]:
        """*count* messages: the key and the body of each. Some keys are busier than others."""
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
