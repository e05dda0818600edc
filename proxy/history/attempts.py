"""D3b: each delivery counts as one attempt, and no message exceeds ``max_deliveries``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from proxy.history.facts import LaneFacts, Slot, name_of


@dataclass(slots=True)
class Unfinished:
    """A message that was delivered and has not finished, with its counted deliveries."""

    slot: Slot
    delivered: int = 0
    shown: int = 0  # ``attempt`` of the last delivery
    sure: int = 0  # attempts that the owner must know
    origin: int | None = None  # for a copy: offset of the original message
    allowed: int = 0  # deliveries allowed by earlier rules
    base: int = 0  # attempts that the owner knew when its period began
    failed_action: bool = False  # under the current rules
    out_ns: list[int] = field(default_factory=list)  # times of deliveries in this period
    failed_ns: list[int] = field(default_factory=list)  # times at which they had failed
    before: int = 0  # ``shown`` before the last reset of the count
    reset_ns: int = 0  # time of that reset, until a record contains it
    tag: str | None = None  # None: no tag, or unknown

    def fails_at_action(self, *, failed: bool) -> None:
        """Set whether an action *failed* on it under the current rules."""
        self.failed_action = failed

    def tagged(self, tag: str | None) -> None:
        """Set its tag."""
        self.tag = tag

    def rekey(self, slot: Slot) -> None:
        """Set its slot after a change of the order key."""
        self.slot = slot

    def reset_attempts(self, *, at_ns: int = 0) -> None:
        """Reset the count of deliveries. *at_ns*: time of a redrive that the owner's next record
        will contain; 0 if a record already contains the reset.
        """
        self.before, self.reset_ns = (self.shown, at_ns) if at_ns else (0, 0)
        self.delivered = self.shown = self.sure = self.base = 0
        self.out_ns.clear()
        self.failed_ns.clear()


class Attempts:
    """Checks the ``attempt`` of each delivery. Deliveries given back unhandled, or never written to
    the client, or whose lease expired while the proxy stood still, do not count.

    After a crash a new owner may know fewer attempts than there were: it knows those in the
    records, and a record contains a delivery only after it failed.
    """

    def __init__(self, facts: LaneFacts) -> None:
        self._facts = facts
        self._changed = False  # whether the rules changed in this period or at its start

    def new_period(self, messages: Iterable[Unfinished], *, clean: bool) -> None:
        """Begin an ownership period with the knowledge given by ``LaneFacts``; O(unfinished)."""
        self._changed = False
        for message in messages:
            if self._facts.records_damaged:
                message.sure = message.base = 0
            out = len(message.out_ns)
            known = out if clean else sum(t_ns <= self._facts.known_ns for t_ns in message.out_ns)
            if known:
                failed = known if clean or known < out else known - 1
                if not clean:  # a later failure is in no record
                    in_time = sum(t_ns <= self._facts.known_ns for t_ns in message.failed_ns)
                    failed = min(failed, in_time)
                message.sure = max(message.base, message.shown - out + failed)
            elif out:
                message.sure = message.base
            message.base = message.sure
            if message.reset_ns > self._facts.known_ns and not clean:
                # The owner may know only the count before the reset.
                message.shown = max(message.shown, message.before)
            message.reset_ns = 0
            message.out_ns.clear()
            message.failed_ns.clear()

    def rules_changed(self, messages: Iterable[Unfinished]) -> None:
        """Apply a lower limit from the next failure on; O(unfinished)."""
        self._changed = True
        for message in messages:
            message.allowed = message.shown + 1

    def delivered(
        self, offset: int, message: Unfinished, attempt: int, *, t_ns: int, finished: bool
    ) -> None:
        """Record a delivery of *message*; *finished*: it had finished under an earlier owner, and
        its outcome may be lost.
        """
        message.delivered += 1
        forgotten = finished and message.delivered == 1
        if not forgotten and not message.sure < attempt <= message.shown + 1:
            known = "" if message.sure == message.shown else f", at least {message.sure} known"
            self._wrong(offset, message, f"said attempt {attempt} after {message.shown}{known}")
        if forgotten and self._changed:  # the owner may have known more attempts and a higher limit
            message.allowed = attempt
        most = self._facts.rules.max_deliveries
        if most is not None and attempt > max(most, message.allowed):
            self._wrong(offset, message, f"was delivered {attempt} times, {most} are allowed")
        message.shown = message.sure = attempt
        message.out_ns.append(t_ns)

    def refunded(self, message: Unfinished) -> None:
        """Take back the last delivery: it does not count."""
        message.delivered -= 1
        message.shown -= 1
        message.sure -= 1
        del message.out_ns[-1:]

    def _wrong(self, offset: int, message: Unfinished, what: str) -> None:
        self._facts.violation("D3b", f"{name_of(message.slot)}: offset {offset} {what}")
