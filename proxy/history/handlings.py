"""O1, O2, O3 and O3b judged by the starts and ends of handlers, as the application sees them."""

from __future__ import annotations

from dataclasses import dataclass

from proxy.history.facts import HANDLED, STARTED, LaneFacts, Slot, lower
from proxy.history.reader import Event

#: Outcomes after which a message needs no other handler. A rejected message follows its group's
#: failure policy, which only a proxy's history records.
_GOOD_ENDS = frozenset({"ok", "reject"})


@dataclass(slots=True)
class _Running:
    offset: int
    lease: int | None
    consumer: str
    overlapped_by: int | None = None


class Handlings:
    """Handlers of one queue and group.

    Where a proxy's events exist, a handler whose lease ended without a verdict (it expired, or the
    queue changed its owner) is late: counted, not a violation. Without them an overlap is judged
    when the older handler ends; one that never ends belonged to a killed client.
    """

    def __init__(self, facts: LaneFacts) -> None:
        self._facts = facts
        self.duplicates = 0
        self.late = 0
        self._running: dict[Slot, list[_Running]] = {}
        self._waiting: dict[str, set[int]] = {}  # started and not finished well
        self._highest: dict[str, int] = {}

    @property
    def keys(self) -> set[str]:
        """Order keys seen."""
        return self._highest.keys() | self._waiting.keys()

    def reset(self) -> None:
        """Forget order and open handlers, after a reset of the group."""
        self._waiting.clear()
        self._highest.clear()

    def start(self, event: Event, tag: str | None = None) -> None:
        """Record the start of a handler, of a message with *tag*."""
        offset, order, lease = event["offset"], event["order"], event["lease"]
        flags = self._facts.flags.get(offset)
        late = self._facts.is_late(offset, lease)
        self.duplicates += bool(flags & HANDLED)
        self.late += late
        running = self._running.setdefault(offset if order is None else order, [])
        if running and not late:
            self._judge_overlap(running, offset, order, blind=lease is None)
        if order is not None:
            if not late:  # after a reset or a change of owner another order may hold
                self._judge_order(offset, order, flags, tag)
                self._highest[order] = max(offset, self._highest.get(order, -1))
            self._waiting.setdefault(order, set()).add(offset)
        running.append(_Running(offset, lease, event["consumer"]))
        self._facts.flags.add(offset, STARTED)

    def end(self, event: Event) -> None:
        """Record the end of a handler."""
        offset, order = event["offset"], event["order"]
        self._end_running(offset if order is None else order, offset, event["lease"])
        if event["outcome"] not in _GOOD_ENDS:
            return
        self._facts.flags.add(offset, HANDLED)
        if order is not None and (waiting := self._waiting.get(order)):
            waiting.discard(offset)
            if not waiting:
                del self._waiting[order]

    def _judge_overlap(
        self, running: list[_Running], offset: int, order: str | None, *, blind: bool
    ) -> None:
        for older in running:
            if not self._facts.judged_by_proxy:
                older.overlapped_by = offset
                continue
            # A DDMQ client cannot know when its lease ends.
            unknown = blind or older.lease is None
            if unknown or (older.offset, older.lease) in self._facts.excused:
                self.late += 1
            else:
                self._facts.violation("O3b", _overlap(order, older, offset))

    def _judge_order(self, offset: int, key: str, flags: int, tag: str | None) -> None:
        if not self._facts.judged_by_proxy:
            for unfinished in lower(self._waiting.get(key), offset):
                self._facts.violation(
                    "O2", f"key {key!r}: offset {offset} was handled before {unfinished} ended well"
                )
        highest = self._highest.get(key, -1)
        if offset < highest and not flags & STARTED and not self._facts.left_out(tag):
            self._facts.violation(
                "O1", f"key {key!r}: offset {offset} was first handled after {highest}"
            )

    def _end_running(self, slot: Slot, offset: int, lease: int) -> None:
        running = self._running.get(slot, [])
        for place, handler in enumerate(running):
            if (handler.offset, handler.lease) == (offset, lease):
                del running[place]
                if handler.overlapped_by is not None and not self._facts.judged_by_proxy:
                    order = slot if isinstance(slot, str) else None
                    self._facts.violation("O3", _overlap(order, handler, handler.overlapped_by))
                break
        if not running:
            self._running.pop(slot, None)


def _overlap(order: str | None, older: _Running, offset: int) -> str:
    return (
        f"key {order!r}: the handler of offset {offset} began while that of {older.offset}"
        f" (lease {older.lease}, {older.consumer}) was running"
    )
