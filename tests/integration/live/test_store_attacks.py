"""A stranger writes to the nameserver that stores the groups of two proxies."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from broker_core.names import Group
from proxy.app import Proxy
from proxy.errors import SettingsError
from proxy.listening import Addresses
from proxy.live import store_watch
from proxy.live.store_keys import StoreKeys
from proxy.live.stored_group import NAMESPACE, StoredGroup
from proxy.settings.proxy_settings import load_settings
from testkit.eventually import eventually, until
from testkit.gateway import Gateway, run_gateway
from tests.integration.delivery.receiver import running_receiver
from tests.integration.live.test_stored_groups import call, limit

OLD, NEW = "a" * 32, "b" * 32
EVIL = Group("evil")


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_watch, "LOOK_S", 0.1)
    monkeypatch.setenv("OLD_KEY", OLD)
    monkeypatch.setenv("NEW_KEY", NEW)
    monkeypatch.setenv("TOKEN", "Bearer hush")


def settings(*keys: str) -> dict[str, Any]:
    return {
        "group_store": "nameserver",
        "group_store_keys": list(keys),
        "secrets": [
            {"name": "old", "environment": "OLD_KEY", "hosts": []},
            {"name": "new", "environment": "NEW_KEY", "hosts": []},
            {"name": "token", "environment": "TOKEN"},
        ],
    }


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with run_gateway(tmp_path, queues=1, groups=[], **settings("new", "old")) as running:
        yield running


async def put(gateway: Gateway, name: str, text: str) -> None:
    """Store *text* as any client can, by code 100."""
    values = gateway.client.key_values
    await values.put(values.nameservers[0], NAMESPACE, name, text)


async def stored(gateway: Gateway, name: str) -> StoredGroup:
    values = gateway.client.key_values
    return StoredGroup.decode((await values.all_of(values.nameservers[0], NAMESPACE))[name])


async def problems(at: Addresses) -> str:
    return "\n".join((await call(at, "GET", "/api/config"))[1]["problems"])


async def looks(proxy: Proxy, at: Addresses, reason: str) -> None:
    """Wait until the proxy reports *reason*, so that it has seen the stranger's value."""

    async def reported() -> bool:
        return reason in await problems(at)

    await until(reported)


async def test_one_frame_no_longer_makes_a_group_with_the_strangers_url(gateway: Gateway) -> None:
    """It had messages and the bearer token within two seconds."""
    proxy, at = await gateway.start_proxy()
    async with running_receiver() as stranger:
        push = {
            "urls": [stranger.url],
            "headers": [{"name": "Authorization", "secret": "token"}],
        }
        evil = {"topics": [{"name": gateway.topic, "actions": [{"push": push}]}]}
        for version in (1, 2**53 - 1):
            await put(gateway, EVIL, StoredGroup(version, evil, 1, "admin").encode())
            await gateway.send(["a", "b"])
            await looks(proxy, at, f"group {EVIL} in the store: version {version} is not signed")
        assert proxy.lanes.find(EVIL) is None
        assert stranger.received == []
        status, answer = await call(at, "GET", f"/api/groups/{EVIL}")
        assert (status, answer["version"], answer["unsigned"]) == (200, 0, evil)
        body = {"settings": {"topics": [{"name": gateway.topic}]}, "reason": "ours"}
        status, answer = await call(at, "PUT", f"/api/groups/{EVIL}", body)
        assert (status, answer["version"]) == (200, 1), "no version outranks a change"
        assert "evil" not in await problems(at)


async def test_a_known_group_is_restored_whatever_a_stranger_writes(gateway: Gateway) -> None:
    proxy, at = await gateway.start_proxy()
    path = f"/api/groups/{gateway.group}"

    async def update(batch: int, reason: str) -> None:
        topic = {"name": gateway.topic, "max_pull_batch": batch}
        body = {"settings": {"topics": [topic]}, "reason": reason}
        assert (await call(at, "PUT", path, body))[0] == 200

    await update(1, "first")
    first = await stored(gateway, gateway.group)
    await update(2, "second")
    second = await stored(gateway, gateway.group)
    topics = {"topics": [{"name": gateway.topic, "max_pull_batch": 99}]}
    theirs = [
        first.encode(),  # replayed
        StoredGroup(second.version + 1, topics).encode(),
        StoredGroup(second.version + 1, None).encode(),
        StoreKeys([b"x" * 32])
        .sign(gateway.group, StoredGroup(second.version + 1, topics))
        .encode(),
        StoreKeys([NEW.encode()]).sign("another", StoredGroup(9, topics)).encode(),
        "x" * 1_000,
    ]
    for text in theirs:
        await put(gateway, gateway.group, text)

        async def restored() -> bool:
            values = gateway.client.key_values
            table = await values.all_of(values.nameservers[0], NAMESPACE)
            return table.get(gateway.group) == second.encode()

        await until(restored)
        assert limit(proxy, gateway.group) == 2


async def test_a_deleted_group_does_not_return(gateway: Gateway) -> None:
    proxy, at = await gateway.start_proxy()
    path = f"/api/groups/{gateway.group}"
    body = {"settings": {"topics": [{"name": gateway.topic}]}, "reason": "a test"}
    await call(at, "PUT", path, body)
    before = await stored(gateway, gateway.group)
    assert (await call(at, "DELETE", f"{path}?reason=over"))[0] == 200
    deleted = await stored(gateway, gateway.group)
    assert deleted.settings is None
    await put(gateway, gateway.group, before.encode())

    async def restored() -> bool:
        return await stored(gateway, gateway.group) == deleted

    await until(restored)
    await eventually(lambda: proxy.lanes.find(gateway.group) is None)


async def test_keys_rotate_while_groups_are_served(gateway: Gateway) -> None:
    """Old key alone, then both, then all values signed with the new key, then that alone."""
    path = f"/api/groups/{gateway.group}"
    body = {"settings": {"topics": [{"name": gateway.topic}]}, "reason": "a test"}
    before, at_before = await gateway.start_proxy(**settings("old"))
    assert (await call(at_before, "PUT", path, body))[1]["version"] == 1
    between, at_between = await gateway.start_proxy(**settings("new", "old"))
    await eventually(lambda: between.lanes.find(gateway.group) is not None)
    assert (await call(at_between, "GET", "/api/config"))[1]["store"]["old_keys"] == [gateway.group]
    await gateway.close_proxy(before)
    status, answer = await call(at_between, "PUT", path, body)
    assert (status, answer["version"], answer["changed"]) == (200, 2, True)
    assert (await call(at_between, "PUT", path, body))[1]["changed"] is False
    after, _ = await gateway.start_proxy(**settings("new"))
    await eventually(lambda: after.lanes.find(gateway.group) is not None)
    assert "groups sign" in [each["verb"] for each in gateway.events("audit")]


async def test_unsigned_groups_of_an_earlier_version_are_signed_on_request(
    gateway: Gateway,
) -> None:
    proxy, at = await gateway.start_proxy()
    topics = {"topics": [{"name": gateway.topic}]}
    await put(gateway, gateway.group, StoredGroup(7, topics, 1, "me").encode())
    await looks(proxy, at, "version 7 is not signed")
    assert proxy.lanes.find(gateway.group) is None
    body = {"settings": topics, "reason": "signed", "expect": 0}
    status, answer = await call(at, "PUT", f"/api/groups/{gateway.group}", body)
    assert (status, answer["version"]) == (200, 8), "above that which earlier versions follow"
    assert proxy.lanes.find(gateway.group) is not None


def test_without_a_key_the_start_is_refused_in_one_sentence() -> None:
    with pytest.raises(SettingsError) as error:
        load_settings(overrides={"nameserver": "ns:9876", "group_store": "nameserver"})
    (sentence,) = str(error.value).splitlines()
    assert "group_store: nameserver needs group_store_keys" in sentence
    with pytest.raises(SettingsError, match="'absent', which is not among the secrets"):
        load_settings(overrides={"group_store": "nameserver", "group_store_keys": "absent"})
