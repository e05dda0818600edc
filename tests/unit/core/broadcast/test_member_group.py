"""Clients of broadcast groups: how their groups are called, and who is served as which."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from broker_core.names import check_name
from proxy.core.broadcast.member_group import MAX_BROADCAST_CHARS, MAX_MEMBER_CHARS, member_group
from proxy.errors import Refused, UnknownName
from proxy.lane.lanes import MAX_MEMBERS, Lanes
from testkit.lanes import GROUP, TOPIC, group_settings, make_lane


def test_a_plain_client_id_follows_the_name_of_its_group() -> None:
    assert member_group("billing", "client-1") == "billing%client-1"


@pytest.mark.parametrize("client", ["10.0.0.1@7", "x" * 200, "ü", "a%b", "\ud800"])
def test_other_client_ids_become_a_digest(client: str) -> None:
    name = member_group("billing", client)
    assert name.startswith("billing%%")
    assert len(name) == len("billing%%") + 16


@given(st.text(min_size=1), st.text(min_size=1), st.integers(1, MAX_BROADCAST_CHARS))
def test_every_client_has_a_name_of_its_own_that_brokers_take(a: str, b: str, chars: int) -> None:
    group = "g" * chars
    for client in (a, b):
        assert len(check_name("group", member_group(group, client))) <= MAX_MEMBER_CHARS
    assert (member_group(group, a) == member_group(group, b)) is (a == b)


def lanes(max_clients: int = 256) -> Lanes:
    made = Lanes(make_lane)
    made.add(group_settings(mode="broadcast", max_clients=max_clients))
    return made


def test_each_client_of_a_broadcast_group_has_a_lane_of_its_own() -> None:
    made = lanes()
    first = made.serving(GROUP, [TOPIC], "a")
    assert first.name == "billing%a"
    assert first.settings.mode == "clustering"
    assert made.serving(GROUP, None, "a") is first
    assert made.serving(GROUP, None, "b") is not first
    assert {lane.name for lane in made} == {"billing", "billing%a", "billing%b"}


def test_leases_of_a_client_are_found_by_either_name() -> None:
    made = lanes()
    first = made.serving(GROUP, None, "a")
    assert made.holder_of("billing%a", None) is first
    assert made.holder_of(GROUP, "a") is first
    assert made.holder_of(GROUP, None) is None, "no client holds leases of the group itself"
    assert made.holder_of(GROUP, "b") is None


@pytest.mark.parametrize(
    ("group", "client", "sentence"),
    [
        (
            GROUP,
            None,
            "group 'billing' is broadcast, so each client gets all messages: set clientId",
        ),
        ("billing%a", "a", "is one client of the broadcast group 'billing': pull as that group"),
        (GROUP, "c", "'billing%c' is the name of another group: use a different clientId"),
    ],
)
def test_refused_clients_get_the_reason(group: str, client: str | None, sentence: str) -> None:
    made = lanes()
    made.serving(GROUP, None, "a")
    made.add(group_settings("billing%c"))
    with pytest.raises(Refused, match=sentence):
        made.serving(group, None, client)


def test_there_is_a_limit_of_clients_and_those_that_left_do_not_count() -> None:
    made = lanes(max_clients=MAX_MEMBERS)
    for number in range(MAX_MEMBERS):
        made.serving(GROUP, None, f"c{number}")
    with pytest.raises(Refused, match="has 1000 clients at this proxy"):
        made.serving(GROUP, None, "one-more")
    made.leave_member(made.serving(GROUP, None, "c0"))
    assert len(made.members(made.serving(GROUP, None, "one-more").name)) == 0
    assert len(made.members()) == MAX_MEMBERS


def test_unknown_topics_are_refused_before_a_lane_is_made() -> None:
    made = lanes()
    with pytest.raises(UnknownName):
        made.serving(GROUP, ["nothing"], "a")
    assert made.members() == []


def test_groups_that_cannot_be_broadcast_are_refused() -> None:
    with pytest.raises(ValidationError, match=f"at most {MAX_BROADCAST_CHARS} characters"):
        group_settings("g" * (MAX_BROADCAST_CHARS + 1), mode="broadcast")
    redis = {"url": "redis://h:1", "commands": [["SET", "k", "${text}"]]}
    with pytest.raises(ValidationError, match="delivers topic orders itself"):
        group_settings(mode="broadcast", actions=[{"redis": redis}])
