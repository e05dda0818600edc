"""The table with a log's epochs, and whether the log is complete: rule E5 of ``election``."""

from __future__ import annotations

from broker_core.broker.replicas.election import Position
from broker_core.broker.replicas.log_epochs import LogEpochs
from broker_core.errors import StoreError
from broker_core.store.tables import JsonTable
from broker_core.tasks import in_thread


class LogHistory:
    """Facts of an elected replica about its own log. Each change is on disk before it counts."""

    def __init__(self, table: JsonTable, *, has_log: bool) -> None:
        """Read the table. *has_log*: whether a log without a table counts as complete.

        Blocks; raises StoreError if the table cannot be used.
        """
        self._table = table
        try:
            content = table.load()
            self.epochs = LogEpochs.from_table(content)
        except (ValueError, OSError) as error:
            raise StoreError(f"{table.path} cannot be used: {error}") from error
        self.complete = bool(content.get("complete")) if content else has_log

    def position(self, end: int) -> Position:
        """Return the position of a log that ends at *end*."""
        return Position(self.epochs.last_before(end), end)

    def begin(self, epoch: int, *, end: int, first: int) -> None:
        """Note that this master's epoch begins at the end of its log. Blocks; raises OSError."""
        self._save(self.epochs.begun(epoch, end=end, first=first), complete=True)

    def lost(self) -> None:
        """Note that the disk has lost data of this log. Blocks; raises OSError."""
        if self.complete:
            self._save(self.epochs, complete=False)

    async def take(self, epochs: LogEpochs) -> None:
        """Use the epochs of the master whose log this one continues. Raises OSError."""
        if epochs != self.epochs:
            await in_thread(self._save, epochs, complete=self.complete)

    async def completed(self, complete: bool) -> None:
        """Note whether the log has all that it may have confirmed. Raises OSError."""
        if complete != self.complete:
            await in_thread(self._save, self.epochs, complete=complete)

    def _save(self, epochs: LogEpochs, *, complete: bool) -> None:
        self._table.save({**epochs.to_table(), "complete": complete})
        self.epochs, self.complete = epochs, complete
