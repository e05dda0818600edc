"""K1: the state in a queue's ownership records outlives retention.

The next owner knows which keys are paused and parked, and the order key by which messages are
delivered.
"""

from __future__ import annotations

from proxy.history.facts import LaneFacts
from proxy.history.parking import Parking
from proxy.history.reader import Event


class KeptState:
    """State of one queue and group that every owner must know."""

    def __init__(self, facts: LaneFacts, parking: Parking) -> None:
        self._facts = facts
        self._parking = parking
        self._version = 0  # of the order key: number of changes plus 1

    def changed(self, event: Event) -> None:
        """Record a change of the order key."""
        self._version = max(self._version, event["version"])

    def taken_over(self, event: Event) -> None:
        """Compare the state known to a new owner with that before."""
        facts, epoch, version = self._facts, event["epoch"], event.get("key_version")
        if facts.records_damaged:
            return
        if version is not None:  # otherwise the event does not contain its state
            for order in sorted(set(self._parking.unended()) - set(event.get("parked", ()))):
                facts.violation(
                    "K1",
                    f"key {order!r} was parked, but its owner of epoch {epoch} does not know it",
                )
            if version < self._version:
                facts.violation(
                    "K1",
                    f"the order key had {_changes(self._version)}, but its owner of epoch {epoch}"
                    f" knows of {_changes(version)}",
                )
            self._version = max(self._version, version)
        if event.get("forgotten") and (lost := self._lost()):
            facts.violation(
                "K1", f"the owner of epoch {epoch} found no records: they contained {lost}"
            )

    def _lost(self) -> str:
        """Return the lost contents of deleted records, in words."""
        facts = self._facts
        said = {
            "paused keys": facts.paused,
            "parked keys": facts.parked,
            "a changed order key": self._version > 1,
        }
        return ", ".join(what for what, known in said.items() if known)


def _changes(version: int) -> str:
    changes = version - 1
    return "1 change" if changes == 1 else f"{changes} changes"
