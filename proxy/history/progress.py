"""N1, N3, N4 and R1: what is ready comes soon while somebody waits for it, and no retry too soon.

All but "too soon" is timed: judged while no fault is at work, by the time that pulls waited at the
queue's owner, for without a pull nothing can be handed out.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import chain

from proxy.history.facts import LaneFacts, Slot, name_of
from proxy.history.limits import NS, ns
from proxy.history.wanted import Wanted


@dataclass(slots=True)
class _Due:
    """A message handed out before, not in hand now, and since when it is ready."""

    invariant: str
    ready_ns: int
    slot: Slot
    early_ns: int = 0  # no hand-out before


class Progress:
    """Ready messages of one queue and group."""

    def __init__(
        self,
        facts: LaneFacts,
        wanted: Wanted,
        first_out: dict[int, int],
        by_slot: dict[Slot, set[int]],
    ) -> None:
        """The unfinished messages that were handed out: when that was first, and by their slots.
        *wanted* is told the same as this.
        """
        self._facts = facts
        self._wanted = wanted
        self._first_out = first_out
        self._by_slot = by_slot
        self._due: dict[int, _Due] = {}
        self._was_stuck: deque[tuple[int, int, int]] = deque(maxlen=8)  # from when until when
        self._idle: dict[str, tuple[int, int]] = {}  # key → since when, highest offset sent then

    def new_period(self, unfinished: dict[int, Slot], t_ns: int) -> None:
        """Another owner offers what is *unfinished*."""
        self._idle.clear()
        self._due = {offset: _Due("N3", t_ns, slot) for offset, slot in unfinished.items()}

    def ended(self, offset: int, slot: Slot, t_ns: int) -> None:
        """A lease ended and left the message unfinished: it is ready again."""
        self._due[offset] = _Due("N3", t_ns, slot)
        self._wanted.ready(offset, slot, t_ns)

    def retry_at(self, offset: int, slot: Slot, due_ns: int) -> None:
        """It failed: it is ready again at *due_ns*, and not before."""
        self._due[offset] = _Due("R1", due_ns, slot, due_ns)
        self._wanted.ready(offset, slot, due_ns)

    def waits(self, offset: int) -> None:
        """It is parked: nobody is to have it until it is redriven."""
        self._due.pop(offset, None)
        self._wanted.waits(offset)

    def finished(self, offset: int, slot: Slot, *, out_ns: int, t_ns: int) -> None:
        """It came to its end, first out at *out_ns*: what waits behind it has its turn."""
        if t_ns - out_ns >= ns(self._facts.limits.isolation_s):
            self._was_stuck.append((offset, out_ns, t_ns))
        self._wanted.finished(offset, slot, t_ns)
        self._due.pop(offset, None)
        behind = self._by_slot.get(slot)
        for each in behind or ():
            if (due := self._due.get(each)) is not None:
                due.ready_ns = max(due.ready_ns, t_ns)
        if not behind and isinstance(slot, str):
            self._idle[slot] = (t_ns, self._facts.sent.last)

    def handed_out(
        self, offset: int, slot: Slot, *, head: bool, first: bool, t_ns: int, at_ns: int
    ) -> None:
        """It is in hand; *at_ns* is when that was decided. *head*: behind no other one of its run;
        *first*: it never was before.
        """
        self._wanted.handed_out(offset, slot, head=head, first=first, t_ns=t_ns)
        due = self._due.pop(offset, None)
        if not head:
            return
        if due is not None:
            if at_ns < due.early_ns:
                self._facts.violation(
                    "R1",
                    f"{name_of(slot)}: offset {offset} was handed out"
                    f" {_seconds(due.early_ns - at_ns)} before its retry was due",
                )
            self._judge(due.invariant, offset, slot, since_ns=due.ready_ns, t_ns=t_ns)
        elif first:
            self._judge_first(offset, slot, t_ns)
        if isinstance(slot, str):
            self._idle.pop(slot, None)

    def never_came(self, offset: int, key: str | None, t_ns: int) -> None:
        """The message was not handed out until *t_ns*, nor later. *key* is that of its send."""
        open_slots = {due.slot for due in self._due.values()}
        if self._facts.rules.order_key == "KEY" and key is not None:
            if key not in open_slots:
                self._judge_first(offset, key, t_ns)
        elif not open_slots and not self._first_out:
            self._judge_first(offset, offset, t_ns)

    def end(self, t_ns: int) -> None:
        """The owner hands out no more: what is still due?"""
        for offset, due in self._due.items():
            if offset == min(self._by_slot[due.slot]):
                self._judge(due.invariant, offset, due.slot, since_ns=due.ready_ns, t_ns=t_ns)

    def _judge_first(self, offset: int, slot: Slot, t_ns: int) -> None:
        sent_ns = self._facts.sent.of(offset)
        if sent_ns is None:
            return
        idle = self._idle.get(slot) if isinstance(slot, str) else None
        if idle is not None and offset <= idle[1]:
            self._judge("N4", offset, slot, since_ns=idle[0], t_ns=t_ns)
        else:
            since_ns = sent_ns if idle is None else max(sent_ns, idle[0])
            self._judge("N3", offset, slot, since_ns=since_ns, t_ns=t_ns)

    def _judge(self, invariant: str, offset: int, slot: Slot, *, since_ns: int, t_ns: int) -> None:
        facts = self._facts
        calm_ns = facts.calm.since
        if calm_ns is None or facts.clock is None or not facts.rules.known or facts.deleted:
            return
        since_ns = max(since_ns, calm_ns, facts.serves_from_ns, facts.resumed_ns.get(None, 0))
        since_ns = max(since_ns, facts.keys_settled_ns)
        if isinstance(slot, str):
            since_ns = max(since_ns, facts.resumed_ns.get(slot, 0))
        if facts.key_since is not None:
            return  # it may wait for messages that have its key by another rule
        if None in facts.paused or slot in facts.paused:
            return  # it has no right to come
        limits = facts.limits
        limit_ns = ns(_LIMITS[invariant](limits))
        shortest_ns = min(limit_ns, ns(limits.isolation_s))
        if t_ns - since_ns <= shortest_ns:
            return
        waited_ns = facts.clock.at(t_ns) - facts.clock.at(since_ns)
        if waited_ns <= shortest_ns:
            return
        isolation_ns = ns(limits.isolation_s)
        stuck = self._stuck(offset, since_ns, t_ns, isolation_ns)
        if stuck is not None and waited_ns > isolation_ns:
            facts.violation(
                "N1",
                f"{name_of(slot)}: offset {offset} was ready for {_seconds(waited_ns)} while pulls"
                f" waited, and offset {stuck} of another key was stuck",
            )
        elif waited_ns > limit_ns:
            facts.violation(
                invariant,
                f"{name_of(slot)}: offset {offset} was ready for {_seconds(waited_ns)} while pulls"
                " waited",
            )

    def _stuck(self, offset: int, since_ns: int, t_ns: int, span_ns: int) -> int | None:
        """Another message that was out and unfinished for so long meanwhile."""
        now = ((other, out_ns, t_ns) for other, out_ns in self._first_out.items())
        for other, out_ns, end_ns in chain(self._was_stuck, now):
            if other != offset and end_ns - max(out_ns, since_ns) >= span_ns:
                return other
        return None


_LIMITS = {
    "N3": lambda limits: limits.delivery_s,
    "N4": lambda limits: limits.successor_s,
    "R1": lambda limits: limits.retry_s,
}


def _seconds(span_ns: int) -> str:
    return f"{span_ns / NS:.1f} s"
