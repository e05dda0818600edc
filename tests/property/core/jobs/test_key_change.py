"""Order-key changes with parked keys and crashes at every step: O5, and nothing is lost."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from tests.property.core.parking.parking_machine import ParkingMachine, keys
from tests.support.examples import examples
from tests.support.rekeyed_site import RekeyedSite

messages = st.tuples(keys, st.sampled_from(["a", "x", "y", ""]))


class Changes(ParkingMachine):
    """Messages have one key by each rule. Redrives use a key by either rule, or none."""

    kind = RekeyedSite
    site: RekeyedSite

    @rule(sent=st.lists(messages, min_size=1, max_size=6))
    def send(self, sent: list[tuple[str, str]]) -> None:
        self.site.send(sent)

    @rule()
    def settle(self) -> None:
        self.site.settle()

    @rule(order_key=st.sampled_from(["KEY", "$.id", "$.id", "QID", None]))
    def want(self, order_key: str | None) -> None:
        self.site.want(order_key)

    @rule()
    def plan(self) -> None:
        self.site.plan()

    @rule()
    def begin_change(self) -> None:
        self.site.plan()
        self.site.begin_change()

    @rule(most=st.integers(1, 4))
    def count(self, most: int) -> None:
        self.site.count(most)

    @rule()
    def read_copies(self) -> None:
        self.site.read_copies()

    @rule(key=st.sampled_from([b"a", b"b", b"x", b"\xff"]))
    def redrive(self, key: bytes) -> None:
        self.site.redrive_key(key)

    @rule(key=st.sampled_from("abx"))
    def park(self, key: str) -> None:
        self.site.park(key)

    @rule(messages=st.integers(0, 8))
    def reset(self, messages: int) -> None:
        self.site.reset(min(self.site.pipeline.committable + messages, len(self.site.sent)))


@settings(max_examples=examples(30), stateful_step_count=40, deadline=None)
class ChangedKeys(Changes):
    """Records are complete."""


@settings(max_examples=examples(30), stateful_step_count=40, deadline=None)
class DamagedChanges(Changes):
    """Records get lost, too."""

    @rule(which=st.integers(0, 1), back=st.integers(0, 8), records=st.integers(1, 9))
    def damage(self, which: int, back: int, records: int) -> None:
        self.site.damage(which, back, records=records)


test_changed_keys = ChangedKeys.TestCase
test_damaged_changes = DamagedChanges.TestCase
