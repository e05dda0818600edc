"""D3b: hand-outs are counted when they happen, and no message has more of them than it may."""

from __future__ import annotations

from dataclasses import dataclass

from proxy.history.facts import LaneFacts, Slot, name_of


@dataclass(slots=True)
class Unfinished:
    """A message handed out and not finished: its hand-outs, those that count."""

    slot: Slot
    handed_out: int = 0
    shown: int = 0  # what the last hand-out said
    epoch: int = -1  # of the last hand-out
    crashes: int = 0  # of owners since the first
    origin: int | None = None  # a copy's: where the message itself stands


class Attempts:
    """The ``attempt`` of each hand-out. Only one handed back unhandled, or never sent, is free.

    A new owner after a crash may know fewer than there were, never more.
    """

    def __init__(self, facts: LaneFacts) -> None:
        self._facts = facts

    def handed_out(
        self, offset: int, message: Unfinished, attempt: int, *, crashed: bool, finished: bool
    ) -> None:
        """*message* goes out; *crashed*: the owner before the present one ended uncleanly;
        *finished*: the message had finished under it, and nobody knows any more how.
        """
        facts = self._facts
        message.handed_out += 1
        same_owner = message.epoch == facts.epoch
        if message.epoch >= 0 and not same_owner and crashed:
            message.crashes += 1
        fewest = 1 if crashed and not same_owner else message.shown + 1
        forgotten = finished and message.handed_out == 1
        if not forgotten and not fewest <= attempt <= message.shown + 1:
            self._wrong(offset, message, f"said attempt {attempt} after {message.shown}")
        most = facts.rules.max_deliveries
        if most is not None and message.handed_out > most + message.crashes:
            self._wrong(
                offset, message, f"was handed out {message.handed_out} times, {most} are allowed"
            )
        message.shown, message.epoch = attempt, facts.epoch

    def refunded(self, message: Unfinished) -> None:
        """The hand-out does not count."""
        message.handed_out -= 1
        message.shown -= 1

    def _wrong(self, offset: int, message: Unfinished, what: str) -> None:
        self._facts.violation("D3b", f"{name_of(message.slot)}: offset {offset} {what}")
