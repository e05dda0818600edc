"""Deleting the oldest segment of a log while others read it."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from pathlib import Path

from broker_core.store.commit_log import CommitLog
from broker_core.store.files import sync_folder
from broker_core.store.reader import StoreReader


async def note_entries(checkpoint: Callable[[], Awaitable[None]]) -> None:
    """Make a *checkpoint* before a segment goes from which no start could rebuild consume queues.

    Raises OSError, but not on a full disk: what is to be deleted is the room that is wanting.
    """
    try:
        await checkpoint()
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise


async def delete_first_segment(log: CommitLog, *, reader: StoreReader, thread: Executor) -> None:
    """Delete it, never the last one. Raises OSError; it is read as before then, unless its file is
    gone: a disk may delete a file and refuse to sync the folder, above all a full one.
    """
    segment = log.leave_first_segment()
    reader.log_was_shortened()
    delete = _delete_behind_unsynced if log.deletion_unsynced else delete_file
    try:
        # In a thread: 256 MB take 20 ms, in which nobody's lock would be renewed.
        await asyncio.get_running_loop().run_in_executor(thread, delete, segment.path)
    except OSError:
        if segment.path.exists():
            log.keep(segment)
            reader.log_was_shortened()
        else:
            log.deleted_first_segment(synced=False)
        raise
    log.deleted_first_segment(synced=True)


def delete_file(path: Path) -> None:
    """Delete the file of a segment, for good once this returns. Raises OSError."""
    path.unlink()
    # Segments must go in their order: with a younger one gone alone a start would find a hole.
    sync_folder(path.parent)


def _delete_behind_unsynced(path: Path) -> None:
    sync_folder(path.parent)  # else the one before may come back alone
    delete_file(path)
