"""R3: while a key is parked none of its messages is handed out but as a copy, and those in order.

The copies of a queue's parked messages stand in its twin: the queue's name with a ``p`` behind.
"""

from __future__ import annotations

from collections import deque

from proxy.history.facts import LaneFacts
from proxy.history.reader import Event

_TWIN = "p"


def is_twin(queue: str) -> bool:
    """True if *queue* holds copies of parked messages."""
    return queue.endswith(_TWIN) and queue[-2:-1].isdigit()


def twin_of(queue: str) -> str:
    """The queue that holds copies of *queue*'s parked messages."""
    return queue + _TWIN


def origin_of(queue: str) -> str:
    """The queue whose twin *queue* is."""
    return queue.removesuffix(_TWIN)


class Parking:
    """Parked keys of one queue and group, and those of their messages that are not redriven yet."""

    def __init__(self, facts: LaneFacts) -> None:
        self._facts = facts
        self._redriven: set[str | None] = set()  # keys that may be redriven; None: all
        self._stopped_ns: dict[str | None, int] = {}  # when its redrive was stopped last
        self._copies: dict[int, str | None] = {}  # by offset in the queue, while unfinished
        self._places: dict[int, int] = {}  # the same: where the copy stands, if that was told
        self._early: set[int] = set()  # the same: finished before anybody knew that it was stored
        self._runs: dict[int, int | None] = {}  # the same: in which run the copy went out last
        self._highest: dict[str | None, int] = {}  # of those that have a copy, by key
        self._waiting: dict[str, deque[int]] = {}  # the same by key, rising; ended ones leave late

    def park(self, event: Event) -> None:
        """*order* is parked from now on."""
        self._facts.parked.add(event["order"])

    def taken_over(self, event: Event) -> None:
        """A new owner says what the records have as parked: the one before may have ended between
        a record and its word of it here.
        """
        parked, known = self._facts.parked, set(event.get("parked", ()))
        gone = {order for order in parked - known if not self._left(order)}
        parked |= known
        self._facts.unpark(gone, event["t_ns"])

    def redrive(self, event: Event) -> None:
        """The copies of *order* (null: of all) are handed out from now on, or no longer."""
        order, state = event.get("order"), event.get("state", "started")
        if state == "started":
            self._redriven.add(order)
            self._stopped_ns.pop(order, None)
        else:
            self._redriven.discard(order)
            if state == "stopped":
                self._stopped_ns[order] = event["t_ns"]

    def twin_taken_over(self, known_ns: int) -> None:
        """The next owner of the copies knows what was recorded until then: no stop since."""
        for order, stopped_ns in self._stopped_ns.items():
            if stopped_ns > known_ns:
                self._redriven.add(order)
        self._stopped_ns.clear()

    def unpark(self, event: Event) -> None:
        """The twin holds none of *order*: its later messages may be handed out again."""
        order = event["order"]
        if left := self._left(order):
            self._facts.violation(
                "R3", f"key {order!r} was unparked before its parked offset {left[0]} had finished"
            )
        self._facts.parked.discard(order)
        self._facts.unparked_ns[order] = event["t_ns"]
        self._redriven.discard(order)
        self._stopped_ns.pop(order, None)
        self._highest.pop(order, None)

    def handed_out(self, event: Event) -> None:
        """A message itself was handed out, no copy."""
        order = event["order"]
        if order in self._facts.parked:
            self._facts.violation(
                "R3",
                f"key {order!r}: offset {event['offset']} was handed out although its key is"
                " parked",
            )

    def finished(self, event: Event, key: str | None, *, again: bool) -> None:
        """A message came to its end; that of a parked one is its copy's. *again*: it had come to
        one before. A copy that is made once more after copies of later messages is passed over:
        these show that its message had finished, or has a copy ahead.
        """
        if event["outcome"] != "parked":
            return
        offset = event["offset"]
        key = event.get("order", key)
        highest = self._highest.get(key, -1)
        if offset in self._early or (again and offset <= highest):
            self._early.discard(offset)
            return
        self._highest[key] = max(highest, offset)
        self._copies[offset] = key
        if (place := event.get("copy")) is not None:
            self._places[offset] = place
        if key is not None:
            self._waiting.setdefault(key, deque()).append(offset)
            if key not in self._facts.parked:
                self._facts.violation(
                    "R3", f"key {key!r}: offset {offset} was parked while its key was not"
                )

    def copy_handed_out(self, event: Event) -> None:
        """A copy was handed out."""
        order, origin = event["order"], event["origin_offset"]
        if order is None:
            return
        if not self._redriven & {order, None}:
            self._facts.violation(
                "R3", f"key {order!r}: the copy of offset {origin} was handed out, not redriven"
            )
        # Whether or not its owner lived to say so, it is stored.
        self._highest[order] = max(self._highest.get(order, -1), origin)
        run = self._runs[origin] = event.get("run")
        left = self._left(order)
        if left and left[0] < origin and (run is None or self._runs.get(left[0]) != run):
            self._facts.violation(
                "R3",
                f"key {order!r}: the copy of offset {origin} was handed out before that of"
                f" {left[0]} had finished",
            )

    def copy_finished(self, origin: int | None) -> None:
        """A copy came to its end, and with it the message.

        Where the broker's answer is late the copy may be read, handed out and finished before the
        message is said to be parked.
        """
        if origin is not None:
            if origin not in self._copies:
                self._early.add(origin)
            self._ended(origin)

    def copy_deleted(self, order: str) -> None:
        """Retention deleted the first copy of *order*, and nobody knows which message it was of."""
        if left := self._left(order):
            self._ended(left[0])

    def copies_deleted(self, places: range) -> None:
        """Retention deleted what stood at *places* among the copies, unread. O(copies)."""
        for origin in [origin for origin, place in self._places.items() if place in places]:
            self._ended(origin)

    def _ended(self, origin: int) -> None:
        self._copies.pop(origin, None)
        self._places.pop(origin, None)
        self._runs.pop(origin, None)

    def lost(self, offset: int) -> bool:
        """At the end: True if the message was parked, its copy is not finished, and waits for no
        redrive.
        """
        if offset not in self._copies:
            return False
        key = self._copies[offset]
        return not self._facts.parked if key is None else key not in self._facts.parked

    def unended(self) -> list[str]:
        """The parked keys with copies that have not ended. O(parked keys)."""
        return [order for order in self._facts.parked if self._left(order)]

    def _left(self, key: str) -> deque[int]:
        left = self._waiting.get(key, deque())
        while left and left[0] not in self._copies:
            left.popleft()
        return left
