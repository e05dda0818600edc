"""What a copy of a log has to become at its next start, to fit the log that it is a copy of.

It is written down first, and taken away last: a start that is killed in the middle of it does all
of it again. What leaves the log stays in ``*.dropped`` files beside it.
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

    With ``queue_starts`` all messages leave it, and it begins anew there: the queues then go on at
    these offsets, by topic and id.
    """

    end: int
    visible: int
    queue_starts: QueueStarts | None = None

    @classmethod
    def from_table(cls, content: dict[str, Any]) -> Rejoin | None:
        """Return None if nothing is to be done."""
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
        """Cut the log; a recovery has to follow, which does as much for the queues.

        May be done again, if nothing was appended since. Raises OSError.
        """
        if self.queue_starts is None:
            return log.open_at(self.end)
        for queue in queues:
            queue.start_at(0)
        for topic, starts in self.queue_starts.items():
            for queue_id, offset in starts.items():
                queues.obtain(topic, queue_id).start_at(offset)
        return log.begin_at(self.end)
