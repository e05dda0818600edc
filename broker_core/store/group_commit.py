"""Group commit: one sync of the log for all sends that wait for the disk."""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import structlog

from broker_core.errors import MayBeStored
from broker_core.store.commit_log import CommitLog, Sync

_log = structlog.get_logger("store")

#: Called when the log is on disk up to an offset, or with the error that ended it.
Then = Callable[[OSError | None], None]


class GroupCommit:
    """Syncs *log* in a thread, one sync at a time; requests during a sync share the next one.

    *before_sync* is called before each sync, to append what it should include. *on_synced* is
    called with the offset up to which the log is on disk, before any waiter continues. A failed
    sync is final: the log becomes read-only.
    """

    def __init__(
        self,
        log: CommitLog,
        *,
        before_sync: Callable[[], None],
        on_synced: Callable[[int], None],
    ) -> None:
        self._log = log
        self._before_sync = before_sync
        self._on_synced = on_synced
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sync")
        self._waiting: deque[tuple[int, Then]] = deque()  # ends ascend
        self._busy = False
        self._failure: OSError | None = None
        self.synced_offset = log.end_offset

    async def wait(self, end: int) -> None:
        """Return once the log is on disk up to *end* (now appended). Raise MayBeStored if it
        fails.
        """
        if end <= self.synced_offset:
            return
        done: asyncio.Future[None] = self._loop.create_future()

        def then(failure: OSError | None) -> None:
            if done.done():
                return
            if failure is None:
                done.set_result(None)
            else:
                done.set_exception(failure)

        self.call_when(end, then)
        await done

    def call_when(self, end: int, then: Then) -> None:
        """Call *then* when the log is on disk up to *end*, with None, or with the error."""
        if end <= self.synced_offset:
            then(None)
        elif self._failure is not None:
            then(self._failure)  # a second sync may succeed without having written anything
        else:
            self._waiting.append((end, then))
            self.request()

    def request(self) -> None:
        """Call ``before_sync`` soon, then sync if anything waits for it."""
        if not self._busy:
            self._busy = True
            # Not at once: sends of the same pass of the loop are included.
            self._loop.call_soon(self._start)

    def close(self) -> None:
        """End the thread after the sync under way; remaining waiters get MayBeStored."""
        self._end(OSError(errno.ESHUTDOWN, "the store was closed"))
        self._thread.shutdown()

    def _start(self) -> None:
        self._before_sync()
        if not self._waiting:
            self._busy = False
            return
        sync = self._log.start_sync()
        synced = self._loop.run_in_executor(self._thread, sync.run)
        synced.add_done_callback(partial(self._ended, sync))

    def _ended(self, sync: Sync, ended: asyncio.Future[None]) -> None:
        if self._failure is not None:
            return
        if (error := ended.exception()) is not None:
            _log.error(
                "commit log cannot be synced; sends are refused until a restart", error=error
            )
            self._end(error if isinstance(error, OSError) else OSError(errno.EIO, str(error)))
            return
        self._log.finish_sync(sync)
        self.synced_offset = sync.end
        try:
            self._on_synced(sync.end)
        except Exception as error:
            # The data is on disk; if this raised, no waiter would ever be answered again.
            _log.error("synced messages are not visible yet", exc_info=error)
        while self._waiting and self._waiting[0][0] <= sync.end:
            self._waiting.popleft()[1](None)
        self._start()

    def _end(self, failure: OSError) -> None:
        self._log.fail(failure)
        self._failure = MayBeStored(failure.errno, failure.strerror)
        while self._waiting:
            self._waiting.popleft()[1](self._failure)
        self._start()  # waiters of the next sync get the error
