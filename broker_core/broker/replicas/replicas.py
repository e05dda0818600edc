"""The replicas of a log: how far each has it, and what is confirmed therefore. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Replicas:
    """A master and the slaves that are connected to it; offsets are the log's, in bytes.

    Confirmed is what stands on ``needed`` replicas, the master counted. It never goes back: a slave
    that leaves still has what it had.
    """

    needed: int
    confirmed: int = 0
    _slaves: dict[int, int] = field(default_factory=dict)  # by broker id: where its log ends

    @property
    def available(self) -> int:
        """How many there are now, the master counted."""
        return 1 + len(self._slaves)

    def acked(self, broker_id: int, end: int) -> None:
        """A slave, perhaps a new one, has the log up to *end*."""
        self._slaves[broker_id] = end

    def left(self, broker_id: int) -> None:
        """A slave is connected no more."""
        self._slaves.pop(broker_id, None)

    def confirm(self, master_end: int) -> int:
        """Return what is confirmed now that the master has the log up to *master_end*."""
        ends = sorted((master_end, *self._slaves.values()), reverse=True)
        if len(ends) >= self.needed:
            # A slave cannot be ahead; one that says so must not confirm what nobody else has.
            self.confirmed = max(self.confirmed, min(ends[self.needed - 1], master_end))
        return self.confirmed
