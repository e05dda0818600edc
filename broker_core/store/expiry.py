"""Deletion of the oldest segment of a log while others read it."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from pathlib import Path

from broker_core.store.commit_log import CommitLog
from broker_core.store.files import sync_folder
from broker_core.store.reader import StoreReader
from broker_core.tasks import in_thread_of


async def note_entries(checkpoint: Callable[[], Awaitable[None]]) -> None:
    """Make a *checkpoint*: no start can rebuild consume queues from a deleted segment.

    Raises OSError, except on a full disk, which the deletion is to relieve.
    """
    try:
        await checkpoint()
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise


async def delete_first_segment(log: CommitLog, *, reader: StoreReader, thread: Executor) -> None:
    """Delete the oldest segment, never the last one. Raise OSError.

    The segment stays readable after an error, unless its file is gone: a disk, in particular a full
    one, may delete a file and then refuse to sync the folder.
    """
    segment = log.detach_first_segment()
    reader.log_was_shortened()
    delete = _delete_behind_unsynced if log.deletion_unsynced else delete_file
    try:
        # In a thread: 256 MB take 20 ms, in which no lock would be renewed.
        await in_thread_of(thread, delete, segment.path)
    except OSError:
        if segment.path.exists():
            log.reattach(segment)
            reader.log_was_shortened()
        else:
            log.note_deleted_segment(synced=False)
        raise
    log.note_deleted_segment(synced=True)


def delete_file(path: Path) -> None:
    """Delete the file of a segment durably. Raise OSError."""
    path.unlink()
    # In order: if a younger segment alone were deleted, a start would find a hole.
    sync_folder(path.parent)


def _delete_behind_unsynced(path: Path) -> None:
    sync_folder(path.parent)  # otherwise the previous one alone may reappear
    delete_file(path)
