"""A queue with parked keys whose order key changes, over several owners.

Each message has a key and, in its body, an id. The steps are those of
``proxy.upstream.key_changes`` and of parking; a crash may follow each.
"""

from __future__ import annotations

from broker_core.remoting.message import StoredMessage
from proxy.core.keys.topic_rules import TopicRules
from proxy.core.leases.lease_book import Lease
from proxy.core.pipeline.effects import Effects
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from testkit.messages import message
from testkit.pipelines import rules
from tests.support.parking_site import RULES, ParkingSite


class RekeyedSite(ParkingSite):
    """Checks each delivery naively: all earlier messages with the same key by the message's own
    rule must be handled or dead-lettered. Unordered messages that fail are dead-lettered.
    """

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.order_key: str | None = "KEY"
        self.version = 0
        super().__init__()

    def wanted_rules(self) -> TopicRules:
        return rules(self.order_key, order_key_version=self.version, **RULES)

    def send(self, sent: list[tuple[str, str]]) -> None:
        """Send messages with a key and an id."""
        for key, ident in sent:
            self.sent.append(key)
            self.ids.append(ident)

    def stored(self, offset: int, **others: str) -> StoredMessage:
        body = f'{{"id":"{self.ids[offset]}"}}'.encode() if self.ids[offset] else b"{}"
        return message(offset, key=self.sent[offset], body=body, **others)

    # ---- steps of a change ----------------------------------------------------------------------

    def want(self, order_key: str | None) -> None:
        """Request a change as an operator."""
        self.order_key = order_key
        self.version += 1
        for each in (self.pipeline, self.twin):
            if each is not None:
                self.apply_effects(each, each.change_rules(self.wanted_rules()))

    def plan(self) -> None:
        """Choose the switch offset."""
        if self.pipeline.key_change_due:
            self.pipeline.plan_key_change()

    def begin_change(self) -> None:
        """Record the beginning of the change."""
        if self.pipeline.keys.planned:
            self.write_record(0)
            self.apply_effects(self.pipeline, self.pipeline.key_change_recorded())

    def count(self, most: int) -> None:
        """Count older messages; those that are not in memory are read again."""
        change = self.pipeline.jobs.change
        if change is not None and (asked := change.to_count(most)):
            found = {offset: self.stored(offset) for offset in change.to_read(asked)}
            self.apply_effects(self.pipeline, self.pipeline.older_counted(asked, found))

    def read_copies(self) -> None:
        """Check the copies in the twin."""
        change, record = self.pipeline.jobs.change, self.pipeline.keys.record
        if change is None or not change.twin_unread or record.before is None:
            return
        found: dict[bytes, set[bytes]] = {}
        for copy in self.copies:
            if int(copy.properties["ORDERLANE_OFFSET"]) < record.since:
                parked, key = record.before.chain_of(copy), record.rule.chain_of(copy)
                if parked is not None:
                    found.setdefault(parked, set()).update([] if key is None else [key])
        self.apply_effects(self.pipeline, self.pipeline.older_copies_read(found))

    def finish(self) -> None:
        """Finish the change too."""
        super().finish()
        assert self.pipeline.keys.record.before is None
        assert not self.pipeline.key_change_due

    def refill(self) -> None:
        self.plan()
        self.begin_change()
        self.read_copies()
        self.count(3)
        super().refill()

    def apply_effects(self, pipeline: QueuePipeline, effects: Effects) -> None:
        dead = list(effects.dead_letters)
        effects.dead_letters.clear()  # they are confirmed here
        super().apply_effects(pipeline, effects)
        for job in dead:
            self.done.add(job.offset)
            self.done_now.add(job.offset)
            self.apply_effects(pipeline, pipeline.dead_lettered(job))

    # ---- judging --------------------------------------------------------------------------------

    def _judge(self, pipeline: QueuePipeline, lease: Lease) -> None:
        offset, _ = self._origin(pipeline, lease)
        rule = self.pipeline.keys.record.rule_at(offset)
        key = rule.chain_of(self.stored(offset))
        assert lease.job.key == key, f"{offset} has the key {lease.job.key!r}, not {key!r}"
        assert offset not in self.durable, f"{offset} had finished, and that was recorded"
        if key is None:
            return
        for earlier in range(offset):
            if earlier not in self.done:
                same = rule.chain_of(self.stored(earlier)) == key
                assert not same, f"{offset} of {key!r} was handed out before {earlier}"
        live = [(self._origin(*each)[0], each[1].job.key) for each in self.leases
                if self._lives(*each)]  # fmt: skip
        assert key not in [of for _, of in live], f"{key!r} is in two hands"
