"""Truncation of a copied log at the next start, so that it matches the original again.

The plan is saved first and deleted last: a start that is killed in between repeats all of it.
Removed bytes stay in ``*.dropped`` files beside the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from broker_core.names import Topic
from broker_core.store.commit_log import CommitLog, Dropped
from broker_core.store.consume_queues import ConsumeQueues

QueueStarts = Mapping[Topic, Mapping[int, int]]


@dataclass(frozen=True, slots=True)
class Rejoin:
    """The log shall end at ``end``; messages before ``visible`` may be served as before.

    With ``queue_starts`` all messages are removed, the log begins at ``end``, and the queues
    continue at these offsets, by topic and id.
    """

    end: int
    visible: int
    queue_starts: QueueStarts | None = None

    @classmethod
    def from_table(cls, content: dict[str, Any]) -> Rejoin | None:
        """Return None if there is nothing to do."""
        if not content:
            return None
        starts = content.get("queueStarts")
        return cls(
            int(content["end"]),
            int(content["visible"]),
            None
            if starts is None
            else {
                Topic(topic): {int(queue_id): int(offset) for queue_id, offset in those.items()}
                for topic, those in starts.items()
            },
        )

    def to_table(self) -> dict[str, Any]:
        """Inverse of ``from_table``."""
        starts = self.queue_starts
        return {
            "end": self.end,
            "visible": self.visible,
            "queueStarts": None
            if starts is None
            else {
                topic: {str(queue_id): offset for queue_id, offset in those.items()}
                for topic, those in starts.items()
            },
        }

    def apply(self, log: CommitLog, queues: ConsumeQueues) -> Dropped:
        """Truncate the log; a recovery must follow, which truncates the queues.

        May be repeated if nothing was appended since. Raises OSError.
        """
        if self.queue_starts is None:
            return log.open_at(self.end)
        for queue in queues:
            queue.start_at(0)
        for topic, starts in self.queue_starts.items():
            for queue_id, offset in starts.items():
                queues.obtain(topic, queue_id).start_at(offset)
        return log.begin_at(self.end)
