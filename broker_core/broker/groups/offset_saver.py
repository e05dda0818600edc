"""Saves committed offsets: the changed ones, one save at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import orjson

from broker_core.broker.groups.offsets import CommittedOffsets, OffsetChanges
from broker_core.broker.table_saver import uncancelled
from broker_core.store.journaled_table import JournaledTable
from broker_core.tasks import in_thread


class OffsetSaver:
    """Saves *offsets* to *table* whenever a change must be on disk; shared by all callers that wait
    for it.

    *before* first makes messages durable that offsets may refer to; it raises OSError on failure.
    """

    def __init__(
        self,
        table: JournaledTable,
        offsets: CommittedOffsets,
        *,
        before: Callable[[], Awaitable[None]],
    ) -> None:
        self._table = table
        self._offsets = offsets
        self._before = before
        self._saved = offsets.change
        self._turn = asyncio.Lock()

    async def save(self, change: int | None = None) -> None:
        """Return when the offsets are on disk up to *change* (default: the current one).

        Raises OSError if the disk refuses; the table is then unchanged.
        """
        needed = self._offsets.change if change is None else change
        if needed > self._saved:
            await uncancelled(self._save(needed), name=f"save {self._table.path.name}")

    async def fold(self) -> None:
        """Write the whole table as one file. Raise OSError."""
        async with self._turn:
            await in_thread(self._table.fold)

    async def _save(self, needed: int) -> None:
        async with self._turn:
            if needed <= self._saved:
                return  # saved by an earlier caller
            change = self._offsets.change
            changes = self._offsets.take_changes()
            try:
                await self._before()
                await in_thread(self._write, changes)
            except BaseException:
                self._offsets.return_changes(changes)
                raise
            self._saved = change

    def _write(self, changes: OffsetChanges) -> None:
        if changes.whole is not None:
            self._table.save_bytes(orjson.dumps(changes.whole))
        elif changes.patch is not None:
            self._table.append(changes.patch, depth=3)
