"""O3, W3, R2 and the end of X1: one live lease a key, ended by its verdict or its deadline."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from proxy.history.busy import Busy
from proxy.history.facts import LaneFacts, Slot, name_of
from proxy.history.limits import NS, ns
from proxy.history.reader import Event


def _decided_ns(event: Event) -> int:
    """From when on it counts: a process may have stood still before it wrote the event."""
    decided_ns: int | None = event.get("at_ns")
    return event["t_ns"] if decided_ns is None else decided_ns


@dataclass(slots=True)
class Lease:
    """A live one. Leases of one ordered run have its name in common."""

    number: int
    offset: int
    slot: Slot
    run: int
    deadline_ns: int | None


class Leases:
    """The live leases of one queue and group."""

    def __init__(self, facts: LaneFacts) -> None:
        self._facts = facts
        self._at: dict[int, Lease] = {}  # by offset
        self._of: dict[Slot, dict[int, Lease]] = {}  # by key, then offset
        self._numbered: dict[int, Lease] = {}
        self.busy = Busy(facts)

    def at(self, offset: int) -> Lease | None:
        """The live lease of the message there."""
        return self._at.get(offset)

    def __len__(self) -> int:
        """How many there are."""
        return len(self._at)

    def __iter__(self) -> Iterator[Lease]:
        """All of them."""
        return iter(self._at.values())

    def alive(self, number: int, *, offset: int) -> bool:
        """True if that lease is alive."""
        lease = self._at.get(offset)
        return lease is not None and lease.number == number

    def ahead(self, slot: Slot, run: int) -> set[int]:
        """Offsets of *slot* in hand in the same run."""
        return {each.offset for each in self._of.get(slot, {}).values() if each.run == run}

    def any_of(self, slot: Slot) -> Lease | None:
        """One of the live leases of *slot*; None without any."""
        return next(iter(self._of.get(slot, {}).values()), None)

    def grant(self, event: Event, slot: Slot) -> bool:
        """A lease began; False if it goes on with a run that another one began."""
        number, offset, run = event["lease"], event["offset"], event.get("run")
        run = number if run is None else run
        others = self._of.setdefault(slot, {})
        for other in [each for each in others.values() if each.run != run or each.offset == offset]:
            self._facts.violation(
                "O3",
                f"{name_of(slot)}: offset {offset} was handed out as lease {number} while lease"
                f" {other.number} (offset {other.offset}) was alive",
            )
            self._drop(other, event["t_ns"])
        visible_ns = self._facts.rules.visibility_ns
        deadline_ns = None if visible_ns is None else _decided_ns(event) + visible_ns
        alone = not others
        others = self._of.setdefault(slot, {})
        lease = Lease(number, offset, slot, run, deadline_ns)
        if not self._at:
            self.busy.begin(event["t_ns"])
        self._at[offset] = others[offset] = self._numbered[number] = lease
        if self._facts.site is not None:
            self._facts.site.leases(1, event["t_ns"])
        return alone

    def extend(self, event: Event) -> None:
        """A lease runs on, and with it those of its run."""
        visible_ns, lease = self._facts.rules.visibility_ns, self._numbered.get(event["lease"])
        if visible_ns is None or lease is None or event.get("ms") is None:
            return
        deadline_ns = _decided_ns(event) + min(event["ms"] * 1_000_000, visible_ns)
        for each in self._of.get(lease.slot, {}).values():
            if each.run == lease.run and each.deadline_ns is not None:
                each.deadline_ns = max(each.deadline_ns, deadline_ns)

    def end(self, offset: int, number: int, t_ns: int) -> Lease | None:
        """It ended; None if it was not alive."""
        if not self.alive(number, offset=offset):
            return None
        lease = self._at[offset]
        self._drop(lease, t_ns)
        return lease

    def expire(self, event: Event) -> Lease | None:
        """It ended without its client's doing; None if it was not alive."""
        lease, t_ns = self.end(event["offset"], event["lease"], event["t_ns"]), event["t_ns"]
        if lease is not None and lease.deadline_ns is not None:
            early_ns = lease.deadline_ns - t_ns
            if early_ns > ns(self._facts.limits.early_s):
                self._facts.violation(
                    "R2",
                    f"lease {lease.number} (offset {lease.offset}) expired {early_ns / NS:.1f} s"
                    " before its deadline",
                )
            self.overdue(lease, t_ns)
        return lease

    def overdue(self, lease: Lease, t_ns: int) -> None:
        """X1 if *lease* is alive at *t_ns*, long after its deadline."""
        facts, deadline_ns = self._facts, lease.deadline_ns
        if deadline_ns is None or not facts.calm.during(deadline_ns) or facts.deleted:
            return
        if t_ns - deadline_ns > ns(facts.limits.lease_s):
            late_s = (t_ns - deadline_ns) / NS
            facts.violation(
                "X1",
                f"lease {lease.number} (offset {lease.offset}) was not ended {late_s:.1f} s after"
                " its deadline",
            )

    def judge_end(self, t_ns: int) -> None:
        """The histories end."""
        for lease in self._at.values():
            self.overdue(lease, t_ns)
        deadlines = [t_ns if each.deadline_ns is None else each.deadline_ns for each in self]
        self.busy.end(min(t_ns, max(deadlines, default=t_ns)))

    def clear(self, t_ns: int) -> list[Lease]:
        """The period is over: all end. Returns them."""
        ended = list(self._at.values())
        for lease in ended:
            self._drop(lease, t_ns)
        return ended

    def _drop(self, lease: Lease, t_ns: int) -> None:
        if self._at.get(lease.offset) is lease:
            del self._at[lease.offset]
            if not self._at:
                self.busy.end(min(t_ns, lease.deadline_ns or t_ns))
        if self._numbered.get(lease.number) is lease:
            del self._numbered[lease.number]
        others = self._of.get(lease.slot, {})
        others.pop(lease.offset, None)
        if not others:
            self._of.pop(lease.slot, None)
        if self._facts.site is not None:
            self._facts.site.leases(-1, t_ns)
