"""N5 and N6: ready messages reach a waiting pull for their topic, at any proxy of the group.

N3 and N4 judge a queue's owner by the pulls that wait there. N5 and N6 judge the group by pulls at
any of its proxies, whether or not the queue has an owner. A late delivery is a *suspect* until the
end of the histories, when the demand is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from proxy.history.busy_times import BusyTimes
from proxy.history.demand import FOREVER_NS, Demands
from proxy.history.facts import FINISHED, LaneFacts, Slot, name_of
from proxy.history.leases import Lease
from proxy.history.limits import NS, ns
from proxy.history.parking import is_twin

#: Period for which only the worst suspect is kept, ns.
_EACH_NS = 10 * NS


@dataclass(slots=True)
class _Free:
    """A message that was delivered, is not leased, and has been ready since *since_ns*."""

    slot: Slot
    since_ns: int


@dataclass(frozen=True, slots=True)
class _Suspect:
    offset: int
    slot: Slot
    since_ns: int
    until_ns: int
    invariant: str


class GroupProgress:
    """Ready messages of one queue and group, with any owner."""

    def __init__(
        self, facts: LaneFacts, demands: Demands, by_slot: Mapping[Slot, set[int]], busy: BusyTimes
    ) -> None:
        """*by_slot*: unfinished delivered messages; *busy*: times in which clients held messages
        without pulling more.
        """
        self._facts = facts
        self._demands = demands
        self._by_slot = by_slot
        self._busy = busy
        self._of_copies = is_twin(facts.queue)
        self._free: dict[int, _Free] = {}
        self._turn: dict[str, int] = {}  # time of the last finish, by key
        self._finished_ns = 0  # the same for any message
        self._floor_ns = 0  # earlier times do not count
        self._full_ns = -1  # last time at which the window was full
        self._owners: list[tuple[str, int, int]] = []
        self._owner: tuple[str, int] | None = None
        self._suspects: dict[tuple[int, str], _Suspect] = {}
        self._missing: dict[Slot | None, int] = {}  # at the end: lowest offset of each key

    # ---- while the history runs -----------------------------------------------------------------

    def owned(self, node: str, t_ns: int) -> None:
        """Note that *node* owns the queue."""
        self.disowned(t_ns)
        self._owner = node, t_ns
        self._demands.reads(self._facts.group, self._facts.topic)

    def disowned(self, t_ns: int) -> None:
        """Note that the owner released or lost the queue."""
        if self._owner is not None:
            self._owners.append((*self._owner, t_ns))
            self._owner = None

    def new_period(self, unfinished: Mapping[int, Slot], t_ns: int) -> None:
        """Begin an ownership period; no lease outlives the previous one."""
        self._free = {
            offset: self._free.get(offset) or _Free(slot, t_ns)
            for offset, slot in unfinished.items()
        }

    def cut(self, leases: Iterable[Lease], t_ns: int) -> None:
        """End *leases* with their period, or at their deadline if that was earlier."""
        for lease in leases:
            ended_ns = t_ns if lease.deadline_ns is None else min(t_ns, lease.deadline_ns)
            self._free[lease.offset] = _Free(lease.slot, ended_ns)

    def ready(self, offset: int, slot: Slot, since_ns: int) -> None:
        """Note that a lease ended without finishing its message, which is ready from
        *since_ns* on.
        """
        self._free[offset] = _Free(slot, since_ns)

    def waits(self, offset: int) -> None:
        """Note that a message must not be delivered for now."""
        self._free.pop(offset, None)

    def reset(self, t_ns: int) -> None:
        """Forget ready messages, after a reset of the group."""
        self._free.clear()
        self._turn.clear()
        self._floor_ns = t_ns

    def full(self, t_ns: int) -> None:
        """Note that the owner's window for the queue is full."""
        self._full_ns = t_ns

    def finished(self, offset: int, slot: Slot, t_ns: int) -> None:
        """Note that a message has finished; the next one of its key is ready."""
        self._free.pop(offset, None)
        for behind in self._by_slot.get(slot, ()):
            if (free := self._free.get(behind)) is not None:
                free.since_ns = max(free.since_ns, t_ns)
        if isinstance(slot, str):
            self._turn[slot] = t_ns
        self._finished_ns = t_ns

    def delivered(self, offset: int, slot: Slot, *, head: bool, first: bool, t_ns: int) -> None:
        """Judge a delivery. *head*: it is the first of its run; *first*: it was never delivered
        before.
        """
        free = self._free.pop(offset, None)
        if not head:
            return
        since_ns = free.since_ns if free is not None else None
        if free is None and first:
            since_ns = self._ready_first(offset, slot)
        if since_ns is None or t_ns - since_ns <= ns(self._facts.limits.demand_s):
            return  # the usual case
        since_ns = self._counts_from(slot, since_ns)
        if since_ns is None or t_ns - since_ns <= ns(self._facts.limits.demand_s):
            return
        invariant = self._invariant(since_ns)
        known = self._suspects.get((t_ns // _EACH_NS, invariant))
        if known is None or t_ns - since_ns > known.until_ns - known.since_ns:
            suspect = _Suspect(offset, slot, since_ns, t_ns, invariant)
            self._suspects[t_ns // _EACH_NS, invariant] = suspect

    # ---- at the end -----------------------------------------------------------------------------

    def judge_end(self, leases: Iterable[Lease]) -> None:
        """Judge all suspects and ready messages at the end of the histories, with
        *leases* alive.
        """
        self.disowned(FOREVER_NS)
        for suspect in self._suspects.values():
            self._judge(suspect)
        free = [(offset, each.slot, each.since_ns) for offset, each in self._free.items()]
        overdue = [
            (each.offset, each.slot, each.deadline_ns)
            for each in leases
            if each.deadline_ns is not None
        ]
        for offset, slot, since_ns in free + overdue:
            if offset == min(self._by_slot.get(slot, (-1,))):
                self._judge_unserved(offset, slot, since_ns)

    def missing(self, offset: int, key: str | None) -> None:
        """Note an unfinished message; *key* is that of its send. Called for all before
        ``judge_undelivered``.
        """
        for slot in {None, self._slot_of(key)}:
            self._missing[slot] = min(offset, self._missing.get(slot, offset))

    def judge_undelivered(self, offset: int, key: str | None) -> None:
        """Judge a message that was never delivered, if it is certainly the first of its key."""
        slot = self._slot_of(key)
        if self._missing.get(slot) != offset or self._facts.flags.get(offset) & FINISHED:
            return
        sent_ns = self._facts.sent.of(offset)
        if sent_ns is None:
            return
        if slot is not None:
            if slot not in self._by_slot:
                turn_ns = self._turn.get(slot, 0) if isinstance(slot, str) else 0
                self._judge_unserved(offset, slot, max(sent_ns, turn_ns))
        elif not self._by_slot:
            self._judge_unserved(offset, offset, max(sent_ns, self._finished_ns))

    def _slot_of(self, key: str | None) -> Slot | None:
        """Return the order key of a message; None if unknown."""
        return key if key and self._facts.rules.order_key == "KEY" else None

    def _ready_first(self, offset: int, slot: Slot) -> int | None:
        sent_ns = self._facts.sent.of(offset)
        if sent_ns is None:
            return None
        turn_ns = self._turn.get(slot, 0) if isinstance(slot, str) else 0
        return max(sent_ns, self._facts.tags_changed_ns, turn_ns)

    def _counts_from(self, slot: Slot, since_ns: int | None) -> int | None:
        """Return the time from which its wait counts; None if it does not."""
        facts = self._facts
        calm_ns = facts.faults.calm_since
        if since_ns is None or calm_ns is None or not facts.rules.known or facts.deleted:
            return None
        if self._of_copies:
            return None
        if facts.paused & {None, slot} or slot in facts.parked:
            return None
        keys = (None, slot) if isinstance(slot, str) else (None,)
        allowed = [facts.resumed_ns.get(key, 0) for key in keys]
        allowed += [facts.unparked_ns.get(key, 0) for key in keys if key is not None]
        open_ns = facts.keys_open_ns(slot)
        if open_ns is None:
            return None
        return max(since_ns, calm_ns, self._floor_ns, open_ns, *allowed)

    def _invariant(self, since_ns: int) -> str:
        return "N6" if self._full_ns >= since_ns else "N5"

    def _judge_unserved(self, offset: int, slot: Slot, since_ns: int) -> None:
        counts_ns = self._counts_from(slot, since_ns)
        if counts_ns is not None:
            invariant = self._invariant(counts_ns)
            self._judge(_Suspect(offset, slot, counts_ns, FOREVER_NS, invariant))

    def _judge(self, suspect: _Suspect) -> None:
        facts, span = self._facts, (suspect.since_ns, suspect.until_ns)
        owners = self._owners
        waited_ns = self._demands.waited_ns(facts.group, facts.topic, span, owners=owners)
        waited_ns -= self._busy.within(*span)
        if waited_ns <= ns(facts.limits.demand_s):
            return
        why = ", and the window of its queue was full" if suspect.invariant == "N6" else ""
        facts.violation(
            suspect.invariant,
            f"{name_of(suspect.slot)}: offset {suspect.offset} was ready for"
            f" {waited_ns / NS:.1f} s while pulls waited for its topic at some proxy{why}",
        )
