"""By which rule the messages of a queue have their order keys, and how another one comes. Pure.

``key_rules`` has the rules, ``key_change`` what waits while messages of two rules are unfinished.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from broker_core.remoting.message import StoredMessage
from proxy.core.jobs.changes import Noted
from proxy.core.jobs.jobs import Jobs
from proxy.core.keys.key_rules import KeyRecord, KeyRule
from proxy.core.keys.topic_rules import TopicRules
from proxy.core.records.parked_key import ParkedKey


class KeySwitch:
    """The order key of one queue. A parked twin has one that never changes: the queue decides.

    Caller: the pipeline; what changes keys (``proxy.upstream.key_changes``) through it. Affects:
    jobs, of which some wait while older messages are unfinished.
    """

    def __init__(
        self,
        jobs: Jobs,
        rules: TopicRules,
        record: KeyRecord | None,
        parked: Noted[bytes, ParkedKey],
        *,
        is_twin: bool,
    ) -> None:
        """*record*: what the ownership records say, None if they do not."""
        self._jobs, self._parked, self._is_twin = jobs, parked, is_twin
        #: By which rule messages have their keys; may be ahead of what the records say.
        self.record = record or KeyRecord.first(rules)
        #: The switch is chosen, and no record says so yet: nothing is read meanwhile.
        self.planned = False
        if self.record.before is not None:
            self.begin()

    @property
    def recorded(self) -> KeyRecord | None:
        """What the records of this queue have to say of the order key."""
        return None if self._is_twin else self.record

    def rule_of(self, message: StoredMessage) -> KeyRule:
        """The rule by which *message* has its key."""
        record = self.record
        return record.rule if record.before is None else record.rule_at(message.queue_offset)

    def is_due(self, rules: TopicRules) -> bool:
        """True if *rules* want another order key, and the last change is through. One at a time:
        then there are two rules at most, and older messages are those below one switch.
        """
        return (
            not (self.planned or self._is_twin)
            and self.record.before is None
            and self.record.wants_change(rules)
        )

    def plan(self, rules: TopicRules, *, copied_below: int) -> None:
        """Choose the switch: all that may have been handed out, or copied (*copied_below*), lies
        below. Nothing is read until a record says so, for the next owner must know by which rule a
        message was handed out.
        """
        since = max(self._jobs.read, copied_below)
        self.record = self.record.changed(rules, since=since)
        self.planned = True

    def planned_is_recorded(self) -> None:
        """A record names the switch."""
        self.planned = False

    def begin(self) -> None:
        """Have newer messages wait for older ones of their key; anew if it had begun."""
        since = self.record.since
        parked = any(each.first < since for each in self._parked.values())
        self._jobs.begin_change(self.record, parked=parked)

    def older_counted(self, asked: Sequence[int], messages: Mapping[int, StoredMessage]) -> None:
        """Older messages were read once more, to be counted under their new keys."""
        if self._jobs.change is not None:
            self._jobs.change.counted(asked, messages)

    def older_copies_read(self, found: Mapping[bytes, Collection[bytes]]) -> None:
        """The copies of older messages were looked at: new keys of those of each parked key."""
        if self._jobs.change is not None:
            parked = {key: keys for key, keys in found.items() if key in self._parked}
            self._jobs.change.twin_read(parked)

    def settle(self) -> bool:
        """Let go on what waits for older messages no longer; True if the change is through now."""
        if self._jobs.change is None or not self._jobs.settle_change():
            return False
        self.record = self.record.through()
        return True

    def in_words(self, rules: TopicRules) -> str:
        """What a change of the order key waits for; "" if there is none."""
        record, change = self.record, self._jobs.change
        if not self._is_twin and record.is_newer_than(rules):
            return f"the settings here are older than its order key, {record.rule}"
        if self.planned:
            return f"to {record.rule}: about to begin"
        if change is None:
            return ""
        if change.counting:
            return f"to {record.rule}: older messages are being counted"
        if self._jobs.older:
            return f"to {record.rule}: older messages are unfinished"
        return f"to {record.rule}: older messages of parked keys wait for a redrive"
