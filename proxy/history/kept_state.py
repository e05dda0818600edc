"""K1: what the records of a queue say outlives retention: the next owner knows what is paused and
parked, and by which order key messages are handed out.
"""

from __future__ import annotations

from proxy.history.facts import LaneFacts
from proxy.history.parking import Parking
from proxy.history.reader import Event


class KeptState:
    """What has to be known of one queue and group, whoever owns it."""

    def __init__(self, facts: LaneFacts, parking: Parking) -> None:
        self._facts = facts
        self._parking = parking
        self._version = 0  # of the order key, counted by changes

    def changed(self, event: Event) -> None:
        """A record says that another order key holds."""
        self._version = max(self._version, event["version"])

    def taken_over(self, event: Event) -> None:
        """A new owner says what it knows; before that is taken for the truth."""
        facts, epoch, version = self._facts, event["epoch"], event.get("key_version")
        if version is not None:  # else it does not say what it knows
            for order in sorted(set(self._parking.unended()) - set(event.get("parked", ()))):
                facts.violation(
                    "K1", f"key {order!r} was parked, and its owner of epoch {epoch} knows not"
                )
            if version < self._version:
                facts.violation(
                    "K1",
                    f"the order key had changed {_times(self._version)}, and its owner of epoch"
                    f" {epoch} knows of {_times(version)}",
                )
            self._version = max(self._version, version)
        if event.get("forgotten") and (lost := self._lost()):
            facts.violation(
                "K1", f"the owner of epoch {epoch} found no records: they had to say {lost}"
            )

    def _lost(self) -> str:
        """What records that are gone had to say, in words."""
        facts = self._facts
        said = {
            "what is paused": facts.paused,
            "what is parked": facts.parked,
            "that the order key had changed": self._version > 1,
        }
        return ", ".join(what for what, known in said.items() if known)


def _times(version: int) -> str:
    changes = version - 1
    return "once" if changes == 1 else f"{changes} times"
