"""Group commit: one sync of the log for all sends that wait for the disk."""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import structlog

from broker_core.store.commit_log import CommitLog, Sync

_log = structlog.get_logger("store")


class GroupCommit:
    """Syncs *log* in a thread, one sync at a time; whoever comes meanwhile shares the next one.

    *on_synced* is called with the offset up to which the log is on disk, before anybody who waited
    for it goes on. A failed sync is final: the log takes nothing more.
    """

    def __init__(self, log: CommitLog, *, on_synced: Callable[[int], None]) -> None:
        self._log = log
        self._on_synced = on_synced
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sync")
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()  # ends ascend
        self._busy = False
        self._failure: OSError | None = None
        self.synced_offset = log.end_offset

    async def wait(self, end: int) -> None:
        """Return once the log is on disk up to *end* (now appended). Raises OSError if it fails."""
        if end <= self.synced_offset:
            return
        if self._failure is not None:
            raise self._failure  # a second sync may succeed without having written anything
        done = self._loop.create_future()
        self._waiting.append((end, done))
        if not self._busy:
            self._busy = True
            # Not at once: sends that arrived in the same turn of the loop still get in.
            self._loop.call_soon(self._start)
        await done

    def close(self) -> None:
        """End the thread, with the sync under way; whoever still waits gets an OSError."""
        self._end(OSError(errno.ESHUTDOWN, "the store was closed"))
        self._thread.shutdown()

    def _start(self) -> None:
        if self._failure is not None:
            return
        sync = self._log.start_sync()
        self._thread.submit(sync.run).add_done_callback(
            lambda ended: self._loop.call_soon_threadsafe(self._ended, sync, ended)
        )

    def _ended(self, sync: Sync, ended: Future[None]) -> None:
        if self._failure is not None:
            return
        if (error := ended.exception()) is not None:
            _log.error(
                "commit log cannot be synced; sends are refused until a restart", error=error
            )
            self._end(error if isinstance(error, OSError) else OSError(str(error)))
            return
        self._log.finish_sync(sync)
        self.synced_offset = sync.end
        self._on_synced(sync.end)
        while self._waiting and self._waiting[0][0] <= sync.end:
            done = self._waiting.popleft()[1]
            if not done.done():
                done.set_result(None)
        if self._waiting:
            self._start()
        else:
            self._busy = False

    def _end(self, failure: OSError) -> None:
        self._failure = failure
        self._log.fail(failure)
        while self._waiting:
            done = self._waiting.popleft()[1]
            if not done.done():
                done.set_exception(failure)
