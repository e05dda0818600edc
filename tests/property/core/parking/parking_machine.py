"""Steps of a queue with parked keys, shared by several state machines."""

from __future__ import annotations

from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from tests.support.parking_site import ParkingSite

keys = st.sampled_from("ab")


class ParkingMachine(RuleBasedStateMachine):
    """Every rule is a step of the owner, its clients or an operator. Each machine adds the rules
    for sending, parking and redriving.
    """

    kind: ClassVar[type[ParkingSite]] = ParkingSite

    def __init__(self) -> None:
        super().__init__()
        self.site = self.kind()

    @rule(key=keys)
    def breaks(self, key: str) -> None:
        self.site.toggle(key)

    @rule(times=st.integers(1, 6))
    def serve(self, times: int) -> None:
        """Run the usual steps of an owner and its clients."""
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

    @rule(key=keys)
    def retry(self, key: str) -> None:
        self.site.retry(key)

    @rule()
    def retry_recorded(self) -> None:
        self.site.retry_recorded()

    @rule()
    def record(self) -> None:
        self.site.record()

    @rule(heard=st.booleans(), times=st.integers(1, 4))
    def copy(self, heard: bool, times: int) -> None:
        for _ in range(times):
            self.site.copy(heard=heard)

    @rule()
    def park_and_copy(self) -> None:
        self.site.record_parked()
        self.site.copy(heard=True)
        self.site.copy(heard=True)

    @rule(until=st.integers(0, 3))
    def leave(self, until: int) -> None:
        self.site.leave(until=until)
        if until < 3 and self.site.pipeline.parking.leaving:
            self.crash()

    @rule(key=keys, until=st.integers(0, 3))
    def redrive_to_the_end(self, key: str, until: int) -> None:
        """Run an uninterrupted redrive, except perhaps at its end."""
        self.site.redrive(key)
        self.site.record()
        self.serve(8)
        self.leave(until)

    @rule()
    def commit(self) -> None:
        self.site.commit()

    @rule()
    def crash(self) -> None:
        self.site.begin()
        self.site.open_twin()

    def teardown(self) -> None:
        self.site.finish()
