"""Unloading of the messages of jobs that cannot be delivered now, while room is short. Pure.

Each key has a first job, so if more keys wait for a retry or are paused than a window has places,
first jobs alone would fill it. An *unloaded* job keeps everything but its message: attempts, times,
reason and place in its chain. It uses no place of the window, and its message is read again, like a
spilled one, once it may be delivered.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator

from proxy.core.jobs.chains import Job
from proxy.core.jobs.refills import Refill
from proxy.core.jobs.window import FlowWindow

#: Memory used by a job without its message, besides its order key.
STUB_BYTES = 512
#: This part (1/n) of the window is kept free of unloaded jobs that come back.
_OTHERS = 8


class UnloadedJobs:
    """Jobs of one queue that cannot be delivered now, loaded and unloaded."""

    def __init__(self, window: FlowWindow) -> None:
        self._window = window
        # Loaded jobs by offset; the last one is unloaded first.
        self._paused: dict[int, Job] = {}
        self._retrying: dict[int, Job] = {}
        self._down: dict[int, tuple[Job, int]] = {}  # with the store time of the message, ms
        self._asked: dict[int, Job] = {}  # those whose messages are being read
        self._due: OrderedDict[int, Job] = OrderedDict()
        #: Offsets of the jobs that wait for room to be read; a live view.
        self.due: Collection[int] = self._due.keys()
        #: Keys whose jobs must not be unloaded: see ``keep``.
        self.kept: Collection[bytes | None] = ()

    def __bool__(self) -> bool:
        return bool(self._down)

    @property
    def offsets(self) -> Collection[int]:
        """Offsets of the unloaded jobs."""
        return self._down.keys()

    @property
    def coming(self) -> set[int]:
        """Offsets of jobs whose messages are being read, or wait for room to be read."""
        return self._asked.keys() | self._due

    def keep(self, keys: Collection[bytes | None]) -> None:
        """Do not unload jobs of *keys*, a live view: they are being copied."""
        self.kept = keys

    @property
    def asked(self) -> int:
        """Places of the window used by jobs whose messages are being read."""
        return len(self._asked)

    @property
    def spare(self) -> int:
        """Number of free places that waiting unloaded jobs must leave to others."""
        return self._window.max_jobs // _OTHERS if self._due else 0

    def stored_ms(self, job: Job) -> int | None:
        """Return the store time of *job*'s message, ms; None if unknown."""
        if job.message is not None:
            return job.message.store_ms
        return self._down[job.offset][1] if self.has(job) else None

    def has(self, job: Job) -> bool:
        """Return True if *job* is unloaded."""
        return job.offset in self._down and self._down[job.offset][0] is job

    # ---- unloading ------------------------------------------------------------------------------

    def note_waiting(self, job: Job, *, paused: bool) -> None:
        """Note that *job* waits for its retry or, if *paused*, for an operator."""
        if job.message is not None:
            (self._paused if paused else self._retrying)[job.offset] = job
            self._window.memory.relief.note_waiting()

    def note_available(self, job: Job) -> None:
        """Note that *job* no longer waits."""
        self._retrying.pop(job.offset, None)
        self._paused.pop(job.offset, None)

    def take_candidates(self) -> Iterator[Job]:
        """Yield jobs to unload, each once, those needed last first."""
        for jobs in (self._paused, self._retrying):
            while jobs:
                job = jobs.popitem()[1]
                if job.message is not None and job.key not in self.kept:
                    yield job

    def put(self, job: Job) -> int:
        """Unload *job*; return the freed bytes."""
        if job.message is None:
            return 0
        stub = STUB_BYTES + len(job.key or b"")
        self._down[job.offset] = job, job.message.store_ms
        job.drop_message()
        self._window.leave(job.held_bytes)
        self._window.keep(stub)
        return max(0, job.held_bytes - stub)

    # ---- restoring ------------------------------------------------------------------------------

    def want(self, job: Job) -> bool:
        """Read the message of *job* again once there is room; False if it is not unloaded."""
        if not self.has(job):
            return False
        if job.offset not in self._asked:
            self._due[job.offset] = job
        return True

    def ask(self, left: int) -> Refill | None:
        """Return the next message to read, if there is room for it in *left* places."""
        if not self._due or left <= self.spare:
            return None
        offset, job = self._due.popitem(last=False)
        self._asked[offset] = job
        return Refill(job.key or b"", (offset,), unloaded=True)

    def asks_for(self, offset: int) -> bool:
        """Return True if the message at *offset* is being read again."""
        return offset in self._asked

    def came(self, offset: int, as_read: Job | None) -> Job | None:
        """Restore the job at *offset* with the message of *as_read*; None if that was deleted.
        Return the job; None if it has finished.
        """
        job = self._asked.pop(offset, None)
        if job is None or as_read is None:
            return job
        self.forget(job)
        job.restore(as_read.message)
        self._window.admit(job.held_bytes)
        return job

    def close(self) -> None:
        """Drop all jobs."""
        for jobs in (self._paused, self._retrying, self._down, self._asked, self._due):
            jobs.clear()

    def forget(self, job: Job) -> bool:
        """Remove *job*, which finishes or is back; return False if it was not unloaded."""
        self.note_available(job)
        if not self.has(job):
            return False
        del self._down[job.offset]
        self._asked.pop(job.offset, None)
        self._due.pop(job.offset, None)
        self._window.keep(-STUB_BYTES - len(job.key or b""))
        return True
