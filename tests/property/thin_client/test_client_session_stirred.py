"""Checking for due requests only while the session is stirred misses none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.property.thin_client.session_machine import OUTCOMES, SessionMachine
from tests.support.examples import examples
from thin_client.message import Outcome


@settings(
    max_examples=examples(40),
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
class StirredMachine(SessionMachine):
    """Handlers that settle and take in turn, in addition to all other events."""

    @contextmanager
    def as_a_shell(self) -> Iterator[None]:
        """Check that nothing became due sooner unless ``stirred`` was set."""
        self.session.calm()
        before = self.due()
        yield
        if not self.session.stirred:
            assert all(at >= before[what] for what, at in self.due().items())

    def due(self) -> dict[object, int]:
        homes = self.session.homes.values()
        at = {"pull": self.session.pull_at(), **{h: self.session.control_at(h) for h in homes}}
        return {what: 1 << 63 if each is None else each for what, each in at.items()}

    @rule()
    def a_handler_begins(self) -> None:
        with self.as_a_shell():
            message = self.session.take(self.now)
        if message is not None:
            self.taken(message)

    @precondition(lambda self: self.singles())
    @rule(data=st.data(), outcome=OUTCOMES)
    def a_handler_goes_on(self, data: st.DataObject, outcome: Outcome) -> None:
        """Settle one message and take the next at once."""
        each = data.draw(st.sampled_from(self.singles()))
        with self.as_a_shell():
            self.session.settle(each.message, outcome, self.now)
            self.settled(each, outcome)
            message = self.session.take(self.now)
        if message is not None:
            self.taken(message)


TestStirred = StirredMachine.TestCase
