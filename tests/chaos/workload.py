"""The messages, whose bodies specify the behaviour of their handlers. Pure.

Keys are few, so that many messages wait in each chain. One key is hot, and one is poisoned: some of
its messages fail until they are exhausted, or until all faults are over. ``do`` and ``times`` mean
the same as ``plan``, for the conformance programs of the clients.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

TOPIC = "orders"
#: The second one treats exhausted messages differently.
GROUP, SECOND_GROUP = "billing", "archive"
HOT, POISONED = "hot", "poisoned"
#: One of this many messages of the poisoned key fails: the others show that the key continues.
_POISON_EVERY = 4


#: The hot key's share of all sends while it is hot.
_HOT_SHARE = 0.9


class Orders(Protocol):
    """Orders for senders."""

    @property
    def hot(self) -> bool:
        """Whether most messages should have one key."""

    def behaviour(self, key: str) -> dict[str, Any] | None:
        """Return the behaviour for messages of *key*; None: the usual one."""


#: The second order key: several plain keys share a desk; the hot and poisoned ones have their own.
DESK = "$.desk"
_DESKS = 3


def desk_of(key: str) -> str:
    """Return the value at ``DESK`` for a message of *key*."""
    name, _, number = key.partition("-")
    return f"desk-{int(number) % _DESKS}" if number else name


def plain_keys(keys: int) -> list[str]:
    """Return the keys that are neither hot nor poisoned."""
    return [f"key-{number}" for number in range(keys - 2)]


@dataclass(frozen=True, slots=True)
class Sender:
    """One of several senders; each key belongs to one, so its sends are in order."""

    number: int
    senders: int
    keys: int

    def messages(self, seed: int, *, orders: Orders | None = None) -> Iterator[dict[str, Any]]:
        """Yield bodies endlessly. *orders* may make a key hot, or poison one."""
        chooser = random.Random(f"{seed} sender {self.number}")
        keys = plain_keys(self.keys)[self.number :: self.senders]
        weights = [1.0] * len(keys)
        if self.number == 0:
            keys, weights = [*keys, HOT], [*weights, 2.0 * len(keys)]
        if self.number == 1:
            keys, weights = [*keys, POISONED], [*weights, 0.2]
        count = 0
        while True:
            count += 1
            key = chooser.choices(keys, weights)[0]
            behaviour = _behaviour(chooser, key)
            if orders is not None:
                key = HOT if orders.hot and HOT in keys else key
                behaviour = orders.behaviour(key) or behaviour
            yield {"n": count, "key": key, "desk": desk_of(key), **behaviour}


def share(number: int, *, hot: bool) -> float:
    """Return a sender's rate relative to the usual one: while a key is hot, nine of ten messages
    have that key, which belongs to the first sender.
    """
    if not hot:
        return 1.0
    return _HOT_SHARE if number == 0 else 1.0 - _HOT_SHARE


def _behaviour(chooser: random.Random, key: str) -> dict[str, Any]:
    if key == POISONED and chooser.randrange(_POISON_EVERY) == 0:
        return {"plan": "poison", "do": "retry", "work_ms": 1}
    choice = chooser.random()
    if choice < 0.02:
        times = chooser.randint(1, 2)
        return {"plan": "retry", "do": "retry", "times": times, "work_ms": 2}
    if choice < 0.03:
        return {"plan": "ok", "work_ms": chooser.randint(300, 1500)}
    if choice < 0.031:  # longer than a lease, which must be extended
        return {"plan": "ok", "work_ms": 7000}
    return {"plan": "ok", "work_ms": chooser.choice((0, 0, 1, 5, 20))}


def work_s(body: dict[str, Any], *, cured: bool) -> float:
    """Return the time of its handler. DDMQ's clients cannot extend leases: cured, none needs to."""
    work_ms: int = body["work_ms"]
    return min(work_ms, 20 if cured else work_ms) / 1000


def fails(body: dict[str, Any], *, attempt: int, cured: bool) -> bool:
    """Return whether the handler fails. *cured*: poison has no effect."""
    if body["plan"] == "poison":
        return not cured
    return bool(body["plan"] == "retry" and attempt <= body["times"])
