"""R3: while a key is parked, only redriven copies of its messages are delivered, in order.

The copies of a queue's parked messages are in its twin, named like the queue with a ``p`` at the
end.
"""

from __future__ import annotations

from collections import deque

from proxy.history.facts import LaneFacts
from proxy.history.reader import Event

_TWIN = "p"


def is_twin(queue: str) -> bool:
    """Return True if *queue* holds copies of parked messages."""
    return queue.endswith(_TWIN) and queue[-2:-1].isdigit()


def twin_of(queue: str) -> str:
    """Return the queue that holds the copies of *queue*'s parked messages."""
    return queue + _TWIN


def origin_of(queue: str) -> str:
    """Return the queue whose twin *queue* is."""
    return queue.removesuffix(_TWIN)


class Parking:
    """Parked keys of one queue and group, and their messages whose copies have not finished."""

    def __init__(self, facts: LaneFacts) -> None:
        self._facts = facts
        self._redriven: set[str | None] = set()  # keys whose copies may be delivered; None: all
        self._ever_redriven: set[str | None] = set()
        self._stopped_ns: dict[str | None, int] = {}  # time of the last stop of a redrive
        self._copies: dict[int, str | None] = {}  # by offset in the queue, while unfinished
        self._places: dict[int, int] = {}  # the same: offset of the copy, if known
        self._origins: dict[int, int] = {}  # by offset of the copy, if known; ended ones too
        self._early: set[int] = set()  # copies that finished before their ``parked`` event
        self._runs: dict[int, int | None] = {}  # the same: run in which the copy was last delivered
        self._highest: dict[str | None, int] = {}  # highest offset with a copy, by key
        self._waiting: dict[str, deque[int]] = {}  # unfinished ones by key, rising; removed late

    def restored(self, former: Parking) -> None:
        """Continue *former* in a restored copy: any of its redrives may be under way there."""
        self._redriven |= former._ever_redriven
        self._ever_redriven |= former._ever_redriven

    def park(self, event: Event) -> None:
        """Note that *order* is parked."""
        self._facts.parked.add(event["order"])

    def taken_over(self, event: Event) -> None:
        """Take over the parked keys known to a new owner; its predecessor may have ended between a
        record and the event.
        """
        parked, known = self._facts.parked, set(event.get("parked", ()))
        gone = {order for order in parked - known if not self._left(order)}
        parked |= known
        self._facts.unpark(gone, event["t_ns"])

    def redrive(self, event: Event) -> None:
        """Begin or stop the redrive of the copies of *order* (null: all)."""
        order, state = event.get("order"), event.get("state", "started")
        if state == "started":
            self._redriven.add(order)
            self._ever_redriven.add(order)
            self._stopped_ns.pop(order, None)
        else:
            self._redriven.discard(order)
            if state == "stopped":
                self._stopped_ns[order] = event["t_ns"]

    def twin_taken_over(self, known_ns: int) -> None:
        """Begin a period of the twin; its owner knows no stop after *known_ns*."""
        for order, stopped_ns in self._stopped_ns.items():
            if stopped_ns > known_ns:
                self._redriven.add(order)
        self._stopped_ns.clear()

    def unpark(self, event: Event) -> None:
        """Judge that the twin has no message of *order* left and newer ones are delivered again."""
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

    def delivered(self, event: Event) -> None:
        """Judge the delivery of an original message."""
        order = event["order"]
        if order in self._facts.parked:
            self._facts.violation(
                "R3",
                f"key {order!r}: offset {event['offset']} was delivered although its key is parked",
            )

    def finished(self, event: Event, key: str | None, *, again: bool) -> None:
        """Record the end of a message. A parked message ends with its copy.

        A copy made again after copies of later messages is ignored: these prove that its message
        had finished or has an earlier copy.

        Args:
            event: The ``finish``.
            key: The order key, if *event* does not contain it.
            again: The message had finished before.
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
            self._origins[place] = offset
        if key is not None:
            self._waiting.setdefault(key, deque()).append(offset)
            if key not in self._facts.parked:
                self._facts.violation(
                    "R3", f"key {key!r}: offset {offset} was parked while its key was not"
                )

    def copy_delivered(self, event: Event) -> None:
        """Judge the delivery of a copy."""
        order, origin = event["order"], event["origin_offset"]
        if order is None:
            return
        if not self._redriven & {order, None}:
            self._facts.violation(
                "R3", f"key {order!r}: the copy of offset {origin} was delivered, not redriven"
            )
        # The delivery proves that the copy is stored.
        self._highest[order] = max(self._highest.get(order, -1), origin)
        run = self._runs[origin] = event.get("run")
        left = self._left(order)
        if left and left[0] < origin and (run is None or self._runs.get(left[0]) != run):
            self._facts.violation(
                "R3",
                f"key {order!r}: the copy of offset {origin} was delivered before that of"
                f" {left[0]} had finished",
            )

    def copy_finished(self, origin: int | None) -> None:
        """Record the end of a copy, and with it of its message.

        If the broker answers late, a copy may be read, delivered and finished before the ``parked``
        event of its message.
        """
        if origin is not None:
            if origin not in self._copies:
                self._early.add(origin)
            self._ended(origin)

    def copy_lost(self, place: int, order: str | None) -> None:
        """Record that the copy at *place*, which was not read, is deleted or damaged. If its
        message is unknown, it is the first one of *order*.
        """
        if (origin := self._origins.get(place)) is not None:
            if self._places.get(origin) == place:  # it is the last copy of its message, unfinished
                self._ended(origin)
        elif order is not None and (left := self._left(order)):
            self._ended(left[0])

    def copies_deleted(self, places: range) -> None:
        """Record that retention deleted the copies at *places* unread. O(copies)."""
        for origin in [origin for origin, place in self._places.items() if place in places]:
            self._ended(origin)

    def _ended(self, origin: int) -> None:
        self._copies.pop(origin, None)
        self._places.pop(origin, None)
        self._runs.pop(origin, None)

    def lost(self, offset: int) -> bool:
        """Return True at the end if the message was parked and its copy neither finished nor waits
        for a redrive.
        """
        if offset not in self._copies:
            return False
        key = self._copies[offset]
        return not self._facts.parked if key is None else key not in self._facts.parked

    def unended(self) -> list[str]:
        """Return the parked keys with unfinished copies. O(parked keys)."""
        return [order for order in self._facts.parked if self._left(order)]

    def _left(self, key: str) -> deque[int]:
        left = self._waiting.get(key, deque())
        while left and left[0] not in self._copies:
            left.popleft()
        return left
