"""W1, W2, C1 and C2: who owned a queue, and what was committed."""

from __future__ import annotations

from proxy.history.deliveries import Deliveries
from proxy.history.facts import LaneFacts
from proxy.history.reader import Event


class Ownership:
    """Ownership periods and commits of one queue and group."""

    def __init__(self, facts: LaneFacts, deliveries: Deliveries) -> None:
        self._facts = facts
        self._deliveries = deliveries
        self._given_up = False

    def own(self, event: Event) -> None:
        """A proxy began to own the queue."""
        facts, epoch = self._facts, event["epoch"]
        if epoch <= facts.epoch:
            facts.violation(
                "W1", f"{event.get('owner')} became owner with epoch {epoch} after {facts.epoch}"
            )
        if facts.epoch < 0:
            facts.begin = event.get("begin", 0)
        self._enter(epoch)

    def disown(self, event: Event) -> None:
        """The owner gave the queue up."""
        if event["epoch"] == self._facts.epoch:
            self._given_up = True
            self._deliveries.end_all_leases()

    def fenced(self, event: Event) -> bool:
        """True, and a W2 violation, if *event* comes from a period that has ended."""
        facts, epoch, what = self._facts, event["epoch"], event["e"]
        if epoch > facts.epoch:
            self._enter(epoch)  # its own+ is in a history that we were not given
        elif epoch < facts.epoch:
            facts.violation(
                "W2",
                f"{what} of offset {event['offset']} with epoch {epoch} after {facts.epoch} began",
            )
            return True
        elif self._given_up and what == "deliver":
            facts.violation("W2", f"offset {event['offset']} was handed out by nobody's right")
        return False

    def commit(self, event: Event) -> None:
        """The broker stored a committed offset."""
        facts, offset = self._facts, event["offset"]
        if offset < facts.committed:
            facts.violation("C1", f"committed offset fell from {facts.committed} to {offset}")
        lowest = self._deliveries.lowest_open
        if lowest is not None and lowest < offset:
            facts.violation("C2", f"offset {offset} was committed while {lowest} was unfinished")
        facts.committed = offset

    def took_late_commit(self, event: Event) -> bool:
        """True if *event* is a commit of a period that has ended; the broker may have stored it.

        Then its number is the lower one until the next commit: whoever owns the queue commits on.
        """
        facts = self._facts
        if event["epoch"] >= facts.epoch:
            return False
        facts.committed = min(facts.committed, event["offset"])
        return True

    def forget_commits(self) -> None:
        """The broker was killed: it may have forgotten commits that it had answered.

        It keeps messages, but stores consumer offsets every few seconds only.
        """
        self._facts.committed = 0

    def _enter(self, epoch: int) -> None:
        self._facts.epoch = max(epoch, self._facts.epoch)
        self._facts.judged_by_proxy = True
        self._given_up = False
        self._deliveries.new_period()
