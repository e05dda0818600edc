"""Groups of the store, as proxies see them that read it at different times."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from proxy.live.live_groups import LiveGroups
from proxy.live.store_watch import StoreWatch
from proxy.live.stored_group import StoredGroup


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
