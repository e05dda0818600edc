"""Strategies of the pipeline for jobs that used up their deliveries. Pure.

``DeadLetters`` is the default. It also serves ``on_exhausted: block``, which never gives up a job.
``proxy.core.parking`` has the strategies that park keys, for a queue and for its parked twin.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from proxy.core.jobs.chains import Job
from proxy.core.pipeline.effects import Effects


class OnExhausted(Protocol):
    """Decides what happens to a job that is given up. It may hold keys meanwhile, and is notified
    of events of these. Callers: settlement, dispatch and the pipeline.
    """

    @property
    def under_way(self) -> Collection[int]:
        """Offsets of jobs whose dead letters are being stored."""

    @property
    def held(self) -> Collection[bytes | None]:
        """Keys that must not be delivered; a live view."""

    @property
    def watched(self) -> Collection[bytes | None]:
        """Keys for which ``freed`` is called; a live view."""

    @property
    def timed(self) -> bool:
        """True while ``on_time`` must be called."""

    def give_up(self, job: Job, effects: Effects) -> None:
        """Give up *job*, out of deliveries or rejected by its client. Affects: *effects*."""

    def stored(self, job: Job) -> None:
        """Note that the dead letter of *job* is stored. Raise KeyError if none was under way."""

    def failed(self, job: Job) -> None:
        """Note that a delivery of *job* failed; it waits for the next one, or is given up."""

    def freed(self, key: bytes) -> None:
        """Note that no client holds the first job of *key*, one of ``watched``, any more."""

    def is_back(self, job: Job) -> None:
        """Note that the message of *job*, which was unloaded, is in memory again."""

    def held_back_no_more(self, offset: int) -> None:
        """Note that no client of the earlier owner holds the job at *offset* any more."""

    def on_time(self, now_ns: int) -> None:
        """Note the current time."""

    def conclude(self, effects: Effects) -> None:
        """Finish an event while keys are held or refills wait. Affects: *effects*."""


class DeadLetters:
    """Dead-letters each job that is given up; the job runs, and its key waits, meanwhile."""

    held: Collection[bytes | None] = ()
    watched: Collection[bytes | None] = ()
    timed = False

    def __init__(self) -> None:
        self.under_way: set[int] = set()

    def give_up(self, job: Job, effects: Effects) -> None:
        """Request a copy of *job*."""
        self.under_way.add(job.offset)
        effects.dead_letters.append(job)

    def stored(self, job: Job) -> None:
        """Note that the copy of *job* is stored."""
        self.under_way.remove(job.offset)

    def failed(self, job: Job) -> None:
        """Do nothing: the job waits."""

    def freed(self, key: bytes) -> None:
        """Do nothing: no key is watched."""

    def is_back(self, job: Job) -> None:
        """Do nothing."""

    def held_back_no_more(self, offset: int) -> None:
        """Do nothing."""

    def on_time(self, now_ns: int) -> None:
        """Do nothing."""

    def conclude(self, effects: Effects) -> None:
        """Do nothing."""
