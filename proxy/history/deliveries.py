"""O1, O2, O3, W3 and the half of D1 that concerns hand-outs: what the proxies did."""

from __future__ import annotations

from proxy.history.facts import DELIVERED, FINISHED, LaneFacts, OffsetFlags, lower
from proxy.history.reader import Event

#: What must be in order: an order key's text, or for an unordered message its own offset.
Slot = str | int


class Deliveries:
    """Hand-outs, leases and finishes of one queue and group.

    A finish is volatile until a commit covers it: the owner after a crash may hand such a message
    out again. Then it is unfinished again, and so everything is judged once more within that
    ownership period.
    """

    def __init__(self, facts: LaneFacts) -> None:
        self._facts = facts
        self.duplicates = 0
        self._open: dict[Slot, set[int]] = {}  # offsets handed out and not finished
        self._slot_of: dict[int, Slot] = {}  # the same, by offset
        self._live: dict[int, tuple[int, Slot]] = {}  # lease → offset, slot
        self._lease_of: dict[Slot, int] = {}
        self._highest: dict[str, int] = {}  # of each key, handed out in this period
        self._highest_before: dict[str, int] = {}  # in periods before
        self._finished_now = OffsetFlags()  # in this period

    @property
    def keys(self) -> set[str]:
        """Order keys seen."""
        return self._highest.keys() | self._highest_before.keys()

    @property
    def lowest_open(self) -> int | None:
        """The lowest offset handed out and not finished. O(unfinished)."""
        return min(self._slot_of, default=None)

    def new_period(self) -> None:
        """Another owner, or the same again: no lease outlives its period."""
        self.end_all_leases()
        for key, offset in self._highest.items():
            self._highest_before[key] = max(offset, self._highest_before.get(key, -1))
        self._highest = {}
        self._finished_now = OffsetFlags()

    def end_all_leases(self) -> None:
        """The queue was given up."""
        self._facts.excused.update((offset, lease) for lease, (offset, _) in self._live.items())
        self._live.clear()
        self._lease_of.clear()

    def deliver(self, event: Event) -> None:
        """A job was handed out."""
        offset, order, lease = event["offset"], event["order"], event["lease"]
        slot: Slot = offset if order is None else order
        flags = self._facts.flags.get(offset)
        self._judge_durable(offset, flags)
        if (other := self._lease_of.get(slot)) is not None:
            self._facts.violation(
                "O3",
                f"{_name(slot)}: offset {offset} was handed out as lease {lease} while lease"
                f" {other} (offset {self._live[other][0]}) was alive",
            )
            del self._live[other]
        if order is not None:
            self._judge_order(offset, order, flags)
        self._live[lease] = (offset, slot)
        self._lease_of[slot] = lease
        self._open.setdefault(slot, set()).add(offset)
        self._slot_of[offset] = slot
        self.duplicates += bool(flags & FINISHED)
        self._facts.flags.add(offset, DELIVERED)

    def _judge_durable(self, offset: int, flags: int) -> None:
        if self._finished_now.get(offset):
            self._facts.violation(
                "D1", f"offset {offset} was handed out again after it had finished"
            )
        elif offset < self._facts.committed:
            known = "finished and committed" if flags & FINISHED else "committed unfinished"
            invariant = "D1" if flags & FINISHED else "C2"
            self._facts.violation(
                invariant, f"offset {offset} was handed out after it had been {known}"
            )

    def _judge_order(self, offset: int, key: str, flags: int) -> None:
        open_offsets = self._open.get(key)
        for unfinished in lower(open_offsets, offset):
            self._facts.violation(
                "O2", f"{_name(key)}: offset {offset} was handed out before {unfinished} finished"
            )
        now = self._highest.get(key, -1)
        before = -1 if flags & DELIVERED else self._highest_before.get(key, -1)
        if offset < max(now, before) and not (open_offsets and offset in open_offsets):
            self._facts.violation(
                "O1", f"{_name(key)}: offset {offset} was handed out after {max(now, before)}"
            )
        if offset > now:
            self._highest[key] = offset

    def finish(self, event: Event) -> None:
        """A job came to its end."""
        offset = event["offset"]
        slot = self._slot_of.pop(offset, None)
        if slot is not None:
            open_offsets = self._open[slot]
            open_offsets.discard(offset)
            if not open_offsets:
                del self._open[slot]
            lease = self._lease_of.get(slot)
            if lease is not None and self._live[lease][0] == offset:
                self._end(lease)
        if self._finished_now.get(offset):
            self._facts.violation("D1", f"offset {offset} finished twice")
        elif offset < self._facts.committed and not self._facts.flags.get(offset) & FINISHED:
            self._facts.violation("C2", f"offset {offset} was committed before it finished")
        self._finished_now.add(offset, 1)
        self._facts.flags.add(offset, FINISHED)

    def ack_ok(self, event: Event) -> None:
        """A verdict was accepted."""
        if self._end(event["lease"]) is None:
            self._facts.violation(
                "W3", f"a verdict was accepted for lease {event['lease']}, which was not alive"
            )

    def expire(self, event: Event) -> None:
        """A lease ended without its client's doing."""
        lease = event["lease"]
        offset = self._end(lease)
        if offset is not None:
            self._facts.excused.add((offset, lease))

    def _end(self, lease: int) -> int | None:
        """End *lease*; its offset, or None if it was not alive."""
        if (held := self._live.pop(lease, None)) is None:
            return None
        offset, slot = held
        if self._lease_of.get(slot) == lease:
            del self._lease_of[slot]
        return offset


def _name(slot: Slot) -> str:
    return f"key {slot!r}" if isinstance(slot, str) else "without a key"
