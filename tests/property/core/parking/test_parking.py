"""Parked keys with crashes at every step: order, no losses, no repeats of recorded messages."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from tests.property.core.parking.parking_machine import ParkingMachine, keys
from tests.support.examples import examples


class Parking(ParkingMachine):
    """Messages of two keys, both of which are parked and redriven."""

    @rule(sent=st.lists(keys, min_size=1, max_size=6))
    def send(self, sent: list[str]) -> None:
        self.site.put(sent)

    @rule()
    def read_twin(self) -> None:
        self.site.read_twin()

    @rule()
    def record_parked(self) -> None:
        self.site.record_parked()

    @rule(key=keys)
    def redrive(self, key: str) -> None:
        self.site.redrive(key)

    @rule(key=keys)
    def stop(self, key: str) -> None:
        self.site.stop(key)

    @rule(key=keys)
    def park(self, key: str) -> None:
        self.site.park(key)


@settings(max_examples=examples(25), stateful_step_count=60, deadline=None)
class ParkedKeys(Parking):
    """Records are complete."""


@settings(max_examples=examples(25), stateful_step_count=60, deadline=None)
class DamagedRecords(Parking):
    """Records get lost, too, but neither order nor messages."""

    @rule(which=st.integers(0, 1), back=st.integers(0, 8), records=st.integers(1, 9))
    def damage(self, which: int, back: int, records: int) -> None:
        self.site.damage(which, back, records=records)

    @rule()
    def damage_all(self) -> None:
        for which in (0, 1):
            self.site.damage(which, 999, records=999)


test_parked_keys = ParkedKeys.TestCase
test_damaged_records = DamagedRecords.TestCase
