"""Jobs that no client can have now: their messages are set down while room is short. Pure.

Each key has a first job, so with more keys that wait for a retry, or are paused, than a window has
places the first jobs alone would fill it. Of one that is *set down* all stays but the message:
attempts, times, reason and place in its chain are those of any other job. It takes no place of the
window, and its message is read again, as a spilled one is, once somebody may have it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator

from proxy.core.jobs.chains import Job
from proxy.core.jobs.refills import Refill
from proxy.core.jobs.window import FlowWindow

#: What a job without its message takes in memory, beside its order key.
STUB_BYTES = 512
#: One part in so many of the window is left for others than those that come back.
_OTHERS = 8


class SetDown:
    """Which jobs of one queue nobody can have, and those of them that are set down."""

    def __init__(self, window: FlowWindow) -> None:
        self._window = window
        # With their messages, by offset, the last one first to be set down.
        self._paused: dict[int, Job] = {}
        self._retrying: dict[int, Job] = {}
        self._down: dict[int, tuple[Job, int]] = {}  # each with when its message was stored, in ms
        self._asked: dict[int, Job] = {}  # whose messages are being read
        self._due: OrderedDict[int, Job] = OrderedDict()
        #: Offsets of those that wait for room to be read, as they are at any time.
        self.due: Collection[int] = self._due.keys()
        #: Keys whose jobs stay as they are: see ``keep``.
        self.kept: Collection[bytes | None] = ()

    def __bool__(self) -> bool:
        return bool(self._down)

    @property
    def offsets(self) -> Collection[int]:
        """Of the jobs that are set down."""
        return self._down.keys()

    @property
    def coming(self) -> set[int]:
        """Of those whose messages are being read, or wait for room to be read."""
        return self._asked.keys() | self._due

    def keep(self, keys: Collection[bytes | None]) -> None:
        """Leave jobs of *keys*, as these are at any time, as they are: they are being copied."""
        self.kept = keys

    @property
    def asked(self) -> int:
        """Places of the window for those whose messages are being read."""
        return len(self._asked)

    @property
    def spare(self) -> int:
        """So many free places are none for those that wait for room."""
        return self._window.max_jobs // _OTHERS if self._due else 0

    def stored_ms(self, job: Job) -> int | None:
        """When the message of *job* was stored; None if nobody knows."""
        if job.message is not None:
            return job.message.store_ms
        return self._down[job.offset][1] if self.has(job) else None

    def has(self, job: Job) -> bool:
        """True if *job* is set down."""
        return job.offset in self._down and self._down[job.offset][0] is job

    # ---- setting down ---------------------------------------------------------------------------

    def nobody_has(self, job: Job, *, paused: bool) -> None:
        """*job* waits for its retry, or for a person (*paused*)."""
        if job.message is not None:
            (self._paused if paused else self._retrying)[job.offset] = job

    def somebody_may_have(self, job: Job) -> None:
        """*job* waits no longer."""
        self._retrying.pop(job.offset, None)
        self._paused.pop(job.offset, None)

    def take_candidates(self) -> Iterator[Job]:
        """Jobs to set down, those that are wanted last first; each is given once."""
        for jobs in (self._paused, self._retrying):
            while jobs:
                job = jobs.popitem()[1]
                if job.message is not None and job.key not in self.kept:
                    yield job

    def put(self, job: Job) -> int:
        """Set *job* down, which has a message; returns the bytes that became free."""
        if job.message is None:
            return 0
        stub = STUB_BYTES + len(job.key or b"")
        self._down[job.offset] = job, job.message.store_ms
        job.drop_message()
        self._window.leave(job.held_bytes)
        self._window.keep(stub)
        return max(0, job.held_bytes - stub)

    # ---- coming back ----------------------------------------------------------------------------

    def want(self, job: Job) -> bool:
        """Have the message of *job* read again once there is room; False if it is not set down."""
        if not self.has(job):
            return False
        if job.offset not in self._asked:
            self._due[job.offset] = job
        return True

    def ask(self, left: int) -> Refill | None:
        """What is to be read next, if there is room for it in *left* places."""
        if not self._due or left <= self.spare:
            return None
        offset, job = self._due.popitem(last=False)
        self._asked[offset] = job
        return Refill(job.key or b"", (offset,), set_down=True)

    def came(self, offset: int, as_read: Job | None) -> Job | None:
        """The message there was read: *as_read* has it, or (None) it is gone. The job that was set
        down, whole again unless it is gone; None if it has ended.
        """
        job = self._asked.pop(offset, None)
        if job is None or as_read is None:
            return job
        self.forget(job)
        job.restore(as_read.message)
        self._window.admit(job.held_bytes)
        return job

    def forget(self, job: Job) -> bool:
        """*job* ends, or is back; False if it was not set down."""
        self.somebody_may_have(job)
        if not self.has(job):
            return False
        del self._down[job.offset]
        self._asked.pop(job.offset, None)
        self._due.pop(job.offset, None)
        self._window.keep(-STUB_BYTES - len(job.key or b""))
        return True
