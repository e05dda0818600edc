"""O1, O2, O4, D2 to D5 and the part of D1 about deliveries, judged by the proxies' events."""

from __future__ import annotations

from proxy.history.attempts import Attempts, Unfinished
from proxy.history.demand import Demands
from proxy.history.durability import Durability
from proxy.history.facts import (
    DELIVERED,
    DURABLE,
    FINISHED,
    HANDLED,
    STARTED,
    LaneFacts,
    OffsetFlags,
    Slot,
    lower,
    name_of,
    outcome_in,
)
from proxy.history.group_progress import GroupProgress
from proxy.history.leases import Lease, Leases
from proxy.history.limits import ns
from proxy.history.progress import Progress
from proxy.history.reader import Event


class Deliveries:
    """Deliveries, leases and finishes of one queue and group.

    A finish is volatile until a commit or an ownership record covers it: after a crash the next
    owner may deliver the message again. It is then unfinished again, so everything is judged again
    within that ownership period.
    """

    def __init__(self, facts: LaneFacts, demands: Demands) -> None:
        self._facts = facts
        self.duplicates = 0
        self.changed = 0
        self.leases = Leases(facts)
        self.durability = Durability(facts)
        self._attempts = Attempts(facts)
        self._open: dict[Slot, set[int]] = {}  # offsets delivered and not finished
        self._unfinished: dict[int, Unfinished] = {}  # the same, by offset
        self._first_out: dict[int, int] = {}  # the same: time of the first delivery
        self.group_progress = GroupProgress(facts, demands, self._open, self.leases.busy)
        self.progress = Progress(facts, self.group_progress, self._first_out, self._open)
        self._acked: set[int] = set()  # accepted verdicts without a finish so far
        self._highest: dict[str, int] = {}  # by key, delivered in this period
        self._highest_before: dict[str, int] = {}  # in earlier periods
        self._finished_now = OffsetFlags()  # in this period
        self._finished_before = OffsetFlags()  # in the previous period
        self._handed_over = False  # the previous period ended by a hand-over without faults

    @property
    def keys(self) -> set[str]:
        """Order keys seen."""
        return self._highest.keys() | self._highest_before.keys()

    @property
    def lowest_open(self) -> int | None:
        """The lowest offset delivered and not finished. O(unfinished)."""
        return min(self._unfinished, default=None)

    def unfinished_in(self, offsets: range) -> list[int]:
        """Return the delivered and unfinished ones of *offsets*, rising. O(unfinished)."""
        return sorted(each for each in self._unfinished if each in offsets)

    def unfinished(self, offset: int) -> Unfinished | None:
        """Return the message at *offset* if it was delivered and has not finished."""
        return self._unfinished.get(offset)

    def settled(self, offset: int) -> bool:
        """Return True if the current owner need not finish the message any more."""
        return bool(self._finished_now.get(offset) or self._facts.flags.get(offset) & DURABLE)

    def new_period(self, t_ns: int, *, handed_over: bool, leased: bool) -> None:
        """Begin an ownership period; no lease outlives the previous one.

        Args:
            t_ns: Start of the period.
            handed_over: The previous period ended by a hand-over without faults.
            leased: Leases were alive when it ended.
        """
        self.end_all_leases(t_ns)
        self._handed_over = handed_over
        self.durability.new_period(self._facts.epoch)
        self._attempts.new_period(self._unfinished.values(), clean=handed_over and not leased)
        for key, offset in self._highest.items():
            self._highest_before[key] = max(offset, self._highest_before.get(key, -1))
        self._highest = {}
        self._acked.clear()
        self._finished_before, self._finished_now = self._finished_now, OffsetFlags()
        slots = {offset: each.slot for offset, each in self._unfinished.items()}
        self.progress.new_period(slots, self._facts.serves_from_ns)
        self.group_progress.new_period(slots, t_ns)

    def end_all_leases(self, t_ns: int) -> bool:
        """End all leases because the queue was released; return True if one was alive."""
        ended = self.leases.clear(t_ns)
        self.group_progress.cut(ended, t_ns)
        for lease in ended:
            self._facts.excuse(lease.offset, lease.number)
        return bool(ended)

    def close_known(self, *, below: int) -> None:
        """Close messages below *below* that have finished once: the new owner knows it."""
        for offset in list(self._unfinished):
            if offset < below and self._facts.flags.get(offset) & FINISHED:
                self._close(offset)

    def close_unwanted(self) -> None:
        """Close messages whose tag the rules of a new owner exclude: it does not read them."""
        if (tags := self._facts.rules.tags) is None:
            return
        for offset, message in list(self._unfinished.items()):
            if message.tag is not None and message.tag not in tags:
                self._close(offset)
                self.progress.waits(offset)

    def rules_changed(self) -> None:
        """Allow one more delivery of messages that exceed a lowered limit."""
        self._attempts.rules_changed(self._unfinished.values())

    def reset(self, to: int, t_ns: int) -> None:
        """Move the group to offset *to* for an operator: earlier reads no longer count, and
        messages from *to* on may come again.
        """
        self._facts.flags.forget(begin=to, kept=STARTED | HANDLED)
        for table in (self._open, self._unfinished, self._first_out, self._highest_before):
            table.clear()
        self._highest.clear()
        self._acked.clear()
        self._finished_now, self._finished_before = OffsetFlags(), OffsetFlags()
        self.durability.reset()
        self.progress.new_period({}, 0)
        self.group_progress.reset(t_ns)

    def redriven(self, key: str | None, *, started: bool, at_ns: int) -> None:
        """Begin or stop the redrive of the copies of *key* (None: all); a redrive resets their
        attempts.
        """
        for offset, message in self._unfinished.items():
            if key is None or message.slot == key:
                self.progress.waits(offset)
                if started:
                    message.reset_attempts(at_ns=at_ns)

    def retry_now(self, event: Event) -> None:
        """Make a failed message ready at once; the event may also reset its attempts."""
        message = self._unfinished.get(event["offset"])
        if message is not None:
            if event["anew"]:
                message.reset_attempts()
            self.progress.ended(event["offset"], message.slot, event["t_ns"])

    # ---- deliveries ------------------------------------------------------------------------------

    def deliver(self, event: Event, tag: str | None = None) -> None:
        """Record a delivery of a message with *tag*."""
        offset, order = event["offset"], event["order"]
        self._judge_again(offset, self._facts.flags.get(offset))
        head = self.leases.grant(event, offset if order is None else order)
        self._facts.lapsed.discard(offset)
        together: set[int] = set()
        if order is not None:
            run = event.get("run")
            together = self.leases.ahead(order, event["lease"] if run is None else run)
        message = self._count_delivery(event, head=head, together=together, tag=tag)
        message.tagged(tag)
        if message.failed_action:
            self._facts.violation(
                "D2", f"offset {offset} was delivered although an action had failed on it"
            )

    def action_failed(self, event: Event) -> None:
        """Record an action that failed on a job before its delivery; it counts as a failed
        delivery.
        """
        offset, order = event["offset"], event["order"]
        self._judge_again(offset, self._facts.flags.get(offset))
        slot: Slot = offset if order is None else order
        if (other := self.leases.any_of(slot)) is not None:
            self._facts.violation(
                "O3",
                f"{name_of(slot)}: an action looked at offset {offset} while lease {other.number}"
                f" (offset {other.offset}) was alive",
            )
        message = self._count_delivery(event, head=True, together=set())
        message.fails_at_action(failed=True)
        self._retry(offset, slot, event)

    def allow_failed_again(self) -> None:
        """Allow again messages on which an action failed, as the rules may have changed.
        O(unfinished).
        """
        for message in self._unfinished.values():
            message.fails_at_action(failed=False)

    def _count_delivery(
        self, event: Event, *, head: bool, together: set[int], tag: str | None = None
    ) -> Unfinished:
        """Record a counted delivery of a message with *tag*, behind those *together* with it in its
        run.
        """
        offset, order, t_ns = event["offset"], event["order"], event["t_ns"]
        slot: Slot = offset if order is None else order
        flags = self._facts.flags.get(offset)
        if order is not None:
            self._judge_order(offset, order, flags, together, late=self._facts.left_out(tag))
        message = self._unfinished.get(offset)
        if message is not None and message.slot != slot:
            self._rekey(offset, message, slot)
        if message is None:
            message = self._unfinished[offset] = Unfinished(slot, origin=event.get("origin_offset"))
            self._first_out[offset] = t_ns
            self._open.setdefault(slot, set()).add(offset)
            most = self._facts.rules.max_jobs
            if most is not None and len(self.leases) > max(most, self._facts.jobs_before):
                self._facts.violation(
                    "N2",
                    f"offset {offset} is leased message number {len(self.leases)}, the limit in"
                    f" memory is {most}",
                )
        self._attempts.delivered(
            offset,
            message,
            event["attempt"],
            t_ns=t_ns,
            finished=bool(flags & FINISHED) or offset < self._facts.kept,
        )
        self.progress.delivered(
            offset,
            slot,
            head=head,
            first=not flags & DELIVERED,
            t_ns=t_ns,
            at_ns=event.get("at_ns") or t_ns + ns(self._facts.limits.early_s),
        )
        self.duplicates += bool(flags & FINISHED)
        self._facts.flags.add(offset, DELIVERED)
        return message

    def _rekey(self, offset: int, message: Unfinished, slot: Slot) -> None:
        """Move a message to the slot of another order key, by a switch unknown to the previous
        owner.
        """
        self._open[message.slot].discard(offset)
        if not self._open[message.slot]:
            del self._open[message.slot]
        message.rekey(slot)
        self._open.setdefault(slot, set()).add(offset)

    def _judge_again(self, offset: int, flags: int) -> None:
        """Judge the delivery of a message that may have finished, to the knowledge of its owner."""
        facts = self._facts
        if offset in facts.deleted_offsets:
            facts.violation("D1", f"offset {offset} was delivered, and had been deleted unread")
        if self._finished_now.get(offset):
            facts.violation("D1", f"offset {offset} was delivered again after it had finished")
        elif offset < facts.committed:
            known = "finished and committed" if flags & FINISHED else "committed unfinished"
            invariant = "D1" if flags & FINISHED else "C2"
            facts.violation(invariant, f"offset {offset} was delivered after it had been {known}")
        elif self._handed_over and self._finished_before.get(offset) and not facts.records_damaged:
            facts.violation(
                "D5", f"offset {offset} had finished, and was delivered again after a clean end"
            )
        elif flags & FINISHED and flags & DURABLE:
            facts.violation(
                "D4", f"offset {offset} was delivered again; its finish had been recorded"
            )

    def _judge_order(
        self, offset: int, key: str, flags: int, together: set[int], *, late: bool
    ) -> None:
        """*late*: former tags may have left the message out."""
        open_offsets = self._open.get(key)
        for unfinished in lower(open_offsets, offset):
            if unfinished not in together:
                self._facts.violation(
                    "O2",
                    f"{name_of(key)}: offset {offset} was delivered before {unfinished} finished",
                )
        now = self._highest.get(key, -1)
        before = -1 if flags & DELIVERED or late else self._highest_before.get(key, -1)
        if offset < max(now, before) and not (open_offsets and offset in open_offsets):
            if not flags & DELIVERED:
                self._facts.violation(
                    "O1", f"{name_of(key)}: offset {offset} was delivered after {max(now, before)}"
                )
            elif not self._finished_now.get(offset):  # a case of D1
                self._facts.violation(
                    "O4", f"{name_of(key)}: offset {offset} was repeated after {now}"
                )
        if offset > now:
            self._highest[key] = offset

    # ---- ends -----------------------------------------------------------------------------------

    def finish(self, event: Event) -> None:
        """Record the end of a job."""
        offset, outcome, t_ns = event["offset"], event["outcome"], event["t_ns"]
        self._judge_outcome(offset, outcome)
        if outcome == "filtered":
            self._judge_filter(offset, event.get("by"))
        if (closed := self._close(offset)) is not None:
            message, out_ns = closed
            if (lease := self.leases.at(offset)) is not None:
                self.leases.end(offset, lease.number, t_ns)
            self.progress.finished(offset, message.slot, out_ns=out_ns, t_ns=t_ns)
        self._finished_now.add(offset, 1)
        self._facts.flags.finish(offset, outcome)
        self.durability.finished(offset, t_ns)

    def _close(self, offset: int) -> tuple[Unfinished, int] | None:
        """Remove an unfinished message; return it and the time of its first delivery."""
        message = self._unfinished.pop(offset, None)
        if message is None:
            return None
        open_offsets = self._open[message.slot]
        open_offsets.discard(offset)
        if not open_offsets:
            del self._open[message.slot]
        return message, self._first_out.pop(offset)

    def _judge_outcome(self, offset: int, outcome: str) -> None:
        facts, flags = self._facts, self._facts.flags.get(offset)
        former = outcome_in(flags)
        differs = bool(former) and former != outcome
        if self._finished_now.get(offset):
            if former == outcome == "deleted":
                return  # found by the reader, and when the chain of a spilled message needs it
            if differs:
                facts.violation("D3", f"offset {offset} finished as {former}, then as {outcome}")
            else:
                facts.violation("D1", f"offset {offset} finished twice")
            return
        if offset < facts.committed and not flags & FINISHED:
            facts.violation("C2", f"offset {offset} was committed before it finished")
        if differs and (flags & DURABLE or offset < facts.committed):
            facts.violation(
                "D3", f"offset {offset} durably finished as {former}, then as {outcome}"
            )
        elif differs:
            self.changed += 1
        if outcome == "ok":
            if offset not in self._acked:
                facts.violation("D2", f"offset {offset} finished without an accepted ack")
            self._acked.discard(offset)

    def _judge_filter(self, offset: int, by: str | None) -> None:
        """Report D2 if *by* is known and is no filter of the group, or if an action failed on the
        message.
        """
        rules, message = self._facts.rules.filters, self._unfinished.get(offset)
        if by is not None and rules is not None and by not in rules:
            self._facts.violation(
                "D2", f"offset {offset} was filtered by {by}, which is not a filter of its group"
            )
        elif message is not None and message.failed_action:
            self._facts.violation(
                "D2", f"offset {offset} was filtered although an action had failed on it"
            )

    def ack_ok(self, event: Event) -> None:
        """Record an accepted verdict."""
        offset, number, outcome = event["offset"], event["lease"], event["outcome"]
        if outcome == "ok":
            self._acked.add(offset)
        lease = self.leases.end(offset, number, event["t_ns"])
        if lease is None:
            self._facts.violation(
                "W3", f"a verdict was accepted for lease {number}, which was not alive"
            )
        elif outcome == "defer":
            self._free(lease, event["t_ns"])
        elif outcome == "retry":
            self._retry(lease.offset, lease.slot, event)

    def _retry(self, offset: int, slot: Slot, event: Event) -> None:
        """Record a failure; the message is due after a retry interval."""
        message, intervals = self._unfinished.get(offset), self._facts.rules.retry_ms
        self._failed(offset, event["t_ns"])
        delay_ms = event.get("after_ms")
        if delay_ms is None and message is not None and intervals:
            delay_ms = intervals[min(max(message.shown, 1), len(intervals)) - 1]
        if delay_ms is not None:
            decided_ns = event.get("at_ns") or event["t_ns"]
            self.progress.retry_at(offset, slot, decided_ns + delay_ms * 1_000_000)

    def _failed(self, offset: int, t_ns: int) -> None:
        if (message := self._unfinished.get(offset)) is not None:
            message.failed_ns.append(t_ns)

    def expire(self, event: Event) -> None:
        """Record a lease that ended without a verdict. One that ended while the proxy stood still
        does not count as an attempt.
        """
        if (lease := self.leases.expire(event)) is None:
            return
        self._facts.excuse(lease.offset, lease.number)
        if event.get("counted", True):
            self._failed(lease.offset, event["t_ns"])
            self.progress.ended(lease.offset, lease.slot, event["t_ns"])
        else:
            self._free(lease, event["t_ns"])

    def revoke(self, event: Event) -> None:
        """Record a lease that an operator ended before its deadline."""
        lease = self.leases.end(event["offset"], event["lease"], event["t_ns"])
        if lease is not None:
            self._failed(lease.offset, event["t_ns"])
            self._facts.excuse(lease.offset, lease.number)
            self.progress.ended(lease.offset, lease.slot, event["t_ns"])

    def unsent(self, event: Event) -> None:
        """Record leases of an answer that was never written; they do not count as attempts."""
        lease = self.leases.end(event["offset"], event["lease"], event["t_ns"])
        if lease is not None:
            self._free(lease, event["t_ns"])

    def _free(self, lease: Lease, t_ns: int) -> None:
        if (message := self._unfinished.get(lease.offset)) is not None:
            self._attempts.refunded(message)
        self.progress.ended(lease.offset, lease.slot, t_ns)
