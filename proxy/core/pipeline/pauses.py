"""Paused keys of a queue, and pauses of the whole queue. Pure.

A paused key is not delivered: its first job, once its turn comes, is set aside until the key is
resumed, and the others wait behind it as usual. Clients may finish the jobs that they hold. So a
pause never changes the order: the next job of a key depends on its chain only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from broker_core.names import Topic
from proxy.core.jobs.chains import Job
from proxy.core.jobs.tracked_dict import TrackedDict
from proxy.core.records.paused_key import EVERYTHING, PausedKey


class GroupPauses:
    """Queues of a group here that are paused, and the paused keys of each topic, both by the queues
    that have them. Each change is O(1). Caller: the pauses of these queues, and the group buffer.
    """

    def __init__(self) -> None:
        self._whole: dict[Pauses, None] = {}
        self._keys: dict[Topic, dict[bytes, dict[Pauses, None]]] = defaultdict(dict)

    def add(self, topic: Topic, key: bytes | None, pauses: Pauses) -> None:
        """Note that the queue of *pauses* has a pause of *key* of *topic*, or ``EVERYTHING``."""
        holders = self._whole if key is EVERYTHING else self._keys[topic].setdefault(key, {})
        holders[pauses] = None

    def remove(self, topic: Topic, key: bytes | None, pauses: Pauses) -> None:
        """Undo ``add``."""
        if key is EVERYTHING:
            self._whole.pop(pauses, None)
            return
        keys = self._keys[topic]
        holders = keys.get(key, {})
        holders.pop(pauses, None)
        if not holders:
            keys.pop(key, None)
            if not keys:
                del self._keys[topic]

    @property
    def whole(self) -> PausedKey | None:
        """Pause of the group, if any of its queues here is paused. O(1)."""
        return next(iter(self._whole)).whole if self._whole else None

    def keys(self, topic: Topic) -> dict[bytes, PausedKey]:
        """Return the keys of *topic* that are paused in any of its queues here. O(result)."""
        keys = self._keys.get(topic, {})
        return {key: next(iter(holders)).keys[key] for key, holders in keys.items()}


class Pauses:
    """Paused keys of one queue, and the jobs set aside for them.

    Caller: the pipeline, for operator actions (pause, resume) and for dispatch (set aside).
    Affects: ``keys``, which records and the parked twin share, and the pauses of the group.
    """

    def __init__(self, keys: TrackedDict[bytes | None, PausedKey]) -> None:
        #: Pauses by key, or ``EVERYTHING``. Read-only for others.
        self.keys = keys
        self._group: tuple[GroupPauses, Topic] | None = None
        self._set_aside: dict[bytes, Job] = {}

    @property
    def whole(self) -> PausedKey | None:
        """Pause of the whole queue; None if it is not paused."""
        return self.keys.get(EVERYTHING)

    def register_in(self, group: GroupPauses, topic: Topic) -> None:
        """Keep the pauses of *topic* in *group* up to date from now on. Caller: group buffer."""
        self._group = group, topic
        for key in self.keys:
            group.add(topic, key, self)

    def unregister(self) -> None:
        """Undo ``register_in``: later changes do not matter to the group."""
        for key in self.keys:
            self._tell(GroupPauses.remove, key)
        self._group = None

    def _tell(
        self, what: Callable[[GroupPauses, Topic, bytes | None, Pauses], None], key: bytes | None
    ) -> None:
        if self._group is not None:
            group, topic = self._group
            what(group, topic, key, self)

    def pause(self, key: bytes | None, how: PausedKey) -> bool:
        """Pause *key* (or ``EVERYTHING``); return False if it is paused already."""
        if key in self.keys:
            return False
        self.keys[key] = how
        self._tell(GroupPauses.add, key)
        return True

    def resume(self, key: bytes | None) -> PausedKey | None:
        """Resume *key*; return its pause, None if it was not paused."""
        how: PausedKey | None = self.keys.pop(key, None)
        if how is not None:
            self._tell(GroupPauses.remove, key)
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
