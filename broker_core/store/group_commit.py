"""Group commit: one sync of the log for all sends that wait for the disk."""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import structlog

from broker_core.store.commit_log import CommitLog, Sync

_log = structlog.get_logger("store")

#: Called when the log is on disk up to an offset, or with the error that ended it.
Then = Callable[[OSError | None], None]


class GroupCommit:
    """Syncs *log* in a thread, one sync at a time; whoever comes meanwhile shares the next one.

    *before_sync* is called before each sync, to append what shall be in it. *on_synced* is called
    with the offset up to which the log is on disk, before anybody who waited for it goes on. A
    failed sync is final: the log takes nothing more.
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
        """Return once the log is on disk up to *end* (now appended). Raises OSError if it fails."""
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
        """As ``wait``: *then* gets None, or the error."""
        if end <= self.synced_offset:
            then(None)
        elif self._failure is not None:
            then(self._failure)  # a second sync may succeed without having written anything
        else:
            self._waiting.append((end, then))
            self.request()

    def request(self) -> None:
        """Have ``before_sync`` called soon, and a sync made if anybody waits for one then."""
        if not self._busy:
            self._busy = True
            # Not at once: sends that arrived in the same turn of the loop still get in.
            self._loop.call_soon(self._start)

    def close(self) -> None:
        """End the thread, with the sync under way; whoever still waits gets an OSError."""
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
            self._end(error if isinstance(error, OSError) else OSError(str(error)))
            return
        self._log.finish_sync(sync)
        self.synced_offset = sync.end
        try:
            self._on_synced(sync.end)
        except Exception as error:
            # It is on disk all the same: nobody would ever be answered again.
            _log.error("what was synced is not visible yet", exc_info=error)
        while self._waiting and self._waiting[0][0] <= sync.end:
            self._waiting.popleft()[1](None)
        self._start()

    def _end(self, failure: OSError) -> None:
        self._failure = failure
        self._log.fail(failure)
        while self._waiting:
            self._waiting.popleft()[1](failure)
        self._start()  # what was to be in a sync hears why there is none
