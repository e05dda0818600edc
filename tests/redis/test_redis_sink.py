"""A topic delivered to Redis: stored values, and behaviour when Redis fails."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from broker_core.clock import wall_ms
from broker_core.names import Group
from proxy.diagnosis.diagnose import diagnose
from proxy.diagnosis.facts import Facts, ProxyFacts, group_of
from proxy.diagnosis.findings import Cause
from testkit.certificates import make_certificates
from testkit.eventually import eventually, until
from testkit.gateway import Gateway, run_gateway
from testkit.thrift_client import connect
from tests.redis.redis_server import RedisServer, redis_server

pytestmark = pytest.mark.sockets

LISTS = [["RPUSH", "seen:${key}", "${body.n}"]]


@pytest.fixture
async def redis(tmp_path: Path) -> AsyncIterator[RedisServer]:
    async with redis_server(tmp_path / "redis") as server:
        yield server


def sink(server: RedisServer, commands: list[list[str]], **others: Any) -> dict[str, Any]:
    """Return the settings of a topic delivered to that server."""
    settings: dict[str, Any] = {"url": server.url, "commands": commands, **others}
    return {"actions": [{"redis": settings}], "retry_intervals_ms": [20]}


def judged(gateway: Gateway) -> None:
    """Assert that all histories are free of violations."""
    assert gateway.verify().violations == {}


async def seen(server: RedisServer, keys: set[str]) -> dict[str, list[int]]:
    """Return the stored lists by key."""
    found = {}
    for key in keys:
        found[key] = [int(each) for each in await server.client.lrange(f"seen:{key}", 0, -1)]
    return found


def without_repeats(numbers: list[int]) -> list[int]:
    return list(dict.fromkeys(numbers))


async def test_messages_are_stored_in_the_order_of_their_keys(
    tmp_path: Path, redis: RedisServer
) -> None:
    keys = random.Random(7).choices([f"k{n}" for n in range(12)], k=600)
    async with run_gateway(tmp_path, topic=sink(redis, LISTS)) as gateway:
        await gateway.send(keys)
        proxy, _ = await gateway.start_proxy()
        await eventually(gateway.all_finished, within_s=30)
        await gateway.close_proxy(proxy)
        found = await seen(redis, set(keys))
        assert sum(map(len, found.values())) == 600
        assert all(numbers == sorted(numbers) for numbers in found.values())
        judged(gateway)


async def test_two_proxies_share_and_hand_over_queues_without_duplicates(
    tmp_path: Path, redis: RedisServer
) -> None:
    keys = random.Random(8).choices([f"k{n}" for n in range(12)], k=400)
    async with run_gateway(tmp_path, topic=sink(redis, LISTS)) as gateway:
        first, _ = await gateway.start_proxy()
        await gateway.send(keys)
        await gateway.start_proxy()
        await eventually(
            lambda: {each["node"] for each in gateway.events("own+")} == {"proxy-0", "proxy-1"},
            within_s=30,
        )
        await gateway.send(keys)
        await gateway.close_proxy(first)
        await eventually(gateway.all_finished, within_s=30)
        found = await seen(redis, set(keys))
        assert sum(map(len, found.values())) == 800
        assert all(numbers == sorted(numbers) for numbers in found.values())
        judged(gateway)


async def test_actions_filter_and_transform_before_the_sink(
    tmp_path: Path, redis: RedisServer
) -> None:
    topic = sink(redis, [["RPUSH", "seen:${key}", "${body}"]])
    topic["actions"] = [
        {"filter": {"where": "body.n != `2`"}},
        {"transform": {"to": "body.n"}},
        *topic["actions"],
    ]
    async with run_gateway(tmp_path, queues=1, topic=topic) as gateway:
        await gateway.start_proxy()
        await gateway.send(["a"] * 4)
        await eventually(gateway.all_finished, within_s=30)
        assert await seen(redis, {"a"}) == {"a": [1, 3, 4]}
        judged(gateway)


async def test_tls_verifies_the_servers_certificate(tmp_path: Path) -> None:
    made = make_certificates(tmp_path)
    files = ["--tls-cert-file", str(made.server), "--tls-key-file", str(made.server_key)]
    async with redis_server(tmp_path / "redis", tls=files) as server:
        topic = sink(server, LISTS, url=server.tls_url, ca_file=str(made.other_ca))
        good = {**sink(server, LISTS, url=server.tls_url, ca_file=str(made.ca)), "name": "orders"}
        async with run_gateway(tmp_path, queues=1, topic=topic) as gateway:
            doubting, _ = await gateway.start_proxy()
            await gateway.send(["a", "b"])
            await _shows(doubting, lambda state: "CERTIFICATE_VERIFY_FAILED" in state["reason"])
            await gateway.close_proxy(doubting)
            groups = [{"name": gateway.group, "topics": [{**good, "order_key": "KEY"}]}]
            await gateway.start_proxy(groups=groups)
            await eventually(gateway.all_finished, within_s=30)
            assert await seen(server, {"a", "b"}) == {"a": [1], "b": [2]}
            judged(gateway)


async def test_over_tls_the_connection_goes_to_the_checked_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name may have another address when it is resolved again; the certificate has to name it."""
    made = make_certificates(tmp_path)
    files = ["--tls-cert-file", str(made.server), "--tls-key-file", str(made.server_key)]
    loop = asyncio.get_running_loop()
    resolve, asked = loop.getaddrinfo, []

    async def once(host: Any, *others: Any, **options: Any) -> Any:
        if host == "localhost":
            asked.append(host)
            if len(asked) > 1:
                raise OSError(None, "resolved again")
        return await resolve(host, *others, **options)

    async with redis_server(tmp_path / "redis", tls=files) as server:
        monkeypatch.setattr(loop, "getaddrinfo", once)
        url = server.tls_url.replace("127.0.0.1", "localhost")
        topic = sink(server, LISTS, url=url, ca_file=str(made.ca))
        async with run_gateway(tmp_path, queues=1, topic=topic) as gateway:
            await gateway.start_proxy()
            await gateway.send(["a"])
            await eventually(gateway.all_finished, within_s=30)
            assert await seen(server, {"a"}) == {"a": [1]}
            assert asked == ["localhost"]
            judged(gateway)


async def test_several_commands_are_one_transaction(tmp_path: Path, redis: RedisServer) -> None:
    commands = [
        ["SET", "${topic}:${key}", "${text}", "EX", "600"],
        ["HSET", "last", "${key}", "${offset}", "whole", "${body}"],
        ["XADD", "changes", "MAXLEN", "~", "1000", "*", "id", "${message_id}", "group", "${group}"],
        ["PUBLISH", "news", "${raw}"],
    ]
    async with (
        run_gateway(tmp_path, queues=1, topic=sink(redis, commands)) as gateway,
        redis.client.pubsub() as news,
    ):
        await news.subscribe("news")
        await gateway.start_proxy()
        (receipt,) = await gateway.send(["k"])
        await eventually(gateway.all_finished, within_s=30)
        text = '{"id": "k", "n": 1}'
        assert await redis.client.get("orders:k") == text
        assert 0 < await redis.client.ttl("orders:k") <= 600
        assert await redis.client.hgetall("last") == {"k": "0", "whole": '{"id":"k","n":1}'}
        changes = await redis.client.xrange("changes")
        assert changes is not None
        ((_, entry),) = changes
        assert entry == {"id": receipt.message_id, "group": "billing"}
        published = [await news.get_message(timeout=10) for _ in range(2)]
        assert published[1] is not None
        assert published[1]["data"] == text


async def test_a_killed_server_costs_no_attempt_and_keeps_order(
    tmp_path: Path, redis: RedisServer
) -> None:
    keys = random.Random(9).choices([f"k{n}" for n in range(8)], k=300)
    topic = {**sink(redis, LISTS), "max_deliveries": 2, "on_exhausted": "park"}
    async with run_gateway(tmp_path, topic=topic) as gateway:
        proxy, _ = await gateway.start_proxy()
        await gateway.send(keys)
        await eventually(lambda: len(gateway.events("finish")) > 20, within_s=30)
        await redis.kill()
        await gateway.send(keys)
        await _shows(proxy, lambda state: state["down_for_s"] is not None)
        seen_by_proxy = group_of((await proxy.console.overview())["groups"]["billing"])
        facts = Facts("billing", wall_ms(), proxies=(ProxyFacts("p:1", group=seen_by_proxy),))
        finding = diagnose(facts)[0]
        assert finding.cause is Cause.TARGET_DOWN
        assert redis.url in finding.what
        await redis.start()
        await eventually(gateway.all_finished, within_s=60)
        await _shows(proxy, lambda state: state["down_for_s"] is None)
        assert {each["outcome"] for each in gateway.events("finish")} == {"ok"}
        found = await seen(redis, set(keys))
        for key, numbers in found.items():
            once = without_repeats(numbers)
            assert once == sorted(once), key
        assert sum(len(set(numbers)) for numbers in found.values()) == 600
        judged(gateway)


async def test_a_key_of_another_type_fails_with_the_error_of_redis_and_follows_the_policy(
    tmp_path: Path, redis: RedisServer
) -> None:
    topic = {**sink(redis, LISTS), "max_deliveries": 2, "on_exhausted": "dead_letter"}
    async with run_gateway(tmp_path, queues=1, topic=topic) as gateway:
        await redis.client.set("seen:bad", "a text")
        await gateway.start_proxy()
        await gateway.send(["good", "bad", "good", "bad"])
        await eventually(gateway.all_finished, within_s=30)
        outcomes = [each["outcome"] for each in gateway.events("finish")]
        assert sorted(outcomes) == ["dlq", "dlq", "ok", "ok"]
        ends = [each["outcome"] for each in gateway.events("handle_end") if each["order"] == "bad"]
        assert ends == ["retry"] * 4
        (queue,) = await gateway.client.queues(gateway.dead_letter_topic, fresh=True)
        pulled = await gateway.client.pull(queue, group=Group("undertaker"), offset=0, suspend_ms=0)
        reasons = {each.properties["ORDERLANE_REASON"] for each in pulled.messages}
        assert len(reasons) == 1
        assert "WRONGTYPE" in reasons.pop()
        judged(gateway)


async def test_retries_keep_the_order_of_the_key(tmp_path: Path, redis: RedisServer) -> None:
    """The list has another type until an operator fixes it: meanwhile its key fails and waits."""
    async with run_gateway(tmp_path, queues=1, topic=sink(redis, LISTS)) as gateway:
        await redis.client.set("seen:late", "a text")
        await gateway.start_proxy()
        await gateway.send(["late", "good"] * 20)
        await eventually(
            lambda: sum(each["order"] == "late" for each in gateway.events("handle_end")) >= 3,
            within_s=30,
        )
        await redis.client.delete("seen:late")
        await eventually(gateway.all_finished, within_s=30)
        found = await seen(redis, {"late", "good"})
        assert found["late"] == sorted(found["late"])
        assert len(found["late"]) == len(found["good"]) == 20
        judged(gateway)


async def test_a_stalled_server_fails_the_delivery_after_the_timeout(
    tmp_path: Path, redis: RedisServer
) -> None:
    topic = sink(redis, LISTS, timeout_s=0.3)
    async with run_gateway(tmp_path, queues=1, topic=topic) as gateway:
        await gateway.start_proxy()
        await gateway.send(["a"])
        await eventually(gateway.all_finished, within_s=30)
        redis.stand_still()
        try:
            await gateway.send(["a"])
            await eventually(
                lambda: (
                    [each["outcome"] for each in gateway.events("handle_end")][1:2] == ["retry"]
                ),
                within_s=30,
            )
        finally:
            redis.go_on()
        await eventually(gateway.all_finished, within_s=30)
        numbers = (await seen(redis, {"a"}))["a"]
        assert without_repeats(numbers) == [1, 2]
        judged(gateway)


async def test_a_wrong_password_marks_the_target_down_and_costs_no_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDIS_PASSWORD", "wrong")
    secrets = [{"name": "cache", "environment": "REDIS_PASSWORD"}]
    async with redis_server(tmp_path / "redis", password="right") as server:
        topic = sink(server, LISTS, password_secret="cache")
        async with run_gateway(tmp_path, queues=1, topic=topic, secrets=secrets) as gateway:
            wrong, _ = await gateway.start_proxy()
            await gateway.send(["a", "b", "a"])
            await _shows(wrong, lambda state: "password" in state["reason"])
            await gateway.close_proxy(wrong)
            monkeypatch.setenv("REDIS_PASSWORD", "right")
            await gateway.start_proxy()
            await eventually(gateway.all_finished, within_s=60)
            assert {each["outcome"] for each in gateway.events("finish")} == {"ok"}
            assert {each["attempt"] for each in gateway.events("deliver")} == {1}
            judged(gateway)


async def test_a_message_without_a_required_value_is_given_up_at_once(
    tmp_path: Path, redis: RedisServer
) -> None:
    topic = {
        **sink(redis, [["SET", "order:${body.order.id}", "${text}"]]),
        "on_exhausted": "dead_letter",
    }
    async with run_gateway(tmp_path, queues=1, topic=topic) as gateway:
        await gateway.start_proxy()
        await gateway.send(["a"])
        await gateway.send(["b"], body='{{"order": {{"id": 7}}}}')
        await eventually(gateway.all_finished, within_s=30)
        assert await redis.client.keys() == ["order:7"]
        ends = {each["order"]: each["outcome"] for each in gateway.events("handle_end")}
        assert ends == {"a": "reject", "b": "ok"}
        judged(gateway)


async def test_thin_clients_cannot_pull_the_topic(tmp_path: Path, redis: RedisServer) -> None:
    async with run_gateway(tmp_path, queues=1, topic=sink(redis, LISTS)) as gateway:
        _, addresses = await gateway.start_proxy()
        port = int(addresses.thrift.rpartition(":")[2])
        async with connect(port) as client:
            for topic in ({"topic": "orders"}, {}):
                with pytest.raises(Exception, match="delivered by the proxy itself") as refused:
                    await client.pull(gateway.group, **topic)
                assert "(redis)" in str(refused.value)


async def _shows(proxy: Any, what: Callable[[dict[str, Any]], bool]) -> None:
    """Wait until the delivery state, as operators see it, is as *what* says."""

    async def shown() -> bool:
        return what(await _delivery(proxy))

    await until(shown)


async def _delivery(proxy: Any) -> dict[str, Any]:
    """Return the delivery state from the HTTP port."""
    (view,) = (await proxy.console.overview())["groups"]["billing"]["deliveries"]
    return dict(view)
