"""The displayed state of a group, for all sources and during its removal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest

from broker_core.tasks import spawn
from proxy.core.access.audit_record import Change
from proxy.errors import Refused, SettingsError, UnknownName
from proxy.lane.group_lane import GroupLane
from proxy.lane.lanes import Lanes
from proxy.live.group_desk import GroupDesk, Wish
from proxy.live.group_store import GroupStore
from proxy.live.live_groups import LiveGroups, Source
from proxy.live.store_keys import StoreKeys
from proxy.live.store_watch import StoreWatch
from proxy.upstream.audit import Audit
from testkit.eventually import eventually
from testkit.lanes import group_settings, make_lane


class Nameserver:
    """A nameserver, at first without groups."""

    nameservers = ("one:1",)

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    async def all_of(self, _nameserver: str, _namespace: str) -> dict[str, str]:
        return dict(self.values)

    async def put(self, _nameserver: str, _namespace: str, key: str, value: str) -> None:
        self.values[key] = value


class SlowAudit:
    """An audit that stores the intents of ``slow`` when the test says so, all others at once."""

    def __init__(self, slow: str) -> None:
        self.slow = slow
        self.asked, self.may_store = asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def change(self, change: Change) -> AsyncIterator[None]:
        if change.actor == self.slow:
            self.asked.set()
            await self.may_store.wait()
        yield


class Site:
    """A desk and lanes whose queues are handed over when the test says so."""

    def __init__(
        self, audit: SlowAudit | None = None, nameserver: Nameserver | None = None
    ) -> None:
        self.lanes = Lanes(make_lane, auto_create=True)
        self.may_leave = asyncio.Event()
        self.live = LiveGroups(self.lanes, changed=lambda _lane: None, give_up=self._give_up)
        at = nameserver or Nameserver()
        store = GroupStore(at, StoreKeys([b"k" * 32]))  # type: ignore[arg-type]
        self.watch = StoreWatch(store, self.live)
        self.desk = GroupDesk(self.lanes, self.live, cast(Audit, audit), self.watch)

    async def _give_up(self, _lane: GroupLane) -> None:
        await self.may_leave.wait()


async def test_a_group_is_shown_with_where_it_comes_from() -> None:
    site = Site()
    site.live.give(Source.FILE, [group_settings("filed")])
    site.lanes.require("asked", ["orders"])
    assert site.desk.describe("filed")["source"] == "file"
    assert site.desk.describe("asked")["source"] == "clients"
    with pytest.raises(UnknownName, match="there is no group 'absent' here; known groups: "):
        site.desk.describe("absent")


async def test_a_removed_group_is_no_more_though_its_queues_are_being_handed_over() -> None:
    """It used to be shown as one from clients, with its previous settings."""
    site = Site()
    site.live.give(Source.FILE, [group_settings("billing")])
    site.live.give(Source.FILE, [])
    assert site.live.leaving == ["billing"]
    with pytest.raises(UnknownName, match="there is no group 'billing' any more: it was removed"):
        site.desk.describe("billing")
    again = group_settings("billing", order_key="QID")
    site.live.give(Source.FILE, [again])
    assert site.desk.describe("billing")["settings"]["topics"][0]["order_key"] == "QID"
    site.live.give(Source.FILE, [])
    site.may_leave.set()
    await eventually(lambda: not site.live.leaving)
    with pytest.raises(UnknownName, match="there is no group 'billing' here"):
        site.desk.describe("billing")


async def test_only_stored_groups_are_deleted() -> None:
    site = Site()
    site.live.give(Source.FILE, [group_settings("filed")])
    site.lanes.require("asked", ["orders"])
    wish = Wish("me", "a test")
    with pytest.raises(Refused, match="filed comes from the proxy's settings file"):
        await site.desk.delete("filed", wish)
    with pytest.raises(Refused, match="asked is not in the store: it comes from clients"):
        await site.desk.delete("asked", wish)
    with pytest.raises(UnknownName, match="there is no group 'absent'"):
        await site.desk.delete("absent", wish)


async def test_a_name_without_room_for_its_dead_letters_is_not_stored() -> None:
    site = Site()
    settings = {"topics": [{"name": "orders", "order_key": "KEY"}]}
    for name in ("g" * 123, "g" * 127, "%DLQ%billing"):
        with pytest.raises(SettingsError, match=r"at most 122 are allowed|begins with '%'"):
            await site.desk.put(name, settings, Wish(by="me", reason="so"))


@pytest.mark.parametrize("expect", [1, None])
@pytest.mark.failing_tasks
async def test_no_change_that_was_made_while_another_is_audited_is_overwritten(
    expect: int | None,
) -> None:
    audit = SlowAudit("anna")
    desk = Site(audit).desk
    await desk.put("billing", settings("KEY"), Wish("bob", "new", expect=0))
    slow = spawn(desk.put("billing", settings("$.a"), Wish("anna", "so", expect)), name="slow")
    await audit.asked.wait()
    await desk.put("billing", settings("$.b"), Wish("bob", "first", expect=1))
    audit.may_store.set()
    with pytest.raises(Refused, match="billing has version 2, and version 1 is expected"):
        await slow
    assert desk.describe("billing")["settings"] == settings("$.b")


async def test_a_stored_group_is_shown_with_the_settings_of_its_version() -> None:
    """A proxy that has just refused a change knows the newest version before it serves it; who
    reads the group again then and changes one setting keeps those of the other change.
    """
    nameserver, audit = Nameserver(), SlowAudit("")
    one, two = Site(audit, nameserver), Site(audit, nameserver)
    await one.desk.put("billing", settings("KEY"), Wish("bob", "new", expect=0))
    await two.watch.look()
    await one.desk.put("billing", settings("$.b"), Wish("bob", "first", expect=1))
    with pytest.raises(Refused, match="has version 2, and version 1 is expected"):
        await two.desk.put("billing", settings("$.a"), Wish("anna", "so", expect=1))
    shown = two.desk.describe("billing")
    assert (shown["version"], shown["settings"]) == (2, settings("$.b"))


def settings(order_key: str) -> dict[str, object]:
    return {"topics": [{"name": "orders", "order_key": order_key}]}
