"""Decisions and reports shared by both feeders."""

from __future__ import annotations

import logging

import pytest

from tests.unit.thin_client.client_sessions import pulled, session_with
from thin_client.errors import ConnectionLost
from thin_client.feeder_rules import Reports, added_and_removed, destinations
from thin_client.lease import Home
from thin_client.message import Message
from thin_client.options import Observer
from thin_client.servers import Servers
from thrift_idl import consumer

SERVERS = Servers("proxy:9713", tls=None)


class Seen(Observer):
    """Records events."""

    def __init__(self) -> None:
        self.events: list[tuple[object, ...]] = []

    def on_settled(self, settled: int, not_held: int) -> None:
        self.events.append(("settled", settled, not_held))

    def on_lease_lost(self, message: Message) -> None:
        self.events.append(("lost", message))

    def on_error(self, error: Exception) -> None:
        self.events.append(("error", str(error)))


def places(address: str | None) -> list[str]:
    return [
        f"{each.address.host}:{each.address.port}"
        for each in destinations(Home(address), SERVERS, SERVERS.destination)
    ]


@pytest.mark.parametrize("address", [None, "no address"])
def test_a_home_that_is_not_named_is_where_its_messages_came_from(address: str | None) -> None:
    assert places(address) == ["proxy:9713"]


def test_a_home_is_tried_by_its_own_name_first() -> None:
    assert places("10.0.0.7:9713") == ["10.0.0.7:9713", "proxy:9713"]


def test_homes_are_met_once_and_leave_with_their_last_lease() -> None:
    session, old = session_with(), Home("gone:1")
    pulled(session, 1)
    home = session.homes["a:1"]
    assert added_and_removed(session, []) == ([home], [])
    assert added_and_removed(session, [old, home]) == ([], [old])


def test_a_settle_is_reported_with_its_verdicts_and_an_extend_is_not() -> None:
    seen = Seen()
    reports, (message,) = Reports(seen, group="billing"), pulled(session_with(), 1)
    answer = consumer.AckAnswer(notHeld=[consumer.LeaseRef()])
    reports.control_answered(consumer.AckRequest(), answer, settled=3, lost=[])
    reports.control_answered(consumer.ExtendRequest(), answer, settled=0, lost=[message])
    assert seen.events == [("settled", 3, 1), ("lost", message)]


def test_failures_in_a_row_are_logged_less_and_less(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "orderlane")
    seen, error = Seen(), ConnectionLost("no answer")
    for failures in range(1, 9):
        Reports(seen, group="billing").pull_failed(error, failures=failures)
    assert len(caplog.messages) == 4
    assert caplog.messages[0] == "group billing: pull failed, retrying: no answer"
    assert len(seen.events) == 8
