"""Saves a table of the broker: one save at a time, shared by all callers that wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeVar

import orjson

from broker_core.errors import BrokerError, InvalidCommand, StoreError
from broker_core.store.journaled_table import JournaledTable
from broker_core.store.tables import JsonTable
from broker_core.tasks import finished, in_thread, spawn

T = TypeVar("T")


async def uncancelled(saving: Coroutine[Any, Any, None], *, name: str) -> None:
    """Run *saving* to its end, also if the caller is cancelled, which ends with it. Raise its
    OSError or BrokerError.
    """
    if (failure := await finished(spawn(_failure_of(saving), name=name))) is not None:
        raise failure


async def _failure_of(saving: Coroutine[Any, Any, None]) -> OSError | BrokerError | None:
    # Returned, not raised: the log would show a failed task with its stack, like a bug.
    try:
        await saving
    except (OSError, BrokerError) as failure:
        return failure
    return None


class Saver(Protocol):
    """Saves a table."""

    async def save(self, change: int | None = None) -> None:
        """Return when the table is on disk up to *change* (default: the current one).

        Raises OSError if the disk refuses; the table is then unchanged.
        """


class TableSaver:
    """Saves what *content* returns whenever a change must be on disk.

    *change* returns the increasing number of changes. *before* first writes data that the content
    may refer to; it raises OSError on failure.
    """

    def __init__(
        self,
        table: JsonTable,
        *,
        content: Callable[[], dict[str, Any]],
        change: Callable[[], int],
        before: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._table = table
        self._content = content
        self._change = change
        self._before = before
        self._saved = change()
        self._turn = asyncio.Lock()

    async def save(self, change: int | None = None) -> None:
        """Return when the content is on disk up to *change* (default: the current one).

        Raises OSError if the disk refuses; the table is then unchanged.
        """
        needed = self._change() if change is None else change
        if needed <= self._saved:
            return
        await uncancelled(self._save(needed), name=f"save {self._table.path.name}")

    async def _save(self, needed: int) -> None:
        async with self._turn:
            if needed <= self._saved:
                return  # saved by an earlier caller
            change = self._change()
            content = orjson.dumps(self._content())
            if self._before is not None:
                await self._before()
            await in_thread(self._table.save_bytes, content)
            self._saved = change


def load_table(table: JsonTable | JournaledTable, build: Callable[[dict[str, Any]], T]) -> T:
    """Return *build* of the table's content. Raise StoreError if it cannot be read.

    A table with a journal is repaired; others are replaced often.
    """
    try:
        content = table.load()
        if isinstance(table, JournaledTable):
            table.repair()
        return build(content)
    except (ValueError, InvalidCommand, OSError) as error:
        raise StoreError(f"{table.path} cannot be read: {error}; restore it or its .bak") from error
