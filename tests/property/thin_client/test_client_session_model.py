"""A client's session against a naive model, in every order of pulls, ends, losses and failures."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from tests.property.thin_client.session_machine import SessionMachine
from tests.support.examples import examples


@settings(
    max_examples=examples(80),
    stateful_step_count=80,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
class PlainMachine(SessionMachine):
    """Nothing beside its rules."""


TestSession = PlainMachine.TestCase
