"""A1: a message acked as done was handled completely."""

from __future__ import annotations

from dataclasses import dataclass

from proxy.history.facts import LaneFacts, name_of
from proxy.history.reader import Event

_STARTS, _ENDS = 1, 2
#: Doubtful acks kept per consumer.
_MOST_DOUBTS = 100


@dataclass(slots=True)
class _Handler:
    consumer: str
    order: str | None
    done: bool = False


class HandlerAcks:
    """Handlers of the live leases of one queue and group.

    A consumer is judged only if it writes both starts and ends of handlers. Until its first end,
    its acks are kept as doubtful.
    """

    def __init__(self, facts: LaneFacts) -> None:
        self._facts = facts
        self._handlers: dict[tuple[int, int], _Handler] = {}  # by offset and lease
        self._writes: dict[str, int] = {}  # by consumer
        self._doubts: dict[str, list[str]] = {}  # by consumer without an end so far

    def start(self, event: Event, *, alive: bool) -> None:
        """Record the start of a handler; *alive*: its lease is alive."""
        self._wrote(event["consumer"], _STARTS)
        if alive:
            place = event["offset"], event["lease"]
            self._handlers.setdefault(place, _Handler(event["consumer"], event["order"]))

    def end(self, event: Event) -> None:
        """Record the end of a handler."""
        self._wrote(event["consumer"], _ENDS)
        handler = self._handlers.get((event["offset"], event["lease"]))
        if handler is not None:
            handler.done = handler.done or event["outcome"] == "ok"

    def ended(self, event: Event) -> None:
        """Judge the end of a lease, by a verdict or otherwise."""
        handler = self._handlers.pop((event["offset"], event["lease"]), None)
        if handler is None or handler.done or event.get("outcome") != "ok":
            return
        slot = event["offset"] if handler.order is None else handler.order
        text = (
            f"{name_of(slot)}: {handler.consumer} acked offset {event['offset']} (lease"
            f" {event['lease']}), whose handler had not ended with ok"
        )
        if self._writes[handler.consumer] & _ENDS:
            self._facts.violation("A1", text)
        else:
            doubts = self._doubts.setdefault(handler.consumer, [])
            if len(doubts) < _MOST_DOUBTS:
                doubts.append(text)

    def new_period(self) -> None:
        """Begin an ownership period; no lease outlives the previous one."""
        self._handlers.clear()

    def _wrote(self, consumer: str, what: int) -> None:
        self._writes[consumer] = self._writes.get(consumer, 0) | what
        if what == _ENDS:
            for text in self._doubts.pop(consumer, ()):
                self._facts.violation("A1", text)
