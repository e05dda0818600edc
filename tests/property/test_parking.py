"""Parked keys, over crashes at every step: order, nothing lost, nothing twice that was recorded."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from tests.support.parking_site import ParkingSite

keys = st.sampled_from("ab")


class ParkedKeys(RuleBasedStateMachine):
    """Every rule is a step of the owner, of its clients or of an operator."""

    def __init__(self) -> None:
        super().__init__()
        self.site = ParkingSite()

    @rule(sent=st.lists(keys, min_size=1, max_size=6))
    def send(self, sent: list[str]) -> None:
        self.site.sent += sent

    @rule(key=keys)
    def breaks(self, key: str) -> None:
        self.site.broken ^= {key}

    @rule(times=st.integers(1, 6))
    def serve(self, times: int) -> None:
        """The usual round."""
        for _ in range(times):
            self.site.read()
            self.site.read_twin()
            self.site.refill()
            self.site.pull()
            self.site.settle()

    @rule()
    def pull(self) -> None:
        self.site.read()
        self.site.pull()

    @rule()
    def read_twin(self) -> None:
        self.site.read_twin()

    @rule()
    def record(self) -> None:
        self.site.record()

    @rule()
    def record_parked(self) -> None:
        self.site.record_parked()

    @rule(heard=st.booleans(), times=st.integers(1, 4))
    def copy(self, heard: bool, times: int) -> None:
        for _ in range(times):
            self.site.copy(heard=heard)

    @rule()
    def park_and_copy(self) -> None:
        self.site.record_parked()
        self.site.copy(heard=True)
        self.site.copy(heard=True)

    @rule(key=keys)
    def redrive(self, key: str) -> None:
        self.site.redrive(key)

    @rule(key=keys)
    def stop(self, key: str) -> None:
        self.site.stop(key)

    @rule(key=keys)
    def park(self, key: str) -> None:
        self.site.park(key)

    @rule(until=st.integers(0, 3))
    def leave(self, until: int) -> None:
        self.site.leave(until=until)
        if until < 3 and self.site.pipeline.leaving:
            self.crash()

    @rule()
    def commit(self) -> None:
        self.site.commit()

    @rule()
    def crash(self) -> None:
        self.site.begin()
        self.site.open_twin()

    def teardown(self) -> None:
        self.site.finish()


class DamagedRecords(ParkedKeys):
    """Records get lost as well: no order is, and no message."""

    @rule(which=st.integers(0, 1), back=st.integers(0, 8), records=st.integers(1, 9))
    def damage(self, which: int, back: int, records: int) -> None:
        self.site.damage(which, back, records=records)

    @rule()
    def damage_all(self) -> None:
        for which in (0, 1):
            self.site.damage(which, 999, records=999)


ParkedKeys.TestCase.settings = settings(max_examples=25, stateful_step_count=60, deadline=None)
test_parked_keys = ParkedKeys.TestCase
DamagedRecords.TestCase.settings = settings(max_examples=25, stateful_step_count=60, deadline=None)
test_damaged_records = DamagedRecords.TestCase
