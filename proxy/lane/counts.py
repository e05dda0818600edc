"""Counters and times of the messages of a topic."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from proxy.core.jobs.chains import Job
from proxy.core.jobs.measures import Measures
from proxy.core.keys.order_key import MissingKey
from proxy.core.keys.retry_policy import RetryPolicy
from proxy.core.leases.verdicts import Outcome
from proxy.core.pipeline.effects import Effects
from proxy.settings.groups import TopicSettings

#: Settings of a topic that leave messages out.
_FILTERS = ("tags", "actions", "pressure_traffic")


@dataclass(slots=True)
class TopicCounts:
    """Counts for one topic of one group since the proxy started, in messages.

    ``dead_lettered`` is by reason: exhausted (all deliveries failed), rejected (by the client or an
    action) or missing_key; ``missing_keys`` is by the policy applied. ``batch_waits``, not in
    messages, is by what waited: an answer or a pull.
    """

    delivered: int = 0
    acked: int = 0
    nacked: int = 0
    released: int = 0
    expired: int = 0
    revoked: int = 0
    fenced: int = 0
    filtered: int = 0
    failed_actions: int = 0
    parked: int = 0
    skipped: int = 0
    near_retention: int = 0
    deleted_unread: int = 0
    damaged_records: int = 0
    recreated: int = 0
    """Take-overs that found the topic deleted and created again."""
    passed_over: int = 0
    """Left out by the broker because the group does not want their tags."""
    filtered_in_a_row: int = 0
    """Filtered, here or by the broker, since the last delivery."""
    keyless_in_a_row: int = 0
    """Read without the order key since the last message that had it."""
    last_expired_ns: int = 0
    """Time of the last lease expiry; 0: none."""
    dead_lettered: Counter[str] = field(default_factory=Counter)
    missing_keys: Counter[str] = field(default_factory=Counter)
    batch_waits: Counter[str] = field(default_factory=Counter)
    measures: Measures = field(default_factory=Measures, compare=False)

    @property
    def failed(self) -> int:
        """Failed deliveries: nacked, expired, or failed at an action."""
        return self.nacked + self.expired + self.failed_actions

    def follow(self, before: TopicSettings, after: TopicSettings) -> None:
        """Begin again to count messages in a row whose fate other settings decide from now on."""
        if before.order_key != after.order_key:
            self.keyless_in_a_row = 0
        if any(getattr(before, name) != getattr(after, name) for name in _FILTERS):
            self.filtered_in_a_row = 0

    def count_delivered(self, messages: int) -> None:
        """Count *messages* delivered to clients."""
        self.delivered += messages
        self.filtered_in_a_row = 0

    def left_out(self, messages: int) -> None:
        """Count messages left out by the broker."""
        self.passed_over += messages
        self.filtered_in_a_row += messages

    def deleted(self, messages: int) -> None:
        """Count *messages* deleted unread by retention."""
        self.deleted_unread += messages

    def batch_waited(self, before: Literal["answer", "pull"]) -> None:
        """Count a wait for further messages."""
        self.batch_waits[before] += 1

    def taken_over(self, *, recreated: bool = False, damaged: bool = False) -> None:
        """Count a take-over that found the topic *recreated* or its records *damaged*."""
        self.recreated += recreated
        self.damaged_records += damaged

    def neared_retention(self) -> None:
        """Count a stuck key that came near the end of retention."""
        self.near_retention += 1

    def voided(self, verdicts: int) -> None:
        """Count verdicts on an ownership period that is not this proxy's."""
        self.fenced += verdicts

    def lease_expired(self, now_ns: int) -> None:
        """Note the expiry of a lease."""
        self.last_expired_ns = now_ns

    def without_key(self, messages: int, policy: MissingKey) -> None:
        """Count *messages* without an order key, to which *policy* applied."""
        self.missing_keys[policy.value] += messages

    def keys_read(self, messages: int, *, missing: int) -> None:
        """Count *messages* of one read, of which *missing* had no order key."""
        self.keyless_in_a_row = self.keyless_in_a_row + missing if messages == missing else 0

    def add(self, effects: Effects) -> None:
        """Count the results of one event of a pipeline, except dead letters and messages without a
        key.
        """
        acked = len(effects.acked)
        self.acked += acked
        if effects.plain and len(effects.finished) == acked:
            return
        self.nacked += len(effects.nacked)
        self.released += len(effects.released)
        self.expired += len(effects.expired) + len(effects.stalled)
        self.revoked += len(effects.revoked)
        self.fenced += len(effects.fenced)
        self.failed_actions += len(effects.failed_actions)
        if len(effects.finished) > len(effects.acked):  # not all finished by an ack
            for _, outcome in effects.finished:
                self.filtered += outcome is Outcome.FILTERED
                self.filtered_in_a_row += outcome is Outcome.FILTERED
                self.parked += outcome is Outcome.PARKED
                self.skipped += outcome is Outcome.SKIPPED
                self.deleted_unread += outcome is Outcome.DELETED

    def dead_letter(self, job: Job, policy: RetryPolicy) -> None:
        """Count a stored dead letter."""
        if not job.attempts:
            reason = "missing_key"  # it was never delivered
        else:
            reason = "exhausted" if policy.gives_up(job.attempts) else "rejected"
        self.dead_lettered[reason] += 1
