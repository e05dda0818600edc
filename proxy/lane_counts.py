"""What happened to the messages of a topic, in numbers."""

from __future__ import annotations

from dataclasses import dataclass

from proxy.core.effects import Effects, Outcome


@dataclass(slots=True)
class TopicCounts:
    """What happened to one topic of one group since the proxy started; all in messages."""

    delivered: int = 0
    acked: int = 0
    nacked: int = 0
    released: int = 0
    expired: int = 0
    revoked: int = 0
    fenced: int = 0
    filtered: int = 0
    failed_actions: int = 0
    dead_lettered: int = 0
    parked: int = 0
    skipped: int = 0
    near_retention: int = 0
    missing_keys: int = 0
    deleted_unread: int = 0
    damaged_records: int = 0

    def add(self, effects: Effects) -> None:
        """Count what one event of a pipeline led to."""
        self.acked += len(effects.acked)
        self.missing_keys += effects.missing_keys
        if effects.plain and len(effects.finished) == len(effects.acked):
            return
        self.nacked += len(effects.nacked)
        self.released += len(effects.released)
        self.expired += len(effects.expired)
        self.revoked += len(effects.revoked)
        self.fenced += len(effects.fenced)
        self.failed_actions += len(effects.failed_actions)
        if len(effects.finished) > len(effects.acked):  # not all finished by an ack
            for _, outcome in effects.finished:
                self.filtered += outcome is Outcome.FILTERED
                self.dead_lettered += outcome is Outcome.DEAD_LETTERED
                self.parked += outcome is Outcome.PARKED
                self.skipped += outcome is Outcome.SKIPPED
                self.deleted_unread += outcome is Outcome.DELETED
