"""Changes of the order key, with parked keys, over crashes at every step: O5, and nothing lost."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from tests.support.rekeyed_site import RekeyedSite

keys = st.sampled_from("ab")
messages = st.tuples(keys, st.sampled_from(["a", "x", "y", ""]))


class ChangedKeys(RuleBasedStateMachine):
    """Every rule is a step of the owner, of its clients or of an operator."""

    def __init__(self) -> None:
        super().__init__()
        self.site = RekeyedSite()

    @rule(sent=st.lists(messages, min_size=1, max_size=6))
    def send(self, sent: list[tuple[str, str]]) -> None:
        self.site.send(sent)

    @rule(key=keys)
    def breaks(self, key: str) -> None:
        self.site.broken ^= {key}

    @rule(times=st.integers(1, 6))
    def serve(self, times: int) -> None:
        """The usual round, with what belongs to a change."""
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

    @rule()
    def record(self) -> None:
        self.site.record()

    @rule()
    def park_and_copy(self) -> None:
        self.site.record_parked()
        self.site.copy(heard=True)
        self.site.copy(heard=True)

    @rule(heard=st.booleans())
    def copy(self, heard: bool) -> None:
        self.site.copy(heard=heard)

    @rule(key=st.sampled_from([b"a", b"b", b"x", b"\xff"]))
    def redrive(self, key: bytes) -> None:
        self.site.redrive_key(key)

    @rule(key=st.sampled_from("abx"))
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


ChangedKeys.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
test_changed_keys = ChangedKeys.TestCase
