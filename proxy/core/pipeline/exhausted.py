"""What becomes of jobs whose hand-outs are used up: a strategy of the pipeline. Pure.

``DeadLetters`` is the plain one. With ``on_exhausted: block`` no job is ever given up, so it serves
for that, too. ``proxy.core.parking`` has the one that parks keys, and that of a parked twin.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from proxy.core.jobs.chains import Job
from proxy.core.pipeline.effects import Effects


class OnExhausted(Protocol):
    """Decides what becomes of a job that is given up. It may hold keys back meanwhile, and is told
    of what happens to them. Callers: settlement, dispatch and the pipeline.
    """

    @property
    def under_way(self) -> Collection[int]:
        """Offsets of jobs whose dead letters are being stored."""

    @property
    def held(self) -> Collection[bytes | None]:
        """Keys of which nothing is handed out, as they are at any time."""

    @property
    def watched(self) -> Collection[bytes | None]:
        """Keys of which ``freed`` is told, as they are at any time."""

    @property
    def timed(self) -> bool:
        """True while ``on_time`` has to be called."""

    def give_up(self, job: Job, effects: Effects) -> None:
        """The hand-outs of *job* are used up, or its client rejected it. Affects: *effects*."""

    def stored(self, job: Job) -> None:
        """The dead letter of *job* is stored. Raises KeyError if none was under way."""

    def failed(self, job: Job) -> None:
        """A hand-out of *job* failed; it waits for the next, or is given up."""

    def freed(self, key: bytes) -> None:
        """No client has the first job of *key*, one of ``watched``, any more."""

    def is_back(self, job: Job) -> None:
        """The message of *job*, which was set down, is in memory again."""

    def held_back_no_more(self, offset: int) -> None:
        """No client of the owner before has the job there any more."""

    def on_time(self, now_ns: int) -> None:
        """Time has passed."""

    def conclude(self, effects: Effects) -> None:
        """An event ends; keys are held, or something is to be read again. Affects: *effects*."""


class DeadLetters:
    """Stores a copy of each job that is given up; the job runs, and its key waits, meanwhile."""

    held: Collection[bytes | None] = ()
    watched: Collection[bytes | None] = ()
    timed = False

    def __init__(self) -> None:
        self.under_way: set[int] = set()

    def give_up(self, job: Job, effects: Effects) -> None:
        """Have a copy of *job* stored."""
        self.under_way.add(job.offset)
        effects.dead_letters.append(job)

    def stored(self, job: Job) -> None:
        """The copy of *job* is stored."""
        self.under_way.remove(job.offset)

    def failed(self, job: Job) -> None:
        """Nothing: it waits."""

    def freed(self, key: bytes) -> None:
        """Nothing: it watches none."""

    def is_back(self, job: Job) -> None:
        """Nothing."""

    def held_back_no_more(self, offset: int) -> None:
        """Nothing."""

    def on_time(self, now_ns: int) -> None:
        """Nothing."""

    def conclude(self, effects: Effects) -> None:
        """Nothing."""
