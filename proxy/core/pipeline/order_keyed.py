"""By which rule the messages of a queue have their order keys, and how another one comes. Pure.

``key_rules`` has the rules, ``key_change`` what waits while messages of two rules are unfinished.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from broker_core.remoting.message import StoredMessage
from proxy.core.jobs.changes import Noted
from proxy.core.jobs.jobs import Jobs
from proxy.core.keys.key_rules import KeyRecord, KeyRule
from proxy.core.keys.topic_rules import TopicRules
from proxy.core.leases.lease_book import LeaseBook
from proxy.core.pipeline.effects import Effects
from proxy.core.pipeline.key_acts import KeyActs
from proxy.core.records.parked_key import ParkedKey


class OrderKeyed(KeyActs):
    """The order key of one queue. Of a parked twin the queue itself has the say."""

    jobs: Jobs
    parked: Noted[bytes, ParkedKey]

    def __init__(
        self,
        jobs: Jobs,
        leases: LeaseBook,
        rules: TopicRules,
        *,
        keys: KeyRecord | None,
        parked: Noted[bytes, ParkedKey],
        is_twin: bool,
        **arguments: Any,
    ) -> None:
        """*keys*: what the records say, None if they do not. Others are those of ``HandOuts``."""
        super().__init__(jobs, leases, rules, **arguments)
        #: By which rule messages have their keys; may be ahead of what the records say.
        self.key_record = keys or KeyRecord.first(rules)
        #: The switch is chosen, and no record says so yet: nothing is read meanwhile.
        self.key_change_planned = False
        self.parked = parked
        self._is_twin = is_twin
        if self.key_record.before is not None:
            self._begin_key_change()

    @property
    def recorded_keys(self) -> KeyRecord | None:
        """What its records have to say of the order key."""
        return None if self._is_twin else self.key_record

    @property
    def key_change_due(self) -> bool:
        """True if the rules want another order key, and the last change is through. One at a time:
        then there are two rules at most, and older messages are those below one switch.
        """
        return (
            not (self.draining or self.closed or self.key_change_planned or self._is_twin)
            and self.key_record.before is None
            and self.key_record.wants_change(self.rules)
        )

    def plan_key_change(self) -> None:
        """Choose the switch: all that may have been handed out, or copied, lies below. Nothing is
        read until a record says so, for whoever takes over must know by which rule a message was
        handed out.
        """
        since = max(self.jobs.read, self.copied_below)
        self.key_record = self.key_record.changed(self.rules, since=since)
        self.key_change_planned = True

    @property
    def copied_below(self) -> int:
        """All messages with parked copies have lower offsets; those of an owner before, too, that
        was killed before a record said how far it had read.
        """
        return 0

    def key_change_recorded(self) -> Effects:
        """A record names the switch: read on. Affects: chains."""
        self.key_change_planned = False
        if self.closed:
            return Effects()
        self._begin_key_change()
        return self._with_refills(Effects(keys_changed=True))

    def older_counted(self, asked: Sequence[int], messages: Mapping[int, StoredMessage]) -> Effects:
        """Older messages were read once more, to be counted under their new keys."""
        if self.jobs.change is not None:
            self.jobs.change.counted(asked, messages)
        return self._with_refills(Effects())

    def older_copies_read(self, found: Mapping[bytes, Collection[bytes]]) -> Effects:
        """The copies of older messages were looked at: new keys of those of each parked key."""
        if self.jobs.change is not None:
            self.jobs.change.twin_read({k: keys for k, keys in found.items() if k in self.parked})
        return self._with_refills(Effects())

    @property
    def key_change_in_words(self) -> str:
        """What a change of the order key waits for; "" if there is none."""
        record, change = self.key_record, self.jobs.change
        if not self._is_twin and record.is_newer_than(self.rules):
            return f"the settings here are older than its order key, {record.rule}"
        if self.key_change_planned:
            return f"to {record.rule}: about to begin"
        if change is None:
            return ""
        if change.counting:
            return f"to {record.rule}: older messages are being counted"
        if self.jobs.older:
            return f"to {record.rule}: older messages are unfinished"
        return f"to {record.rule}: older messages of parked keys wait for a redrive"

    def _begin_key_change(self) -> None:
        since = self.key_record.since
        parked = any(each.first < since for each in self.parked.values())
        self.jobs.begin_change(self.key_record, parked=parked)

    def _with_refills(self, effects: Effects) -> Effects:
        if self.jobs.quiet:
            return effects  # as nearly always
        if self.jobs.change is not None and self.jobs.settle_change():
            self.key_record = self.key_record.through()
            effects.keys_changed = True
        return super()._with_refills(effects)

    def _rule_of(self, message: StoredMessage) -> KeyRule:
        record = self.key_record
        return record.rule if record.before is None else record.rule_at(message.queue_offset)
