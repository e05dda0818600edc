"""Order-key rule of a queue's messages, and the switch to another rule. Pure.

``key_rules`` has the rules; ``key_change`` makes messages wait while two rules are in use.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from broker_core.remoting.message import StoredMessage
from proxy.core.jobs.jobs import Jobs
from proxy.core.jobs.tracked_dict import TrackedDict
from proxy.core.keys.key_rules import KeyRecord, KeyRule
from proxy.core.keys.topic_rules import TopicRules
from proxy.core.records.parked_key import ParkedKey


class KeySwitch:
    """The order key of one queue. A parked twin follows its queue and never changes by itself.

    Caller: the pipeline; ``proxy.upstream.key_changes`` through it. Affects: jobs, some of which
    wait while older messages are unfinished.
    """

    def __init__(
        self,
        jobs: Jobs,
        rules: TopicRules,
        record: KeyRecord | None,
        parked: TrackedDict[bytes, ParkedKey],
        *,
        is_twin: bool,
    ) -> None:
        """*record*: the order key in the ownership records, None if they contain none."""
        self._jobs, self._parked, self._is_twin = jobs, parked, is_twin
        #: The rules in use; may be ahead of the ownership records.
        self.record = record or KeyRecord.first(rules)
        #: The switch is chosen but not recorded yet: nothing is read meanwhile.
        self.planned = False
        if self.record.before is not None:
            self.begin()

    @property
    def recorded(self) -> KeyRecord | None:
        """The order key for this queue's ownership records."""
        return None if self._is_twin else self.record

    def rule_of(self, message: StoredMessage) -> KeyRule:
        """Return the rule for the key of *message*."""
        record = self.record
        return record.rule if record.before is None else record.rule_at(message.queue_offset)

    def is_due(self, rules: TopicRules) -> bool:
        """Return True if *rules* ask for another order key and the last change is complete.

        Only one change at a time: so there are at most two rules, and one switch separates older
        messages.
        """
        return (
            not (self.planned or self._is_twin)
            and self.record.before is None
            and self.record.wants_change(rules)
        )

    def plan(self, rules: TopicRules, *, copied_below: int) -> None:
        """Choose the switch above all messages that may have been delivered, or copied
        (*copied_below*).

        Nothing is read until it is recorded, because the next owner must know the rule by which a
        message was delivered.
        """
        since = max(self._jobs.read, copied_below)
        self.record = self.record.changed(rules, since=since)
        self.planned = True

    def planned_is_recorded(self) -> None:
        """Note that a record contains the switch."""
        self.planned = False

    def begin(self) -> None:
        """Make newer messages wait for older ones of their key; start again if it had begun."""
        since = self.record.since
        parked = any(each.first < since for each in self._parked.values())
        self._jobs.begin_change(self.record, parked=parked)

    def older_counted(self, asked: Sequence[int], messages: Mapping[int, StoredMessage]) -> None:
        """Count older messages, which were read again, under their new keys."""
        if self._jobs.change is not None:
            self._jobs.change.counted(asked, messages)

    def older_copies_read(self, found: Mapping[bytes, Collection[bytes]]) -> None:
        """Take the new keys of older parked copies, by parked key."""
        if self._jobs.change is not None:
            parked = {key: keys for key, keys in found.items() if key in self._parked}
            self._jobs.change.twin_read(parked)

    @property
    def waits_for_parked(self) -> bool:
        """True if a change waits for messages of parked keys only."""
        change = self._jobs.change
        counted = change is not None and not (self.planned or change.counting)
        return counted and not self._jobs.older

    def settle(self) -> bool:
        """Release jobs that no longer wait for older messages; return True if the change is
        complete.
        """
        if self._jobs.change is None or not self._jobs.settle_change():
            return False
        self.record = self.record.completed()
        return True

    def in_words(self, rules: TopicRules) -> str:
        """Return the state of a change of the order key; "" if there is none."""
        record, change = self.record, self._jobs.change
        if not self._is_twin and record.is_newer_than(rules):
            return f"the settings of this proxy are older than the order key in use, {record.rule}"
        if self.planned:
            return f"to {record.rule}: about to begin"
        if change is None:
            return ""
        if change.counting:
            return f"to {record.rule}: older messages are being counted"
        if self._jobs.older:
            return f"to {record.rule}: older messages are unfinished"
        return f"to {record.rule}: older messages of parked keys wait for a redrive"
