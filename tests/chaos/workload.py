"""What is sent, and how its handlers behave: it stands in each message's body. Pure.

Few keys, so that many messages of each wait behind one another. One of them is hot, one is
poisoned: some of its messages fail until they are given up, or until all faults are over. ``do``
and ``times`` say the same as ``plan`` to the conformance programs of the clients.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

TOPIC = "orders"
#: The second one gives messages up in another way than the first.
GROUP, SECOND_GROUP = "billing", "archive"
HOT, POISONED = "hot", "poisoned"
#: Messages of the poisoned key that do fail, one of so many: the others show that the key goes on.
_POISON_EVERY = 4


#: Of all sends, those of the hot key while it is hot.
_HOT_SHARE = 0.9


class Orders(Protocol):
    """What is said to senders while they send."""

    @property
    def hot(self) -> bool:
        """Most messages shall be of one key."""

    def behaviour(self, key: str) -> dict[str, Any] | None:
        """How handlers of a message of *key* shall behave; None: as ever."""


#: The other order key: several plain keys have a desk in common, hot and poisoned have their own.
DESK = "$.desk"
_DESKS = 3


def desk_of(key: str) -> str:
    """What of a message of *key* stands at ``DESK``."""
    name, _, number = key.partition("-")
    return f"desk-{int(number) % _DESKS}" if number else name


def plain_keys(keys: int) -> list[str]:
    """Those of *keys* that are neither hot nor poisoned."""
    return [f"key-{number}" for number in range(keys - 2)]


@dataclass(frozen=True, slots=True)
class Sender:
    """One of several senders; a key belongs to one of them, so its sends follow each other."""

    number: int
    senders: int
    keys: int

    def messages(self, seed: int, *, orders: Orders | None = None) -> Iterator[dict[str, Any]]:
        """Bodies for ever. *orders* may make a key hot, or poison one."""
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
    """How often a sender of this *number* sends, by how often it does otherwise: while a key is
    hot, nine of ten messages are of that key, which the first sender has.
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
    if choice < 0.031:  # longer than a lease, which has to be extended
        return {"plan": "ok", "work_ms": 7000}
    return {"plan": "ok", "work_ms": chooser.choice((0, 0, 1, 5, 20))}


def work_s(body: dict[str, Any], *, cured: bool) -> float:
    """How long its handler works. DDMQ's clients cannot extend a lease: cured, none needs to."""
    work_ms: int = body["work_ms"]
    return min(work_ms, 20 if cured else work_ms) / 1000


def fails(body: dict[str, Any], *, attempt: int, cured: bool) -> bool:
    """Whether the handler fails. *cured*: the poison has lost its power."""
    if body["plan"] == "poison":
        return not cured
    return bool(body["plan"] == "retry" and attempt <= body["times"])
