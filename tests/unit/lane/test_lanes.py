"""Groups by name, and automatically created groups."""

from __future__ import annotations

import pytest

from broker_core.names import Group
from proxy.core.access.rights import Right
from proxy.downstream.port.interpretation import Interpretation
from proxy.downstream.port.requests import wish_of
from proxy.errors import Refused, UnknownName
from proxy.lane.group_lane import GroupLane
from proxy.lane.lanes import Lanes
from proxy.settings.groups import GroupSettings
from testkit.lanes import Listener, group_settings, make_lane
from testkit.thrift_client import our_pull


def lanes(*groups: GroupSettings, auto_create: bool = False) -> tuple[Lanes, Listener]:
    listener = Listener()
    made = Lanes(lambda settings: make_lane(settings, listener=listener), auto_create=auto_create)
    for settings in groups:
        made.add(settings)
    return made, listener


def topics_of(lane: GroupLane) -> list[str]:
    return [topic.name for topic in lane.settings.topics]


def test_a_known_group_is_found_with_any_of_its_topics() -> None:
    made, _ = lanes(group_settings("a", topics=("x", "y")), group_settings("b"))
    assert made.require("a", None).name == "a"
    assert made.require("a", ["y", "x"]) is made.find("a")
    assert [lane.name for lane in made] == ["a", "b"]
    assert made.find("c") is None
    assert made.find(None) is None


@pytest.mark.parametrize(
    ("group", "topics", "sentence"),
    [
        ("c", None, "there is no group 'c' here; known groups: a, b"),
        ("a", ["x", "z"], "group 'a' has no topic 'z'; its topics: x, y"),
        ("", None, "the request names no group: set groupId to one of this proxy's"),
        (None, ["x"], "the request names no group: set groupId to one of this proxy's"),
    ],
)
def test_an_unknown_name_is_an_error_that_names_what_exists(
    group: str | None, topics: list[str] | None, sentence: str
) -> None:
    made, _ = lanes(group_settings("a", topics=("x", "y")), group_settings("b"))
    with pytest.raises(UnknownName) as error:
        made.require(group, topics)
    assert str(error.value) == sentence


class _Name(str):
    """A name that counts its comparisons, as of a request."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        _Name.compared += 1
        return str.__eq__(self, other)

    def __hash__(self) -> int:
        return str.__hash__(self)


@pytest.mark.parametrize("auto_create", [True, False])
def test_a_pull_of_many_topics_looks_each_of_them_up_once(auto_create: bool) -> None:
    names = [f"t{number}" for number in range(200)]
    made, _ = lanes(group_settings("a", topics=tuple(names)), auto_create=auto_create)
    asked = Interpretation(Right.PULL, "a", tuple(map(_Name, names)))
    _Name.compared = 0
    lane = made.serving("a", asked.topics, "c")
    wish = wish_of(
        our_pull(group="a"),
        asked,
        group=lane.settings,
        delivers=False,
        ours=True,
        connection=1,
        max_bytes=1,
    )
    assert wish.topics == set(names)
    assert _Name.compared < 20 * len(names)


def test_a_name_of_megabytes_is_cut_in_the_error() -> None:
    made, _ = lanes(group_settings("a"))
    for group, topics in (("g" * 5_000_000, None), ("a", ["t" * 5_000_000])):
        with pytest.raises(UnknownName) as error:
            made.require(group, topics)
        assert len(str(error.value)) < 300


def test_without_groups_the_error_says_so() -> None:
    made, _ = lanes()
    with pytest.raises(UnknownName, match="known groups: none yet"):
        made.require("a", None)


def test_auto_create_makes_a_group_with_the_requested_topics() -> None:
    made, listener = lanes(auto_create=True)
    lane = made.require("new", ["x", "y", "x"])
    assert (lane.name, topics_of(lane), lane.auto_created) == ("new", ["x", "y"], True)
    assert {topic.order_key for topic in lane.settings.topics} == {"KEY"}
    assert listener.told["wanted"] == 0


def test_an_auto_created_group_has_default_keys_until_settings_name_it() -> None:
    made, _ = lanes(auto_create=True)
    lane = made.require("new", ["x"])
    assert lane.rules_of(lane.settings.topics[0]).has_default_key
    lane.set_up(lane.settings)
    assert not lane.rules_of(lane.settings.topics[0]).has_default_key


def test_an_auto_created_group_takes_further_topics_and_upstream_is_notified() -> None:
    made, listener = lanes(auto_create=True)
    lane = made.require("new", ["x"])
    assert made.require("new", ["x", "y"]) is lane
    assert topics_of(lane) == ["x", "y"]
    assert made.require("new", ["y"]) is lane
    assert listener.told["wanted"] == 1


def test_a_configured_group_takes_no_further_topics() -> None:
    made, _ = lanes(group_settings("a", topics=("x",)), auto_create=True)
    with pytest.raises(UnknownName, match="group 'a' has no topic 'y'; its topics: x"):
        made.require("a", ["y"])


def test_auto_create_wants_a_topic_and_legal_names() -> None:
    made, _ = lanes(auto_create=True)
    for group, topics, reason in (
        ("new", None, "name a topic to have it created"),
        ("new", [], "name a topic to have it created"),
        ("a b", ["x"], "group 'a b' is not a legal name"),
        ("new", ["x", "y z"], "topic 'y z' is not a legal name"),
        ("new", ["t" * 5_000_000], "is not a legal name"),
    ):
        with pytest.raises(UnknownName, match=reason) as error:
            made.require(group, topics)
        assert len(str(error.value)) < 400
    assert list(made) == []


def test_operators_commands_do_not_mention_automatic_creation() -> None:
    made, _ = lanes(group_settings("a", topics=("x",)), auto_create=True)
    assert made.named("a").name == "a"
    with pytest.raises(UnknownName, match=r"there is no group 'b' here; known groups: a$"):
        made.named("b")


def test_groups_and_topics_created_by_clients_are_limited_in_number() -> None:
    made = Lanes(make_lane, auto_create=True, max_groups=2, max_group_topics=3)
    first = made.require("a", ["x"])
    made.require("b", ["x"])
    with pytest.raises(Refused, match="'c' is not created: this proxy has 2 groups"):
        made.require("c", ["x"])
    assert made.require("a", ["x", "y", "z"]) is first
    with pytest.raises(Refused, match=r"does not get topic 'w': it has 3 topics"):
        made.require("a", ["w"])
    assert made.require("a", ["z"]) is first
    with pytest.raises(Refused, match="max_group_topics is 3"):
        Lanes(make_lane, auto_create=True, max_group_topics=3).require("a", list("wxyz"))


def test_an_error_names_a_bounded_number_of_what_exists() -> None:
    names = [f"n{number:04}" for number in range(1234)]
    made, _ = lanes(*(group_settings(name) for name in names[1:]), group_settings("n0000"))
    with pytest.raises(UnknownName) as error:
        made.require("other", None)
    assert str(error.value).endswith(", n0048, n0049 and 1,184 more")
    made, _ = lanes(group_settings("a", topics=tuple(names)))
    with pytest.raises(UnknownName) as error:
        made.require("a", ["other"])
    assert str(error.value).endswith(", n0048, n0049 and 1,184 more")


def test_a_new_client_of_a_broadcast_group_costs_the_same_however_many_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, _ = lanes(group_settings("news", mode="broadcast"), group_settings("b", mode="broadcast"))
    with monkeypatch.context() as patched:
        patched.setattr(Lanes, "members", lambda *_: pytest.fail("all clients are looked at"))
        for number in range(3):
            made.serving("news", None, f"c{number}")
            made.serving("b", None, f"c{number}")
    of_b = made.members(Group("b"))
    assert [lane.name for lane in of_b] == ["b%c0", "b%c1", "b%c2"]
    assert len(made.members()) == 6
    assert made.leave_member(of_b[1])
    assert made.retire("b%c0") is of_b[0]
    assert made.members(Group("b")) == [of_b[2]]
    assert len(made.members(Group("news"))) == 3
