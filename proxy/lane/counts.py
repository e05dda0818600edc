"""What happened to the messages of a topic, in numbers, and how long it took."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from proxy.core.jobs.chains import Job
from proxy.core.jobs.measures import Measures
from proxy.core.keys.order_key import MissingKey
from proxy.core.keys.retry_policy import RetryPolicy
from proxy.core.leases.verdicts import Outcome
from proxy.core.pipeline.effects import Effects


@dataclass(slots=True)
class TopicCounts:
    """What happened to one topic of one group since the proxy started; all in messages.

    ``dead_lettered`` is by reason: exhausted (all hand-outs failed), rejected (by its client, or an
    action) or missing_key; ``missing_keys`` by the policy that was followed.
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
    """Left out by the broker: their tags are not wanted."""
    filtered_in_a_row: int = 0
    """Filtered, here or by the broker, since one was handed out the last time."""
    last_expired_ns: int = 0
    """When a lease ran out the last time; 0: none did."""
    dead_lettered: Counter[str] = field(default_factory=Counter)
    missing_keys: Counter[str] = field(default_factory=Counter)
    measures: Measures = field(default_factory=Measures, compare=False)

    @property
    def failed(self) -> int:
        """Hand-outs that came to nothing for their message's or its client's sake."""
        return self.nacked + self.expired + self.failed_actions

    def handed_out(self, messages: int) -> None:
        """So many *messages* went to clients."""
        self.delivered += messages
        self.filtered_in_a_row = 0

    def passed(self, *, over: int) -> None:
        """The broker left out so many."""
        self.passed_over += over
        self.filtered_in_a_row += over

    def deleted(self, messages: int) -> None:
        """Retention deleted so many unread."""
        self.deleted_unread += messages

    def taken_over(self, *, recreated: bool = False, damaged: bool = False) -> None:
        """A take-over found the topic *recreated*, or its records *damaged*."""
        self.recreated += recreated
        self.damaged_records += damaged

    def neared_retention(self) -> None:
        """A key that is stuck came near the end of retention."""
        self.near_retention += 1

    def voided(self, verdicts: int) -> None:
        """So many verdicts were on a period of ownership that is not this proxy's."""
        self.fenced += verdicts

    def lease_expired(self, now_ns: int) -> None:
        """A lease ran out."""
        self.last_expired_ns = now_ns

    def add(self, effects: Effects, *, missing: MissingKey) -> None:
        """Count what one event of a pipeline led to, but for dead letters. *missing*: what happened
        to messages without their key.
        """
        self.acked += len(effects.acked)
        if effects.missing_keys:
            self.missing_keys[missing.value] += effects.missing_keys
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
                self.filtered_in_a_row += outcome is Outcome.FILTERED
                self.parked += outcome is Outcome.PARKED
                self.skipped += outcome is Outcome.SKIPPED
                self.deleted_unread += outcome is Outcome.DELETED

    def dead_letter(self, job: Job, policy: RetryPolicy) -> None:
        """The copy of *job* was stored."""
        if not job.attempts:
            reason = "missing_key"  # nobody ever had it
        else:
            reason = "exhausted" if policy.gives_up(job.attempts) else "rejected"
        self.dead_lettered[reason] += 1
