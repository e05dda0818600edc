"""N1, N3, N4 and R1: ready messages are delivered soon while pulls wait, and no retry too early.

All but "too early" is timed: judged while no fault is active, and only by the time in which pulls
waited at the queue's owner, since nothing can be delivered without a pull.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import chain

from proxy.history.facts import LaneFacts, Slot, name_of
from proxy.history.group_progress import GroupProgress
from proxy.history.limits import NS, ns


@dataclass(slots=True)
class _Due:
    """A message delivered before and not leased now, with the time at which it became ready."""

    invariant: str
    ready_ns: int
    slot: Slot
    early_ns: int = 0  # no delivery before


class Progress:
    """Ready messages of one queue and group."""

    def __init__(
        self,
        facts: LaneFacts,
        group_progress: GroupProgress,
        first_out: dict[int, int],
        by_slot: dict[Slot, set[int]],
    ) -> None:
        """Share unfinished delivered messages; *group_progress* receives the same events.

        Args:
            facts: State of the queue.
            group_progress: Checks of N5 and N6.
            first_out: Time of the first delivery, by offset.
            by_slot: Offsets by slot.
        """
        self._facts = facts
        self._group_progress = group_progress
        self._first_out = first_out
        self._by_slot = by_slot
        self._due: dict[int, _Due] = {}
        self._was_stuck: deque[tuple[int, int, int]] = deque(maxlen=8)  # start and end
        self._idle: dict[str, tuple[int, int]] = {}  # key → start, highest offset sent then

    def new_period(self, unfinished: dict[int, Slot], t_ns: int) -> None:
        """Begin an ownership period with the *unfinished* messages."""
        self._idle.clear()
        self._due = {offset: _Due("N3", t_ns, slot) for offset, slot in unfinished.items()}

    def ended(self, offset: int, slot: Slot, t_ns: int) -> None:
        """Note that a lease ended without finishing its message, which is ready again."""
        self._due[offset] = _Due("N3", t_ns, slot)
        self._group_progress.ready(offset, slot, t_ns)

    def retry_at(self, offset: int, slot: Slot, due_ns: int) -> None:
        """Note that a message failed and is ready again at *due_ns*, not before."""
        self._due[offset] = _Due("R1", due_ns, slot, due_ns)
        self._group_progress.ready(offset, slot, due_ns)

    def waits(self, offset: int) -> None:
        """Note that a message is parked and not ready until a redrive."""
        self._due.pop(offset, None)
        self._group_progress.waits(offset)

    def finished(self, offset: int, slot: Slot, *, out_ns: int, t_ns: int) -> None:
        """Note that a message, first delivered at *out_ns*, has finished; its successor
        is ready.
        """
        if t_ns - out_ns >= ns(self._facts.limits.isolation_s):
            self._was_stuck.append((offset, out_ns, t_ns))
        self._group_progress.finished(offset, slot, t_ns)
        self._due.pop(offset, None)
        behind = self._by_slot.get(slot)
        for each in behind or ():
            if (due := self._due.get(each)) is not None:
                due.ready_ns = max(due.ready_ns, t_ns)
        if not behind and isinstance(slot, str):
            self._idle[slot] = (t_ns, self._facts.sent.last)

    def delivered(
        self, offset: int, slot: Slot, *, head: bool, first: bool, t_ns: int, at_ns: int
    ) -> None:
        """Judge the delivery of a message.

        Args:
            offset: Its offset.
            slot: Its slot.
            head: It is the first of its run.
            first: It was never delivered before.
            t_ns: Time of the event.
            at_ns: Time of the decision.
        """
        self._group_progress.delivered(offset, slot, head=head, first=first, t_ns=t_ns)
        due = self._due.pop(offset, None)
        if not head:
            return
        if due is not None:
            if at_ns < due.early_ns:
                self._facts.violation(
                    "R1",
                    f"{name_of(slot)}: offset {offset} was delivered"
                    f" {_seconds(due.early_ns - at_ns)} before its retry was due",
                )
            self._judge(due.invariant, offset, slot, since_ns=due.ready_ns, t_ns=t_ns)
        elif first:
            self._judge_first(offset, slot, t_ns)
        if isinstance(slot, str):
            self._idle.pop(slot, None)

    def judge_undelivered(self, offset: int, key: str | None, t_ns: int) -> None:
        """Judge a message that was not delivered by *t_ns* or later; *key* is that of its send."""
        open_slots = {due.slot for due in self._due.values()}
        if self._facts.rules.order_key == "KEY" and key is not None:
            if key not in open_slots:
                self._judge_first(offset, key, t_ns)
        elif not open_slots and not self._first_out:
            self._judge_first(offset, offset, t_ns)

    def end(self, t_ns: int) -> None:
        """Judge the messages still due when the owner stops delivering."""
        for offset, due in self._due.items():
            if offset == min(self._by_slot[due.slot]):
                self._judge(due.invariant, offset, due.slot, since_ns=due.ready_ns, t_ns=t_ns)

    def _judge_first(self, offset: int, slot: Slot, t_ns: int) -> None:
        sent_ns = self._facts.sent.of(offset)
        if sent_ns is None:
            return
        since_ns = self._facts.tags_changed_ns
        idle = self._idle.get(slot) if isinstance(slot, str) else None
        if idle is not None:
            since_ns = max(since_ns, idle[0])
        if idle is not None and offset <= idle[1]:
            self._judge("N4", offset, slot, since_ns=since_ns, t_ns=t_ns)
        else:
            self._judge("N3", offset, slot, since_ns=max(since_ns, sent_ns), t_ns=t_ns)

    def _judge(self, invariant: str, offset: int, slot: Slot, *, since_ns: int, t_ns: int) -> None:
        facts = self._facts
        calm_ns = facts.faults.calm_since
        if calm_ns is None or facts.clock is None or not facts.rules.known or facts.deleted:
            return
        since_ns = max(since_ns, calm_ns, facts.serves_from_ns, facts.resumed_ns.get(None, 0))
        since_ns = max(since_ns, facts.keys_settled_ns)
        if isinstance(slot, str):
            since_ns = max(since_ns, facts.resumed_ns.get(slot, 0))
        if facts.key_since is not None:
            return  # it may wait for messages that have its key by another rule
        if None in facts.paused or slot in facts.paused:
            return  # it is paused
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
        """Return another message that was delivered and unfinished for *span_ns* in that time."""
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
