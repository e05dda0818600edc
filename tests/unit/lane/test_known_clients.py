"""Clients of a broadcast group: more than brokers should keep data about."""

from __future__ import annotations

import pytest

from broker_core.names import Group
from proxy.errors import Refused
from proxy.lane.known_clients import KnownClients
from proxy.lane.lanes import Lanes
from testkit.lanes import group_settings, make_lane

NEWS = Group("news")


def clients(*numbers: int) -> list[Group]:
    return [Group(f"news%{number}") for number in numbers]


def test_a_new_client_is_refused_at_twice_the_limit_and_known_ones_are_not() -> None:
    known = KnownClients()
    asked: list[int] = []
    known.call_on_many(lambda: asked.append(1))
    for client in clients(*range(8)):
        known.admit(NEWS, client, most=4)
    assert asked, "the brokers are to be asked long before"
    with pytest.raises(Refused, match="has 8 clients at the brokers, and max_clients is 4"):
        known.admit(NEWS, clients(8)[0], most=4)
    known.admit(NEWS, clients(3)[0], most=4)
    known.admit(Group("other"), Group("other%1"), most=4)
    known.learn(NEWS, clients(1, 2, 3))
    known.admit(NEWS, clients(8)[0], most=4)
    known.learn(NEWS, clients(*range(8)))
    known.forget(NEWS, clients(5)[0])
    known.admit(NEWS, clients(8)[0], most=4)


def test_changing_client_ids_are_refused_though_each_left() -> None:
    lanes = Lanes(make_lane)
    lanes.add(group_settings("news", mode="broadcast", max_clients=3))
    for number in range(6):
        lane = lanes.serving("news", None, f"id-{number}")
        assert lanes.leave_member(lane)
        lane.close()
    with pytest.raises(Refused, match="give each client a lasting clientId"):
        lanes.serving("news", None, "id-6")
    assert lanes.serving("news", None, "id-2").name == "news%id-2"


def test_no_client_is_said_to_be_forgotten_that_never_is() -> None:
    lanes = Lanes(make_lane)
    settings = {"mode": "broadcast", "max_clients": 1, "forget_after_s": None}
    lanes.add(group_settings("news", **settings))
    for number in range(2):
        lanes.serving("news", None, f"id-{number}").close()
    with pytest.raises(Refused, match="none is forgotten, because forget_after_s is null"):
        lanes.serving("news", None, "id-2")
