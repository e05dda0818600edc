"""O3, W3, R2 and the timed part of X1: one live lease per key, ended by its verdict or deadline."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from proxy.history.busy_times import BusyTimes
from proxy.history.facts import LaneFacts, Slot, name_of
from proxy.history.limits import NS, ns
from proxy.history.reader import Event


def _decided_ns(event: Event) -> int:
    """Return the time of the decision; the event may be written later by a stopped process."""
    decided_ns: int | None = event.get("at_ns")
    return event["t_ns"] if decided_ns is None else decided_ns


@dataclass(slots=True)
class Lease:
    """A live lease. All leases of one ordered run have the same ``run``."""

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
        self.busy = BusyTimes(facts)

    def at(self, offset: int) -> Lease | None:
        """Return the live lease of the message at *offset*."""
        return self._at.get(offset)

    def __len__(self) -> int:
        """Number of live leases."""
        return len(self._at)

    def __iter__(self) -> Iterator[Lease]:
        """Iterate over the live leases."""
        return iter(self._at.values())

    def alive(self, number: int, *, offset: int) -> bool:
        """Return True if lease *number* of *offset* is alive."""
        lease = self._at.get(offset)
        return lease is not None and lease.number == number

    def ahead(self, slot: Slot, run: int) -> set[int]:
        """Return the leased offsets of *slot* in the same run."""
        return {each.offset for each in self._of.get(slot, {}).values() if each.run == run}

    def any_of(self, slot: Slot) -> Lease | None:
        """Return a live lease of *slot*, or None."""
        return next(iter(self._of.get(slot, {}).values()), None)

    def grant(self, event: Event, slot: Slot) -> bool:
        """Begin a lease; return False if it continues a run."""
        number, offset, run = event["lease"], event["offset"], event.get("run")
        run = number if run is None else run
        others = self._of.setdefault(slot, {})
        for other in [each for each in others.values() if each.run != run or each.offset == offset]:
            self._facts.violation(
                "O3",
                f"{name_of(slot)}: offset {offset} was delivered as lease {number} while lease"
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
        """Extend a lease and those of its run."""
        visible_ns, lease = self._facts.rules.visibility_ns, self._numbered.get(event["lease"])
        if visible_ns is None or lease is None or event.get("ms") is None:
            return
        deadline_ns = _decided_ns(event) + min(event["ms"] * 1_000_000, visible_ns)
        for each in self._of.get(lease.slot, {}).values():
            if each.run == lease.run and each.deadline_ns is not None:
                each.deadline_ns = max(each.deadline_ns, deadline_ns)

    def end(self, offset: int, number: int, t_ns: int) -> Lease | None:
        """End a lease and return it; None if it was not alive."""
        if not self.alive(number, offset=offset):
            return None
        lease = self._at[offset]
        self._drop(lease, t_ns)
        return lease

    def expire(self, event: Event) -> Lease | None:
        """End a lease without a verdict and return it; None if it was not alive."""
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
        """Report X1 if *lease* is still alive at *t_ns*, long after its deadline."""
        facts, deadline_ns = self._facts, lease.deadline_ns
        if deadline_ns is None or not facts.faults.none_since(deadline_ns) or facts.deleted:
            return
        if t_ns - deadline_ns > ns(facts.limits.lease_s):
            late_s = (t_ns - deadline_ns) / NS
            facts.violation(
                "X1",
                f"lease {lease.number} (offset {lease.offset}) was not ended {late_s:.1f} s after"
                " its deadline",
            )

    def judge_end(self, t_ns: int) -> None:
        """Judge the live leases at the end of the histories."""
        for lease in self._at.values():
            self.overdue(lease, t_ns)
        deadlines = [t_ns if each.deadline_ns is None else each.deadline_ns for each in self]
        self.busy.end(min(t_ns, max(deadlines, default=t_ns)))

    def clear(self, t_ns: int) -> list[Lease]:
        """End all leases at the end of the period, and return them."""
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
