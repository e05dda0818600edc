"""A slave of an elected master: which master it may copy, and what it notes of its copy."""

from __future__ import annotations

from broker_core.broker.replicas.elector import Elector
from broker_core.broker.replicas.log_epochs import LogEpochs
from broker_core.broker.replicas.log_history import LogHistory
from broker_core.errors import ConnectionLost


class ElectedCopy:
    """The election as ``MasterFollower`` needs it. Methods raise OSError if the disk refuses."""

    def __init__(self, elector: Elector, history: LogHistory) -> None:
        self._elector = elector
        self._history = history
        self._complete_at = 0  # end of the master's log at the join

    def check(self, epoch: int) -> None:
        """Raise ConnectionLost unless the master of *epoch* is the one to follow.

        A slave that has voted for another master must confirm nothing to the one before.
        """
        if not self._elector.follows_master_of(epoch):
            raise ConnectionLost(
                f"the master of epoch {epoch} is no longer followed in term {self._elector.term}"
            )

    async def joined(self, epochs: bytes | memoryview, *, end: int) -> None:
        """Note the epochs of the master's log, which ends at *end*, before any of it is copied."""
        self._complete_at = end
        await self._history.take(LogEpochs.from_json(epochs))

    async def copied(self, end: int) -> None:
        """Note that the copy is on disk up to *end*."""
        if end >= self._complete_at:
            await self._history.completed(True)

    async def starts_over(self) -> None:
        """Note that the copy is about to lose all its messages."""
        await self._history.completed(False)
