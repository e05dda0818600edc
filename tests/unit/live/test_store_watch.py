"""Groups of the store, as proxies see them that read it at different times."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from proxy.live.group_changes import GroupChanges
from proxy.live.live_groups import LiveGroups, Source
from proxy.live.store_watch import StoreWatch
from proxy.live.stored_group import StoredGroup
from proxy.settings.groups import GroupSettings


class _Lanes:
    """Lanes that only remember their settings."""

    def __init__(self) -> None:
        self.by_name: dict[str, Any] = {}

    def find(self, name: str) -> Any:
        return self.by_name.get(name)

    def add(self, settings: Any) -> None:
        self.by_name[settings.name] = SimpleNamespace(
            name=settings.name, settings=settings, auto_created=False
        )

    def retire(self, name: str) -> Any:
        return self.by_name.get(name)

    def drop(self, name: str) -> None:
        del self.by_name[name]


async def _give_up(_lane: Any) -> None:
    """Hand over at once."""


async def _hand_overs() -> None:
    """Let the tasks of removed groups end."""
    for _ in range(5):
        await asyncio.sleep(0)


def _watching(store: Any) -> tuple[StoreWatch, _Lanes]:
    lanes: Any = _Lanes()
    return StoreWatch(store, LiveGroups(lanes, changed=lambda _: None, give_up=_give_up)), lanes


async def test_all_proxies_serve_a_group_that_was_deleted_and_created_with_another_mode() -> None:
    store: Any = SimpleNamespace(known={})
    (often, at_often), (seldom, at_seldom) = _watching(store), _watching(store)
    topics = [{"name": "orders"}]
    values = [
        {"topics": topics},
        None,  # deleted
        {"topics": topics, "mode": "broadcast"},
    ]
    for number, settings in enumerate(values, start=1):
        store.known = {"billing": StoredGroup(number, settings)}
        often.serve()
        if number != 2:  # both changes came between two of its looks
            seldom.serve()
        await _hand_overs()
    often.serve()
    seldom.serve()
    await _hand_overs()
    modes = [str(each.by_name["billing"].settings.mode) for each in (at_often, at_seldom)]
    assert modes == ["broadcast", "broadcast"], (modes, seldom.state.refused)


async def test_many_groups_are_served_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start with n stored groups took n² steps; one that is refused costs a few more."""
    costs, give = [], LiveGroups.give

    def counted(live: LiveGroups, source: Source, groups: Iterable[GroupSettings]) -> GroupChanges:
        given = list(groups)
        costs[-1] += len(given)
        return give(live, source, given)

    monkeypatch.setattr(LiveGroups, "give", counted)
    topics = [{"name": "orders"}]
    for count in (50, 100):
        known = {f"g{n}": StoredGroup(1, {"topics": topics}) for n in range(count)}
        store: Any = SimpleNamespace(known=known)
        watch, lanes = _watching(store)
        costs.append(0)
        watch.serve()
        assert lanes.by_name.keys() == known.keys()
        store.known = known | {f"g{n}": StoredGroup(2, {"topics": topics}) for n in range(count)}
        store.known["g7"] = StoredGroup(2, {"topics": []})
        watch.serve()
        assert watch.state.refused.keys() == {"g7"}
        assert (watch.state.applied, watch.state.refusals) == (2 * count - 1, 1)
        assert lanes.by_name.keys() == known.keys()
    assert costs[1] < 3 * costs[0]


async def test_of_many_groups_one_that_fails_holds_up_no_other() -> None:
    names = [f"g{n}" for n in range(8)]
    topics = [{"name": "orders"}]
    store: Any = SimpleNamespace(known={name: StoredGroup(1, {"topics": topics}) for name in names})
    lanes: Any = _Lanes()
    add, broken = lanes.add, {"g3"}

    def failing(settings: Any) -> None:
        if settings.name in broken:
            raise OSError("no room")
        add(settings)

    lanes.add = failing
    watch = StoreWatch(store, LiveGroups(lanes, changed=lambda _: None, give_up=_give_up))
    watch.serve()
    assert watch.state.refused == {"g3": "no room"}
    assert sorted(lanes.by_name) == [name for name in names if name != "g3"]
    watch.serve()
    assert watch.state.refused == {"g3": "no room"}
    broken.clear()
    watch.serve()
    assert (watch.state.refused, sorted(lanes.by_name)) == ({}, names)
