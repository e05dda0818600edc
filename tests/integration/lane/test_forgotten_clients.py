"""Clients of broadcast groups that have been absent too long: brokers forget all their state."""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from broker_core.client.deletions import Deletions
from broker_core.clock import wall_ms
from broker_core.errors import ConnectionLost
from broker_core.names import Group, Topic
from broker_core.remoting.message import OutgoingMessage
from proxy.app import Proxy
from proxy.core.broadcast.departed_clients import records_of
from proxy.upstream.client_sweep import ClientSweep
from testkit.brokers import Brokers
from testkit.eventually import eventually
from testkit.gateway import Gateway, run_gateway
from tests.integration.lane.broadcast_site import Got, broadcast, client, count, left

KEYS = ["k0", "k1", "k2"]
_WEEK_MS = 604_800_000


async def sweep(proxy: Proxy, *, weeks: float) -> list[Group]:
    """Sweep as if *weeks* had passed."""
    looking = ClientSweep(proxy.context, proxy.lanes)
    return await looking.sweep(now_ms=wall_ms() + int(weeks * _WEEK_MS))


async def consumed(gateway: Gateway, proxy: Proxy, thrift: str, name: str) -> Group:
    """Run a client that handles all messages and leaves."""
    got: Got = defaultdict(list)
    async with client(gateway, thrift, name, got):
        await eventually(lambda: count(got) == len(KEYS), within_s=30)
    await eventually(partial(left, proxy), within_s=30)
    return Group(f"{gateway.group}%{name}")


async def kept(gateway: Gateway, group: Group) -> tuple[set[Topic], set[Topic]]:
    """Return the topics in which *group* has offsets, and those of its records."""
    consumers = await gateway.client.deletions.consumers()
    records = records_of(group, [gateway.topic])
    return (
        {topic for each, topic in consumers if each == group and topic == gateway.topic},
        records & set(await gateway.client.topics()),
    )


@pytest.mark.feature("proxy: broadcast")
async def test_an_absent_client_is_forgotten_and_starts_over_when_it_returns(
    brokers: Brokers, tmp_path: Path
) -> None:
    async with run_gateway(tmp_path, brokers=brokers, queues=2) as gateway:
        broadcast(gateway, ownership={"leave_after_s": 0.2})
        proxy, at = await gateway.start_proxy()
        await gateway.send(KEYS)
        a = await consumed(gateway, proxy, at.thrift, "a")
        here: Got = defaultdict(list)
        async with client(gateway, at.thrift, "b", here):
            await eventually(lambda: count(here) == len(KEYS), within_s=30)
            b = Group(f"{gateway.group}%b")
            assert await sweep(proxy, weeks=0.9) == []
            assert all(await kept(gateway, a))
            assert await sweep(proxy, weeks=1.1) == [a]
            assert await kept(gateway, a) == (set(), set())
            assert (await kept(gateway, b))[1], "who is served is never forgotten"
            assert await sweep(proxy, weeks=1.1) == []
        await eventually(partial(left, proxy), within_s=30)
        assert await consumed(gateway, proxy, at.thrift, "a") == a
        assert all(await kept(gateway, a))
        assert await sweep(proxy, weeks=1.1) == [a, b], "and again, though its topics are new"


async def test_a_client_served_elsewhere_is_kept(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, queues=2) as gateway:
        broadcast(gateway, ownership={"leave_after_s": 0.2})
        looking, _ = await gateway.start_proxy()
        _, at = await gateway.start_proxy()
        await gateway.send(KEYS)
        got: Got = defaultdict(list)
        async with client(gateway, at.thrift, "a", got):
            await eventually(lambda: count(got) == len(KEYS), within_s=30)
            assert await sweep(looking, weeks=1.1) == []
            await gateway.send(KEYS)
            await eventually(lambda: count(got) == 2 * len(KEYS), within_s=30)
    assert gateway.verify().clean


async def test_a_client_with_dead_letters_is_kept_and_an_interrupted_sweep_is_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_gateway(tmp_path, queues=1) as gateway:
        broadcast(gateway, ownership={"leave_after_s": 0.2})
        proxy, at = await gateway.start_proxy()
        await gateway.send(KEYS)
        a = await consumed(gateway, proxy, at.thrift, "a")
        dead = Topic(f"%DLQ%{a}")
        (queue,) = await gateway.cluster.create_topic(dead, queues=1)
        await gateway.client.send(queue, OutgoingMessage(dead, b"given up"))
        assert await sweep(proxy, weeks=1.1) == []
        assert all(await kept(gateway, a))
        await gateway.client.deletions.delete_topic(dead)
        await gateway.cluster.create_topic(dead, queues=1)

        async def broken(deletions: Deletions, topic: Topic) -> None:
            raise ConnectionLost("a broker that went")

        with monkeypatch.context() as patched:
            patched.setattr(Deletions, "delete_topic", broken)
            assert await sweep(proxy, weeks=1.1) == []
        offsets, records = await kept(gateway, a)
        assert not offsets
        assert records
        (lane,) = proxy.lanes
        settings = lane.settings
        lane.apply(settings.model_copy(update={"forget_after_s": None}))
        assert await sweep(proxy, weeks=1000) == []
        lane.apply(settings)
        assert await sweep(proxy, weeks=1.1) == [a]
        assert await kept(gateway, a) == (set(), set())
        assert dead not in await gateway.client.topics()


async def test_a_consumer_that_changes_its_client_id_uses_bounded_storage(tmp_path: Path) -> None:
    """Those absent longest are forgotten early; a client with dead letters is kept."""
    async with run_gateway(tmp_path, queues=1) as gateway:
        broadcast(gateway, ownership={"leave_after_s": 0.2})
        gateway.settings["groups"][0]["max_clients"] = 3
        proxy, at = await gateway.start_proxy()
        await gateway.send(KEYS)
        kept_one = await consumed(gateway, proxy, at.thrift, "dead")
        dead = Topic(f"%DLQ%{kept_one}")
        (queue,) = await gateway.cluster.create_topic(dead, queues=1)
        await gateway.client.send(queue, OutgoingMessage(dead, b"given up"))
        looking = ClientSweep(proxy.context, proxy.lanes)
        forgotten: list[Group] = []
        for number in range(12):
            await consumed(gateway, proxy, at.thrift, f"id-{number}")
            if number % 3 == 2:
                forgotten += await looking.sweep(now_ms=wall_ms() + 120_000)
            records = [
                topic for topic in await gateway.client.topics() if topic.startswith("%OWN%")
            ]
            assert len(records) <= 6
        assert len(forgotten) >= 9
        assert kept_one not in forgotten
        assert all(await kept(gateway, kept_one))
        assert all(await kept(gateway, Group(f"{gateway.group}%id-11")))


async def test_an_error_with_one_group_does_not_end_the_check_of_others() -> None:
    asked: list[str] = []

    class Lanes(list[Any]):
        def members(self, group: str) -> list[Any]:
            asked.append(group)
            if group == "bad":
                raise ValueError("a bug")
            return []

    async def nothing() -> dict[Any, Any]:
        return {}

    other = SimpleNamespace(
        deletions=SimpleNamespace(consumers=nothing), topics=nothing, close=nothing
    )
    client = SimpleNamespace(client_id="me", another=lambda name: other)
    settings = SimpleNamespace(forget_after_s=None)
    lanes = Lanes(
        SimpleNamespace(name=Group(name), is_broadcast=True, settings=settings)
        for name in ("bad", "good")
    )
    lanes.known_clients = SimpleNamespace(learn=lambda *_: None)  # type: ignore[attr-defined]
    looking = ClientSweep(SimpleNamespace(client=client), lanes)  # type: ignore[arg-type]
    with capture_logs() as logs:
        assert await looking.sweep(now_ms=0) == []
    assert asked == ["bad", "good"]
    assert [(each["group"], each["reason"]) for each in logs] == [("bad", "a bug")]
