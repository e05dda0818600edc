"""Groups that are added, changed and removed while others are served."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.errors import SettingsError, UnknownName
from proxy.lane.group_lane import GroupLane
from proxy.lane.lanes import Lanes
from proxy.live.group_changes import GroupChanges
from proxy.live.live_groups import LiveGroups, Source
from proxy.settings.groups import GroupSettings
from testkit.eventually import eventually
from testkit.lanes import group_settings, make_lane
from testkit.simulation.pytest_loop import PytestLoop


class Site:
    """Lanes whose queues are handed over when the test says so."""

    def __init__(self, *, auto_create: bool = False) -> None:
        self.lanes = Lanes(make_lane, auto_create=auto_create)
        self.told: list[str] = []
        self.may_leave = asyncio.Event()
        self.live = LiveGroups(self.lanes, changed=self._changed, give_up=self._give_up)

    def _changed(self, lane: GroupLane) -> None:
        self.told.append(lane.name)

    async def _give_up(self, lane: GroupLane) -> None:
        await self.may_leave.wait()
        self.told.append(f"gave up {lane.name}")

    def served(self) -> dict[str, GroupSettings]:
        """Return the settings of all groups that answer pulls."""
        return {lane.name: lane.settings for lane in self.lanes if self._answers(lane.name)}

    def _answers(self, group: str) -> bool:
        try:
            return self.lanes.require(group, None) is not None
        except UnknownName:
            return False


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    made = Site()
    yield made
    await made.live.close()


async def test_groups_are_added_changed_and_removed(site: Site) -> None:
    first, second = group_settings("a"), group_settings("b")
    assert site.live.give(Source.FILE, [first, second]) == GroupChanges(added=("a", "b"))
    lane = site.lanes.find("a")
    other = group_settings("a", max_pull_batch=7, topics=("orders", "more"))
    third = group_settings("c")
    done = site.live.give(Source.FILE, [other, third])
    assert done == GroupChanges(added=("c",), changed=("a",), removed=("b",))
    assert site.served() == {"a": other, "c": third}
    assert site.lanes.find("a") is lane
    assert site.told == ["a"]


async def test_groups_that_this_process_cannot_serve_change_nothing() -> None:
    lanes = Lanes(make_lane, auto_create=False)
    live = LiveGroups(
        lanes,
        changed=lambda _lane: None,
        give_up=lambda _lane: asyncio.sleep(0),
        unservable=lambda _source, groups: [
            f"no room for {group.name}" for group in groups if group.name > "b"
        ],
    )
    live.give(Source.FILE, [group_settings("a")])
    with pytest.raises(SettingsError, match=r"^no room for c$"):
        live.give(Source.FILE, [group_settings("b"), group_settings("c")])
    assert live.groups == {"a": group_settings("a")}
    await live.close()


async def test_the_same_groups_once_more_change_nothing(site: Site) -> None:
    site.live.give(Source.FILE, [group_settings("a")])
    assert not site.live.give(Source.FILE, [group_settings("a")])
    assert site.told == []


async def test_verdicts_of_a_removed_group_count_until_its_queues_are_handed_over(
    site: Site,
) -> None:
    site.live.give(Source.FILE, [group_settings("a")])
    lane = site.lanes.find("a")
    site.live.give(Source.FILE, [])
    with pytest.raises(UnknownName, match="removed"):
        site.lanes.require("a", None)
    assert site.lanes.find("a") is lane
    assert lane in list(site.lanes), "its offsets are committed still"
    site.may_leave.set()
    await eventually(lambda: site.lanes.find("a") is None)
    with pytest.raises(UnknownName, match="there is no group 'a' here"):
        site.lanes.require("a", None)


async def test_a_group_being_removed_is_still_found_on_close(site: Site) -> None:
    """Its hand-over is not complete, and verdicts of its clients may arrive."""
    site.live.give(Source.FILE, [group_settings("a")])
    lane = site.lanes.find("a")
    site.live.give(Source.FILE, [])
    await site.live.close()
    assert site.lanes.find("a") is lane


async def test_a_group_that_comes_back_while_it_is_given_up_begins_when_that_is_done(
    site: Site,
) -> None:
    site.live.give(Source.FILE, [group_settings("a")])
    old = site.lanes.find("a")
    site.live.give(Source.FILE, [])
    again = group_settings("a", order_key="QID")
    site.live.give(Source.FILE, [again])
    assert site.lanes.find("a") is old
    site.may_leave.set()
    await eventually(lambda: site.served() == {"a": again})
    assert site.lanes.find("a") is not old


async def test_the_file_comes_before_the_store(site: Site) -> None:
    ours, theirs = group_settings("a", max_pull_batch=1), group_settings("a", max_pull_batch=2)
    site.live.give(Source.STORE, [theirs, group_settings("b")])
    site.live.give(Source.FILE, [ours])
    assert site.served()["a"] == ours
    assert site.live.source_of("a") is Source.FILE
    assert site.live.shadowed() == ["a"]
    site.live.give(Source.FILE, [])
    assert site.served()["a"] == theirs, "no hand-over: it only changes"
    assert site.live.source_of("a") is Source.STORE


async def test_a_group_that_clients_made_is_taken_over_by_its_settings() -> None:
    site = Site(auto_create=True)
    site.may_leave.set()
    lane = site.lanes.require("a", ["orders"])
    site.live.give(Source.FILE, [group_settings("b")])
    assert site.lanes.find("a") is lane, "it was never configured, so it is not removed"
    configured = group_settings("a", max_pull_batch=3)
    site.live.give(Source.FILE, [configured])
    assert site.lanes.find("a") is lane
    assert not lane.auto_created
    assert lane.settings == configured
    await site.live.close()


async def test_settings_take_over_a_group_that_clients_made_in_the_same_way() -> None:
    """Otherwise its order key would stay a default, which changes no recorded one."""
    site = Site(auto_create=True)
    lane = site.lanes.require("a", ["orders"])
    site.live.give(Source.FILE, [lane.settings.model_copy()])
    assert site.lanes.find("a") is lane
    assert not lane.auto_created
    await site.live.close()


async def test_another_order_key_needs_no_other_lane() -> None:
    site = Site(auto_create=True)
    lane = site.lanes.require("a", ["orders"])
    configured = group_settings("a", order_key="QID")
    site.live.give(Source.FILE, [configured])
    assert site.served() == {"a": configured}
    assert site.lanes.find("a") is lane
    await site.live.close()


one_group = st.builds(
    group_settings,
    st.sampled_from("abc"),
    topics=st.sampled_from([("x",), ("x", "y"), ("y",)]),
    max_pull_batch=st.integers(1, 3),
)
lists = st.lists(one_group, max_size=3, unique_by=lambda group: group.name)
steps = st.lists(st.tuples(st.sampled_from(Source), lists, st.booleans()), max_size=8)


@settings(deadline=None)
@given(steps)
def test_whatever_came_before_the_last_word_of_each_source_is_served(
    said: list[tuple[Source, list[GroupSettings], bool]],
) -> None:
    async def run() -> None:
        site = Site()
        last: dict[Source, list[GroupSettings]] = {}
        for source, groups, may_leave in said:
            if may_leave:
                site.may_leave.set()
            site.live.give(source, groups)
            last[source] = groups
            await asyncio.sleep(0)
        site.may_leave.set()
        store, file = last.get(Source.STORE, []), last.get(Source.FILE, [])
        wanted = {group.name: group for group in [*store, *file]}
        await eventually(lambda: not site.live.leaving)
        assert site.served() == wanted
        assert {lane.name for lane in site.lanes} == wanted.keys(), "nothing else is left"
        await site.live.close()

    with asyncio.Runner(loop_factory=PytestLoop) as runner:
        runner.run(run())


async def test_a_group_that_cannot_be_changed_holds_up_no_other_and_is_changed_later() -> None:
    broken, changed = ["a"], list[str]()

    def change(lane: GroupLane) -> None:
        if lane.name in broken:
            raise ValueError("no such file")
        changed.append(lane.name)

    lanes = Lanes(make_lane)
    live = LiveGroups(lanes, changed=change, give_up=lambda _lane: asyncio.sleep(0))
    live.give(Source.FILE, [group_settings("a"), group_settings("b")])
    others = [group_settings("a", max_pull_batch=7), group_settings("b", max_pull_batch=7)]
    with pytest.raises(ValueError, match="no such file"):
        live.give(Source.FILE, others)
    assert changed == ["b"]
    broken.clear()
    live.give(Source.FILE, others)
    assert changed == ["b", "a"]
    live.give(Source.FILE, others)
    assert changed == ["b", "a"]
