"""Groups in the nameservers' store: served by all proxies, changed under load, never forgotten."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from broker_core.names import Group
from broker_core.nameserver.server import NameServer
from proxy.app import Proxy
from proxy.listening import Addresses
from proxy.live import store_watch
from proxy.live.group_store import GroupStore
from proxy.settings.types import host_port
from testkit.eventually import eventually, until
from testkit.gateway import Gateway, run_gateway
from testkit.thrift_client import connect
from tests.support.consumers import consuming
from thrift_idl import consumer

#: Prevents repeats: no lock lapses even if the machine is suspended.
PATIENT = {"renewal_s": 1, "request_timeout_s": 3, "trust_s": 9, "broker_lock_expiry_s": 10}
KEYS = [f"k{number % 40}" for number in range(300)]


async def call(
    addresses: Addresses, method: str, path: str, body: dict[str, Any] | None = None
) -> tuple[int, dict[str, Any]]:
    """Return status and answer."""
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, f"http://{addresses.http}{path}", json=body) as answer,
    ):
        return answer.status, orjson.loads(await answer.read())


def settings_of(gateway: Gateway, **others: Any) -> dict[str, Any]:
    """Return the settings of the gateway's group, with other settings of its topic."""
    return {"topics": [{"name": gateway.topic, "order_key": "KEY", **others}]}


def limit(proxy: Proxy, group: Group) -> int | None:
    """Return the group's batch limit at *proxy*; None if it does not serve the group."""
    lane = proxy.lanes.find(group)
    return None if lane is None else lane.settings.topics[0].max_pull_batch


async def test_a_stored_group_is_served_changed_and_removed_by_all_proxies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changes through one proxy reach the other, with one nameserver down for a while."""
    monkeypatch.setattr(store_watch, "LOOK_S", 0.1)
    async with (
        AsyncExitStack() as stack,
        run_gateway(
            tmp_path, queues=4, groups=[], group_store="nameserver", lock=PATIENT
        ) as gateway,
    ):
        second = NameServer(data=tmp_path / "second")
        await second.start()
        stack.push_async_callback(second.close)
        both = f"{gateway.cluster.nameserver},{second.address}"
        one, at_one = await gateway.start_proxy(nameserver=both)
        two, at_two = await gateway.start_proxy(nameserver=both)
        path = f"/api/groups/{gateway.group}"
        asked = {"settings": settings_of(gateway), "reason": "a test", "expect": 0}
        status, answer = await call(at_one, "PUT", path, asked)
        assert (status, answer["version"], answer["changed"]) == (200, 1, True)
        assert limit(one, gateway.group) == 256, "at once where it was asked for"
        await eventually(lambda: limit(two, gateway.group) == 256, within_s=30)

        async with (
            consuming(gateway, at_one.thrift, "one"),
            consuming(gateway, at_two.thrift, "two"),
        ):
            await gateway.send(KEYS)
            await second.close()
            asked = {"settings": settings_of(gateway, max_pull_batch=9), "reason": "slower"}
            status, answer = await call(at_two, "PUT", path, {**asked, "expect": 1})
            assert (status, answer["version"]) == (200, 2)
            await eventually(lambda: limit(one, gateway.group) == 9, within_s=30)
            status, answer = await call(at_one, "PUT", path, {**asked, "expect": 1})
            assert (status, "has version 2" in answer["error"]) == (409, True)
            await gateway.send(KEYS)
            await eventually(gateway.all_finished, within_s=60)
        report = gateway.verify()
        assert (report.violations, report.counts.duplicates) == ({}, 0)

        # The second nameserver returns with its old values, and gets the missed ones.
        host, _, port = second.address.rpartition(":")
        second = NameServer(host, int(port), data=tmp_path / "second")
        await second.start()
        stack.push_async_callback(second.close)

        async def second_is_up_to_date() -> bool:
            values = gateway.client.key_values
            stored = await values.all_of(second.address, "ORDERLANE_GROUPS")
            return '"version":2' in stored[gateway.group]

        await until(second_is_up_to_date)

        status, answer = await call(at_one, "DELETE", f"{path}?reason=over&expect=2")
        assert (status, answer["version"], answer["after"]) == (200, 3, None)
        await eventually(lambda: limit(one, gateway.group) is None, within_s=60)
        await eventually(lambda: limit(two, gateway.group) is None, within_s=60)
        assert (await call(at_two, "GET", path))[0] == 404
        verbs = [(each["verb"], each["reason"]) for each in gateway.events("audit")]
        assert sorted(verbs) == [
            ("groups create", "a test"),
            ("groups delete", "over"),
            ("groups update", "slower"),
        ]


async def test_unstorable_groups_are_refused_in_a_sentence(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, queues=1, group_store="nameserver") as gateway:
        _, at = await gateway.start_proxy()
        good = {"settings": settings_of(gateway), "reason": "a test"}
        wrong = {**good, "settings": {"topics": [{"name": "orders", "tag": "x"}]}}

        async def refused(method: str, group: str, body: dict[str, Any] | None) -> tuple[int, str]:
            status, answer = await call(at, method, f"/api/groups/{group}", body)
            return status, answer.get("error", "")

        status, sentence = await refused("PUT", gateway.group, good)
        assert (status, "comes from the proxy's settings file" in sentence) == (409, True)
        status, sentence = await refused("PUT", "other", wrong)
        assert (status, "did you mean tags?" in sentence) == (400, True)
        status, sentence = await refused("PUT", "other", {**good, "reason": ""})
        assert (status, "reason" in sentence) == (400, True)
        status, sentence = await refused("PUT", "a%20b", good)
        assert (status, "group" in sentence) == (400, True)
        status, sentence = await refused("PUT", "other", {**good, "expect": 4})
        assert (status, "version 4 is expected" in sentence) == (409, True)
        assert (await refused("DELETE", "other?reason=x", None))[0] == 404
        status, answer = await call(at, "PUT", "/api/groups/other", {**good, "dry_run": True})
        assert (status, answer["changed"], answer["version"]) == (200, False, 0)
        assert gateway.events("audit") == [], "nothing was changed"


async def test_a_proxy_without_a_store_says_so(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, queues=1) as gateway:
        _, at = await gateway.start_proxy()
        body = {"settings": settings_of(gateway), "reason": "a test"}
        status, answer = await call(at, "PUT", "/api/groups/other", body)
        assert (status, "set group_store: nameserver" in answer["error"]) == (409, True)
        status, answer = await call(at, "GET", f"/api/groups/{gateway.group}")
        assert (status, answer["source"], answer["version"]) == (200, "file", 0)


async def test_a_proxy_that_starts_serves_a_stored_group_with_its_order_key_from_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that comes before the store was read neither creates the group nor ends."""
    may_read, refresh = asyncio.Event(), GroupStore.refresh

    async def late(store: GroupStore) -> None:
        await may_read.wait()
        await refresh(store)

    async with run_gateway(
        tmp_path, queues=2, groups=[], group_store="nameserver", auto_create_groups=True
    ) as gateway:
        one, at_one = await gateway.start_proxy()
        settings = {"topics": [{"name": gateway.topic, "order_key": "QID"}]}
        asked = {"settings": settings, "reason": "a test", "expect": 0}
        status, _ = await call(at_one, "PUT", f"/api/groups/{gateway.group}", asked)
        assert status == 200
        await one.close()
        monkeypatch.setattr(GroupStore, "refresh", late)
        two, at_two = await gateway.start_proxy()
        async with connect(host_port(at_two.thrift)[1]) as client:
            with pytest.raises(consumer.PullException, match="has not read the nameservers'") as e:
                await client.pull(gateway.group, topics=[gateway.topic])
            assert (e.value.code, two.lanes.find(gateway.group)) == (503, None)
            may_read.set()
            await eventually(lambda: two.lanes.find(gateway.group) is not None, within_s=30)
            await client.pull(gateway.group, topics=[gateway.topic])
        lane = two.lanes.find(gateway.group)
        assert lane is not None
        assert str(lane.settings.topics[0].order_key) == "QID"
