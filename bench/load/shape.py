"""Messages of a load: keys, queues, and bodies with their due times. Pure."""

from __future__ import annotations

import math
import random
import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

#: Number of the key, number of the message within its key, due time.
_HEAD = struct.Struct(">IIq")
HEAD_BYTES = _HEAD.size
_CHUNK = 4_096


class Head(NamedTuple):
    """The head of each body. Times are those of ``now_ns``."""

    key: int
    number: int
    due_ns: int


def head_of(body: bytes) -> Head:
    """Return the head of a body."""
    return Head(*_HEAD.unpack_from(body))


def packed(head: Head) -> bytes:
    """Return the inverse of ``head_of``."""
    return _HEAD.pack(*head)


def key_name(key: int) -> str:
    """Return the key of messages."""
    return f"key-{key}"


def zipf_shares(keys: int, exponent: float) -> list[float]:
    """Return the share of each key, the most frequent first; all equal with exponent 0."""
    weights = [1 / rank**exponent for rank in range(1, keys + 1)]
    total = sum(weights)
    return [weight / total for weight in weights]


@dataclass(frozen=True, slots=True)
class Shape:
    """*keys* keys, spread over *queues* queues, chosen with Zipf's *exponent*."""

    queues: int
    keys: int
    body_bytes: int = 256
    exponent: float = 0.0
    seed: int = 7


class Batches:
    """Batches for one connection of *connections*, each of one queue; keys never share a
    connection.

    So messages of a key are stored in the order in which they were made.
    """

    def __init__(self, shape: Shape, *, number: int, connections: int) -> None:
        """Prepare the connection *number*, from 0."""
        self._shape = shape
        self._step = math.lcm(shape.queues, connections)
        self._residues = [
            residue for residue in range(number, self._step, connections) if residue < shape.keys
        ]
        self._turn = 0
        self._chooser = random.Random(f"{shape.seed}/{number}")
        self._numbers = _Numbers()
        self._pad = bytes(max(0, shape.body_bytes - HEAD_BYTES))

    def __bool__(self) -> bool:
        """Return False if this connection has no key."""
        return bool(self._residues)

    def next(self, count: int, due_ns: int) -> tuple[int, list[tuple[int, bytes]]]:
        """Return a queue, and the key and body of *count* messages for it."""
        residue = self._residues[self._turn % len(self._residues)]
        self._turn += 1
        choices = (self._shape.keys - 1 - residue) // self._step + 1
        chosen = self._chooser.random
        keys = [residue + self._step * int(chosen() * choices) for _ in range(count)]
        queue = residue % self._shape.queues
        return queue, [(key, self.body(key, due_ns)) for key in keys]

    def body(self, key: int, due_ns: int) -> bytes:
        """Return the body of the next message of *key*."""
        return _HEAD.pack(key, self._numbers.next(key), due_ns) + self._pad


class _Numbers:
    """A counter per key, eight bytes each."""

    def __init__(self) -> None:
        self._next = array("Q")

    def next(self, key: int) -> int:
        if key >= len(self._next):
            self._next.extend([0] * max(key + 1 - len(self._next), _CHUNK))
        number = self._next[key]
        self._next[key] = number + 1
        return number


class Arrivals:
    """Random due times and keys of messages with a mean rate, independent of the sender's
    progress.
    """

    def __init__(self, shape: Shape, *, rate: float, began_ns: int) -> None:
        """Plan *rate* messages per second from *began_ns* on."""
        self._chooser = random.Random(f"{shape.seed}/arrivals")
        self._weights = list(accumulate(zipf_shares(shape.keys, shape.exponent)))
        self._keys: Sequence[int] = range(shape.keys)
        self._rate = rate
        self._next_ns = float(began_ns)
        self._waiting: list[tuple[int, int]] = []

    def next(self) -> tuple[int, int]:
        """Return the due time of the next message, and its key."""
        if not self._waiting:
            keys = self._chooser.choices(self._keys, cum_weights=self._weights, k=_CHUNK)
            for key in keys:
                self._next_ns += self._chooser.expovariate(self._rate) * 1e9
                self._waiting.append((int(self._next_ns), key))
            self._waiting.reverse()
        return self._waiting.pop()


class Order:
    """Checks that messages of each key arrive once and in order; counts repeated ones."""

    def __init__(self) -> None:
        self._next: dict[int, int] = {}
        self.repeated = self.faults = 0

    def judge(self, key: int, number: int) -> None:
        """Check message *number* of *key*, which was handled."""
        expected = self._next.get(key, 0)
        if number < expected:
            self.repeated += 1
        else:
            self.faults += number > expected
            self._next[key] = number + 1
