"""The damaged messages of a store, as far as known: found at the start, by reads, or by repairs.

Each finding is logged once. A run is a range of offsets of one queue whose messages are damaged at
one place of the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import structlog

from broker_core.names import Topic
from broker_core.store.log_scan import Gap

_log = structlog.get_logger("store")


class DamagedRun(NamedTuple):
    """The messages from offset *first* to *end* (excluded) of one queue."""

    topic: Topic
    queue_id: int
    first: int
    end: int
    gap: Gap

    def __str__(self) -> str:
        """Return the messages, the file, the place and the reason, as one sentence."""
        which = f"message {self.first}"
        if self.end - self.first > 1:
            which = f"messages {self.first} to {self.end - 1}"
        return (
            f"damaged on disk: {which} of queue {self.queue_id} of topic {self.topic}, at byte"
            f" {self.gap.position} of {self.gap.path}: {self.gap.reason}"
        )


class DamagedMessages:
    """The known runs by queue. One thread only."""

    def __init__(self) -> None:
        self._runs: dict[tuple[Topic, int], list[DamagedRun]] = {}

    def __len__(self) -> int:
        """Return the number of damaged messages known."""
        return sum(run.end - run.first for run in self)

    def __iter__(self) -> Iterator[DamagedRun]:
        for runs in self._runs.values():
            yield from runs

    def find(self, topic: Topic, queue_id: int, offset: int) -> DamagedRun | None:
        """Return the run that contains *offset*, or None."""
        for run in self._runs.get((topic, queue_id), ()):
            if run.first <= offset < run.end:
                return run
        return None

    def add(self, run: DamagedRun) -> None:
        """Add *run*, unless it is known, and log it."""
        if self.find(run.topic, run.queue_id, run.first) is not None:
            return
        self._runs.setdefault((run.topic, run.queue_id), []).append(run)
        _log.error(
            "damaged messages are not delivered; all others of the queue can be read",
            topic=run.topic,
            queue=run.queue_id,
            first_offset=run.first,
            messages=run.end - run.first,
            file=str(run.gap.path),
            position=run.gap.position,
            reason=run.gap.reason,
        )

    def forget_topic(self, topic: Topic) -> None:
        """Remove the runs of a deleted topic."""
        for name in [each for each in self._runs if each[0] == topic]:
            del self._runs[name]

    def forget_before(self, topic: Topic, queue_id: int, offset: int) -> None:
        """Remove runs that end at or before *offset*: retention deleted their messages."""
        name = (topic, queue_id)
        if name in self._runs:
            self._runs[name] = [run for run in self._runs[name] if run.end > offset]
            if not self._runs[name]:
                del self._runs[name]
