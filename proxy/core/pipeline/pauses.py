"""Paused keys of a queue, and pauses of the whole queue. Pure.

A paused key is not delivered: its first job, once its turn comes, is set aside until the key is
resumed, and the others wait behind it as usual. Clients may finish the jobs that they hold. So a
pause never changes the order: the next job of a key depends on its chain only.
"""

from __future__ import annotations

from collections.abc import Iterator

from broker_core.names import QueueName
from proxy.core.jobs.chains import Job
from proxy.core.jobs.tracked_dict import TrackedDict
from proxy.core.records.paused_key import EVERYTHING, PausedKey


class Pauses:
    """Paused keys of one queue, and the jobs set aside for them.

    Caller: the pipeline, for operator actions (pause, resume) and for dispatch (set aside).
    Affects: ``keys``, which records and the parked twin share, and the group's lists of paused
    queues and of queues with paused keys.
    """

    def __init__(self, keys: TrackedDict[bytes | None, PausedKey]) -> None:
        #: Pauses by key, or ``EVERYTHING``. Read-only for others.
        self.keys = keys
        self._queues: dict[QueueName, PausedKey] = {}
        self._with_keys: dict[QueueName, Pauses] = {}
        self._set_aside: dict[bytes, Job] = {}

    @property
    def whole(self) -> PausedKey | None:
        """Pause of the whole queue; None if it is not paused."""
        return self.keys.get(EVERYTHING)

    def single_keys(self) -> Iterator[tuple[bytes, PausedKey]]:
        """Return the paused keys, without a pause of the whole queue."""
        return ((key, how) for key, how in self.keys.items() if key is not EVERYTHING)

    def register_in(
        self,
        queue: QueueName,
        queues: dict[QueueName, PausedKey],
        with_keys: dict[QueueName, Pauses],
    ) -> None:
        """Keep *queues* up to date with the pause of the whole *queue*, and *with_keys*, which has
        the queues with paused keys. Caller: group buffer.
        """
        self._queues, self._with_keys = queues, with_keys
        if (pause := self.whole) is not None:
            queues[queue] = pause
        self._list(queue)

    def _list(self, queue: QueueName) -> None:
        if any(True for _ in self.single_keys()):
            self._with_keys[queue] = self
        else:
            self._with_keys.pop(queue, None)

    def pause(self, queue: QueueName, key: bytes | None, how: PausedKey) -> bool:
        """Pause *key* (or ``EVERYTHING``) of *queue*; return False if it is paused already."""
        if key is EVERYTHING:
            self._queues.setdefault(queue, how)
        if key in self.keys:
            return False
        self.keys[key] = how
        self._list(queue)
        return True

    def resume(self, queue: QueueName, key: bytes | None) -> PausedKey | None:
        """Resume *key*; return its pause, None if it was not paused."""
        if key is EVERYTHING:
            self._queues.pop(queue, None)
        how: PausedKey | None = self.keys.pop(key, None)
        self._list(queue)
        return how

    # ---- jobs -----------------------------------------------------------------------------------

    def set_aside(self, job: Job) -> bool:
        """Set *job*, whose turn has come, aside if its key is paused, else return False."""
        if job.key is None or job.key not in self.keys:
            return False
        self._set_aside[job.key] = job
        return True

    def has(self, job: Job) -> bool:
        """Return True if *job* is set aside."""
        return job.key is not None and self._set_aside.get(job.key) is job

    def forget(self, job: Job) -> None:
        """Forget *job* if it is set aside, because it was taken otherwise."""
        if job.key is not None and self._set_aside.get(job.key) is job:
            del self._set_aside[job.key]

    def close(self) -> None:
        """Forget all jobs that are set aside."""
        self._set_aside.clear()

    def take(self, key: bytes | None) -> Job | None:
        """Take the job set aside for *key* if the key is no longer paused; None without any."""
        if key is None or key in self.keys:
            return None
        return self._set_aside.pop(key, None)
