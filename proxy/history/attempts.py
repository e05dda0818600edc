"""D3b: hand-outs are counted when they happen, and no message has more of them than it may."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from proxy.history.facts import LaneFacts, Slot, name_of


@dataclass(slots=True)
class Unfinished:
    """A message handed out and not finished: its hand-outs, those that count."""

    slot: Slot
    handed_out: int = 0
    shown: int = 0  # what the last hand-out said
    sure: int = 0  # what its owner must know of them
    origin: int | None = None  # a copy's: where the message itself stands
    allowed: int = 0  # hand-outs, of rules that held before
    base: int = 0  # what the owner must have known at the beginning of its period
    failed_action: bool = False  # under the rules that hold
    out_ns: list[int] = field(default_factory=list)  # when, in this period
    failed_ns: list[int] = field(default_factory=list)  # when they had failed
    before: int = 0  # what ``shown`` was when it began anew
    anew_ns: int = 0  # and when that was, if perhaps no record says so

    def fails_at_action(self, *, failed: bool) -> None:
        """Whether an action *failed* on it, under the rules that hold."""
        self.failed_action = failed

    def rekey(self, slot: Slot) -> None:
        """Another order key holds for it."""
        self.slot = slot

    def begin_anew(self, *, at_ns: int = 0) -> None:
        """Its hand-outs until now count no longer. *at_ns*: it is redriven, which the next record
        of its owner says; 0: a record says so already.
        """
        self.before, self.anew_ns = (self.shown, at_ns) if at_ns else (0, 0)
        self.handed_out = self.shown = self.sure = self.base = 0
        self.out_ns.clear()
        self.failed_ns.clear()


class Attempts:
    """The ``attempt`` of each hand-out. Only one handed back unhandled, or never sent, is free.

    A new owner after a crash may know fewer than there were: it knows what a record says, and a
    hand-out stands in one once it has failed.
    """

    def __init__(self, facts: LaneFacts) -> None:
        self._facts = facts
        self._changed = False  # the rules, in this period or with it

    def new_period(self, messages: Iterable[Unfinished], *, clean: bool) -> None:
        """Another owner, who knows what the facts say; O(unfinished)."""
        self._changed = False
        for message in messages:
            out = len(message.out_ns)
            known = out if clean else sum(t_ns <= self._facts.known_ns for t_ns in message.out_ns)
            if known:
                failed = known if clean or known < out else known - 1
                if not clean:  # of one that failed later the record knew nothing
                    in_time = sum(t_ns <= self._facts.known_ns for t_ns in message.failed_ns)
                    failed = min(failed, in_time)
                message.sure = max(message.base, message.shown - out + failed)
            elif out:
                message.sure = message.base
            message.base = message.sure
            if message.anew_ns > self._facts.known_ns and not clean:
                # Its owner may know of nothing but what was before.
                message.shown = max(message.shown, message.before)
            message.anew_ns = 0
            message.out_ns.clear()
            message.failed_ns.clear()

    def rules_changed(self, messages: Iterable[Unfinished]) -> None:
        """A lower limit of hand-outs counts from the next failure on; O(unfinished)."""
        self._changed = True
        for message in messages:
            message.allowed = message.shown + 1

    def handed_out(
        self, offset: int, message: Unfinished, attempt: int, *, t_ns: int, finished: bool
    ) -> None:
        """*message* goes out; *finished*: it had finished under an owner before, and nobody knows
        any more how.
        """
        message.handed_out += 1
        forgotten = finished and message.handed_out == 1
        if not forgotten and not message.sure < attempt <= message.shown + 1:
            known = "" if message.sure == message.shown else f", at least {message.sure} known"
            self._wrong(offset, message, f"said attempt {attempt} after {message.shown}{known}")
        if forgotten and self._changed:  # its owner knew of more, and may have had a higher limit
            message.allowed = attempt
        most = self._facts.rules.max_deliveries
        if most is not None and attempt > max(most, message.allowed):
            self._wrong(offset, message, f"was handed out {attempt} times, {most} are allowed")
        message.shown = message.sure = attempt
        message.out_ns.append(t_ns)

    def refunded(self, message: Unfinished) -> None:
        """The hand-out does not count."""
        message.handed_out -= 1
        message.shown -= 1
        message.sure -= 1
        del message.out_ns[-1:]

    def _wrong(self, offset: int, message: Unfinished, what: str) -> None:
        self._facts.violation("D3b", f"{name_of(message.slot)}: offset {offset} {what}")
