"""The view of all groups: one of them, or a silent broker, hides nothing of the others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from broker_core.clock import now_ns, wall_ms
from proxy.admin.snapshots import GroupsView, groups_view
from proxy.cli.known_figures import known_queues
from proxy.core.records.parked_key import ParkedKey
from testkit.lanes import GROUP, group_settings, make_lane
from testkit.pipelines import pipeline, queue

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
