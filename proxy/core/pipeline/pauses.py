"""Paused keys of a queue, and a queue that is paused as a whole. Pure.

A paused key is not handed out: its first job, once its turn comes, is set aside until the key is
resumed, and all others of it wait behind as ever. What clients have of it they may finish. So a
pause never changes the order: which job of a key is next stays a matter of its chain.
"""

from __future__ import annotations

from broker_core.names import QueueName
from proxy.core.jobs.chains import Job
from proxy.core.jobs.changes import Noted
from proxy.core.records.paused_key import EVERYTHING, PausedKey


class Pauses:
    """What is paused of one queue, and the jobs that are set aside for it.

    Caller: the pipeline, for operator actions (pause, resume) and for dispatch (set aside).
    Affects: ``keys``, which records and the parked twin share, and the group's list of queues.
    """

    def __init__(self, keys: Noted[bytes | None, PausedKey]) -> None:
        #: Keys that are paused, or ``EVERYTHING``, with who paused them. Read-only for others.
        self.keys = keys
        self._queues: dict[QueueName, PausedKey] = {}
        self._set_aside: dict[bytes, Job] = {}

    @property
    def whole(self) -> PausedKey | None:
        """Who paused the whole queue; None if it is not paused."""
        return self.keys.get(EVERYTHING)

    def tell(self, queues: dict[QueueName, PausedKey]) -> None:
        """Note in *queues* from now on which queue is paused as a whole. Caller: group buffer."""
        self._queues = queues

    def pause(self, queue: QueueName, key: bytes | None, how: PausedKey) -> bool:
        """Pause *key* (or ``EVERYTHING``) of *queue*; False if it is paused already."""
        if key is EVERYTHING:
            self._queues.setdefault(queue, how)
        if key in self.keys:
            return False
        self.keys[key] = how
        return True

    def resume(self, queue: QueueName, key: bytes | None) -> PausedKey | None:
        """Pause *key* no longer; None if it was not paused."""
        if key is EVERYTHING:
            self._queues.pop(queue, None)
        how: PausedKey | None = self.keys.pop(key, None)
        return how

    # ---- jobs -----------------------------------------------------------------------------------

    def set_aside(self, job: Job) -> bool:
        """Keep *job*, whose turn has come, if its key is paused; False if it is not."""
        if job.key is None or job.key not in self.keys:
            return False
        self._set_aside[job.key] = job
        return True

    def has(self, job: Job) -> bool:
        """True if *job* is set aside."""
        return job.key is not None and self._set_aside.get(job.key) is job

    def forget(self, job: Job) -> None:
        """*job* is set aside no longer, if it was: others have taken it."""
        if job.key is not None and self._set_aside.get(job.key) is job:
            del self._set_aside[job.key]

    def take(self, key: bytes | None) -> Job | None:
        """The job that was set aside of *key*, once the key is paused no longer; None without."""
        if key is None or key in self.keys:
            return None
        return self._set_aside.pop(key, None)
