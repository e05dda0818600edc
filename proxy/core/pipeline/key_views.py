"""Views of single keys: state, first message, backlog and holder. Pure.

A view of one key is O(1). Lists of all keys are made in slices, so that the caller can do other
work in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import islice
from typing import Any

from proxy.core.jobs.chains import Job, JobState
from proxy.core.keys.order_key import key_text
from proxy.core.keys.retry_policy import MS
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.core.records.paused_key import EVERYTHING

#: Number of keys in a slice.
SLICE = 2000


class KeyState(StrEnum):
    """State of the first unfinished message of a key."""

    NONE = "none"  # no unfinished message
    READY = "ready"
    LEASED = "leased"
    RETRYING = "retrying"
    READING = "reading"  # its message is being read again
    DEAD_LETTERING = "dead-lettering"
    PAUSED = "paused"
    PARKED = "parked"
    REDRIVEN = "redriven"


@dataclass(frozen=True, slots=True)
class KeyView:
    """One key of one queue. Times are milliseconds; fields that do not apply are None.

    ``backlog`` counts unfinished messages, ``copies`` the parked ones among them; ``offset`` is the
    first one's (in the parked topic if the key is parked), ``age_ms`` the time since it was stored.
    """

    key: str
    topic: str
    queue: str
    state: KeyState
    paused: bool
    offset: int | None = None
    age_ms: int | None = None
    backlog: int = 0
    copies: int = 0
    spilled: int = 0
    attempts: int = 0
    holder: str | None = None
    lease: int | None = None
    lease_ends_ms: int | None = None
    overdue: bool = False
    retry_ms: int | None = None
    last_error: str = ""
    by: str = ""
    reason: str = ""
    note: str = ""

    @property
    def blocked(self) -> bool:
        """True if the first message keeps its key waiting: it failed, exceeds the normal length of
        a lease, or has a spilled backlog behind it.
        """
        return (
            self.state in (KeyState.RETRYING, KeyState.DEAD_LETTERING)
            or self.overdue
            or (self.spilled > 0 and self.state in (KeyState.LEASED, KeyState.READY))
        )

    def row(self) -> dict[str, Any]:
        """Return all fields by name."""
        return {**asdict(self), "state": str(self.state)}


class KeyViews:
    """Views of one queue's keys at one moment."""

    def __init__(self, pipeline: QueuePipeline, *, now_ns: int, wall_ms: int) -> None:
        self._pipeline = pipeline
        self._now_ns, self._wall_ms = now_ns, wall_ms

    def of(self, key: bytes) -> KeyView:
        """Return the view of *key*, which may have no unfinished messages."""
        pipeline, twin = self._pipeline, self._pipeline.twin
        parked = pipeline.parked.get(key)
        pause = pipeline.paused.get(key) or pipeline.paused.get(EVERYTHING)
        backlog = pipeline.jobs.by_key.backlog(key)
        copies = 0 if twin is None else twin.jobs.by_key.backlog(key)
        if parked is not None and twin is not None and copies:
            about = self._head(twin, key)
        else:
            about = self._head(pipeline, key)
        if parked is not None:
            redriven = twin is not None and key in (twin.jobs.residency.wanted or ())
            about["state"] = KeyState.REDRIVEN if redriven else KeyState.PARKED
        elif pause is not None and about["state"] is not KeyState.LEASED:
            about["state"] = KeyState.PAUSED
        who = parked or pause
        return KeyView(
            key=key_text(key) or "",
            topic=pipeline.topic,
            queue=pipeline.place,
            paused=pause is not None,
            backlog=backlog + copies,
            copies=copies,
            by="" if who is None else who.by,
            reason="" if who is None else who.reason,
            note=(parked and parked.note) or (pause and pause.note) or "",
            **about,
        )

    def _head(self, pipeline: QueuePipeline, key: bytes) -> dict[str, Any]:
        spilled = pipeline.jobs.by_key.waiting(key)
        job = pipeline.jobs.by_key.head(key)
        if job is None:
            state = KeyState.READING if spilled else KeyState.NONE
            return {"state": state, "offset": pipeline.jobs.by_key.lowest(key), "spilled": spilled}
        stored_ms = pipeline.jobs.residency.unloaded.stored_ms(job)
        about: dict[str, Any] = {
            "state": KeyState.READY,
            "offset": job.offset,
            "age_ms": None if stored_ms is None else max(0, self._wall_ms - stored_ms),
            "spilled": spilled,
            "attempts": job.attempts,
            "last_error": job.reason,
        }
        return {**about, **self._state(pipeline, job)}

    def _state(self, pipeline: QueuePipeline, job: Job) -> dict[str, Any]:
        if (lease := pipeline.leases.at(job.offset)) is not None:
            return {
                "state": KeyState.LEASED,
                "holder": lease.holder.client or f"connection {lease.holder.connection}",
                "lease": int(lease.lease_id),
                "lease_ends_ms": max(0, lease.deadline_ns - self._now_ns) // MS,
                "overdue": self._now_ns > lease.first_deadline_ns,
            }
        due_ns = pipeline.leases.due_ns(job.offset)
        if job.state is JobState.RUNNING and due_ns is not None:
            return {"state": KeyState.RETRYING, "retry_ms": max(0, due_ns - self._now_ns) // MS}
        if pipeline.is_dead_lettering(job):
            return {"state": KeyState.DEAD_LETTERING}
        if pipeline.jobs.residency.unloaded.has(job):
            return {"state": KeyState.READING}
        return {}


def slices(keys: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yield *keys* in lists of at most ``SLICE``."""
    rest = iter(keys)
    while some := list(islice(rest, SLICE)):
        yield some
