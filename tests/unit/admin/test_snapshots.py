"""The view of all groups: one of them, or a silent broker, hides nothing of the others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from broker_core.clock import now_ns, wall_ms
from broker_core.names import QueueName, Topic
from proxy.admin.snapshots import GroupsView, groups_view
from proxy.cli.known_figures import known_queues
from proxy.core.records.parked_key import ParkedKey
from testkit.lanes import GROUP, group_settings, make_lane
from testkit.pipelines import pipeline, queue
from tests.support.queue_looks import count_looks

_S = 1_000_000_000


async def test_a_group_whose_figures_cannot_be_read_is_named_and_hides_no_other() -> None:
    sound, settings = make_lane(), group_settings("faulty")
    faulty: Any = SimpleNamespace(name="faulty", settings=settings)  # it has no figures
    found = await groups_view([faulty, sound])
    GroupsView.model_validate(found)
    assert list(found) == ["faulty", GROUP]
    view = found["faulty"]
    assert view["state"]["word"] == "error"
    assert [each["name"] for each in view["topics"]] == ["orders"]
    figures = [view["figures"], *(topic["figures"] for topic in view["topics"])]
    assert {each[name] for each in figures for name in ("lag", "unfinished", "parked")} == {None}
    assert found[GROUP] == (await groups_view([sound]))[GROUP]


async def test_a_broadcast_group_is_not_said_to_lack_its_topics() -> None:
    lane = make_lane(group_settings(mode="broadcast"))
    state = (await groups_view([lane]))[lane.name]["state"]
    assert (state["word"], state["kind"]) == ("broadcast", "idle")


async def test_a_group_is_not_caught_up_while_a_broker_confirms_none_of_its_locks() -> None:
    lane = make_lane()
    lane.add(pipeline(of=queue(0)))
    lane.add(pipeline(of=queue(1), trusted_until_ns=now_ns() - 40 * _S))
    view = (await groups_view([lane]))[lane.name]
    assert (view["state"]["word"], view["state"]["kind"]) == ("unknown", "warn")
    assert "broker-a" in view["state"]["sentence"]
    assert [each["sure"] for each in view["queues"]] == [True, False]
    assert 39_000 < wall_ms() - view["figures"]["at_ms"] < 60_000


async def test_parked_keys_of_a_queue_are_shown_before_their_messages_are_known() -> None:
    lane = make_lane()
    lane.add(owned := pipeline(of=queue(0)))
    owned.parked[b"k"] = ParkedKey(0, owned.epoch)
    view = (await groups_view([lane]))[lane.name]
    assert (view["figures"]["parked"], view["figures"]["parked_keys"]) == (None, 1)
    (row,) = known_queues([view])
    assert (row["parked"], row["parked_keys"]) == (None, 1)


async def test_a_view_costs_as_much_as_there_are_topics_and_queues(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a thousand topics it kept the proxy from its clients for a second."""
    looks = count_looks(monkeypatch)
    costs = []
    for count in (20, 40):
        names = [f"t{number}" for number in range(count)]
        lane = make_lane(group_settings(topics=names))
        for name in names:
            lane.add(pipeline(of=QueueName(Topic(name), "broker-a", 0)))
        looks.clear()
        view = (await groups_view([lane]))[lane.name]
        assert [topic["figures"]["queues"] for topic in view["topics"]] == [1] * count
        costs.append(len(looks))
    assert costs[1] <= 2 * costs[0]
