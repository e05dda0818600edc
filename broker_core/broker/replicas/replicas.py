"""The replicas of a log: the end of each one's copy, and the confirmed position. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Replicas:
    """A master and its connected slaves; offsets are the log's, in bytes.

    Data on ``needed`` replicas is confirmed, the master included. The position never decreases: a
    slave that leaves keeps its data. An elected master confirms older data only together with its
    own, which begins before ``floor``: otherwise a master with data of an epoch in between could be
    elected later, and replace what was confirmed.
    """

    needed: int
    confirmed: int = 0
    floor: int = 0
    _slaves: dict[int, int] = field(default_factory=dict)  # by broker id: end of its log

    @property
    def available(self) -> int:
        """Number of connected replicas, the master included."""
        return 1 + len(self._slaves)

    def in_sync(self) -> list[int]:
        """Return the ids of connected slaves that have all that is confirmed."""
        return sorted(each for each, end in self._slaves.items() if end >= self.confirmed)

    def acked(self, broker_id: int, end: int) -> None:
        """Record that a slave, perhaps a new one, has the log up to *end*."""
        self._slaves[broker_id] = end

    def left(self, broker_id: int) -> None:
        """Remove a slave that disconnected."""
        self._slaves.pop(broker_id, None)

    def confirm(self, master_end: int) -> int:
        """Return the confirmed position, now that the master has the log up to *master_end*."""
        ends = sorted((master_end, *self._slaves.values()), reverse=True)
        if len(ends) >= self.needed and ends[self.needed - 1] >= self.floor:
            # A slave cannot be ahead; one that claims so must not confirm what no other replica
            # has.
            self.confirmed = max(self.confirmed, min(ends[self.needed - 1], master_end))
        return self.confirmed
