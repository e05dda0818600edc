"""Quotas of principals, tokens that expire, and the audit of refusals, at whole proxies."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from proxy.settings.types import host_port
from testkit.gateway import GROUP, TOPIC, Gateway, run_gateway
from testkit.thrift_client import ThriftClient, acked, connect, our_pull
from thrift_idl import consumer, producer


def token(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "sha256": hashlib.sha256(name.encode()).hexdigest(), **more}


TOKENS = [token("ann"), token("bob"), token("ann-2", principal="ann")]


async def code_of(client: ThriftClient, **fields: Any) -> tuple[int, str]:
    """Return code and text of a pull; 0 if it was served."""
    try:
        await client.pull(GROUP, **fields)
    except consumer.PullException as error:
        return error.code, error.message
    return 0, ""


async def start(gateway: Gateway, *, quota: dict[str, Any], **settings: Any) -> Any:
    quotas = {"principals": [{"name": "ann", **quota}]}
    _, at = await gateway.start_proxy(**{"tokens": TOKENS, "quotas": quotas, **settings})
    return at


async def test_a_quota_covers_all_connections_and_tokens_of_a_principal(tmp_path: Path) -> None:
    async with run_gateway(tmp_path) as gateway:
        at = await start(gateway, quota={"requests_per_s": 3})
        port = host_port(at.thrift)[1]
        async with connect(port) as first, connect(port) as second:
            found = [
                (await code_of(client, token=shown))[0]
                for client, shown in ((first, "ann"), (second, "ann-2"), (first, "ann-2")) * 2
            ]
            assert found.count(0) in (3, 4)
            code, text = await code_of(second, token="ann")
            assert code == 503
            assert "ann is above its quota requests_per_s (3)" in text
            assert "try again in" in text
            assert (await code_of(first, token="bob"))[0] == 0
            await asyncio.sleep(1)
            assert (await code_of(first, token="ann"))[0] == 0


async def test_verdicts_of_a_refused_pull_count(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, queues=1) as gateway:
        await gateway.send(["k"])
        at = await start(gateway, quota={"bytes_per_s": 1024})
        async with connect(host_port(at.thrift)[1]) as client:
            got = await client.pull(GROUP, token="ann", linger_ms=10_000)
            assert got.messages
            acks = [acked(got)]
            padded = our_pull(GROUP, token="ann", version="x" * 5_000)
            await client.call("pull", padded)
            code, text = await code_of(client, token="ann", acks=acks)
            assert (code, "bytes_per_s (1024)" in text) == (503, True)
            assert len(gateway.events("ack_ok")) == 1


@pytest.mark.parametrize("quota", [{"requests_per_s": 1}, {"bytes_per_s": 1024}])
async def test_a_client_above_its_quota_keeps_its_leases_and_settles(
    tmp_path: Path, quota: dict[str, Any]
) -> None:
    """Otherwise a handled message would be delivered again, and count as failed."""
    async with run_gateway(tmp_path, queues=1) as gateway:
        await gateway.send(["k"])
        at = await start(gateway, quota=quota)
        async with connect(host_port(at.thrift)[1]) as client:
            got = await client.pull(GROUP, token="ann", linger_ms=10_000)
            assert got.messages
            acks = acked(got)
            for _ in range(5):
                await code_of(client, token="ann", version="x" * 2_000)
            assert (await code_of(client, token="ann"))[0] == 503
            leases = [consumer.LeaseRef(acks.context, each) for each in acks.acked]
            extend = consumer.ExtendRequest(GROUP, leases, ms=60_000, token="ann")
            assert (await client.call("extend", extend)).notHeld == []
            request = consumer.AckRequest(groupId=GROUP, acks=[acks], token="ann")
            assert (await client.call("settle", request)).notHeld == []
            assert len(gateway.events("ack_ok")) == 1
            assert (await code_of(client, token="ann"))[0] == 503


@pytest.mark.parametrize("limit", ["topics", "groups", "connections", "loop_share"])
async def test_each_limit_is_enforced(tmp_path: Path, limit: str) -> None:
    names = [f"{TOPIC}-{number}" for number in range(3)]
    groups = [{"name": f"g{n}", "topics": [{"name": TOPIC}]} for n in range(3)]
    async with run_gateway(tmp_path) as gateway:
        quota = {limit: 1e-9 if limit == "loop_share" else 2}
        at = await start(gateway, quota=quota, groups=groups)
        port = host_port(at.thrift)[1]
        codes: list[int] = []
        text = ""
        async with connect(port) as one, connect(port) as two, connect(port) as three:
            for number, client in enumerate((one, two, three)):
                if limit == "topics":
                    sent = producer.Message(topic=names[number], body=b"x", token="ann")
                    answer = await one.call("sendSync", sent, 5_000)
                    codes.append(answer.code)
                    text = answer.msg
                    continue
                try:
                    group = f"g{number if limit == 'groups' else 0}"
                    used = client if limit == "connections" else one
                    await used.pull(group, token="ann")
                    codes.append(0)
                except consumer.PullException as error:
                    codes.append(error.code)
                    text = error.message
        if limit != "loop_share":  # time stands still during work in the simulated world
            # 14: the topic does not exist, but its name was used.
            assert codes == ([14, 14, 15] if limit == "topics" else [0, 0, 503])
            assert f"quota {limit} (2)" in text


async def test_clients_of_a_broadcast_group_use_one_group(tmp_path: Path) -> None:
    """Their leases have groups of their own, which are not names that a principal chooses."""
    async with run_gateway(tmp_path, queues=1) as gateway:
        await gateway.send(["k"])
        groups = [{"name": GROUP, "mode": "broadcast", "topics": [{"name": TOPIC}]}]
        at = await start(gateway, quota={"groups": 1}, groups=groups)
        async with connect(host_port(at.thrift)[1]) as client:
            for name in ("one", "two"):
                got = await client.pull(GROUP, token="ann", clientId=name, linger_ms=10_000)
                assert got.messages
                request = consumer.AckRequest(GROUP, [acked(got)], clientId=name, token="ann")
                assert (await client.call("settle", request)).notHeld == []
            assert len(gateway.events("ack_ok")) == 2


async def test_a_connection_that_only_settles_does_not_count(tmp_path: Path) -> None:
    """A client has one besides that of its pulls, which wait."""
    async with run_gateway(tmp_path, queues=1) as gateway:
        await gateway.send(["k"])
        at = await start(gateway, quota={"connections": 1})
        port = host_port(at.thrift)[1]
        async with connect(port) as pulls, connect(port) as settles:
            got = await pulls.pull(GROUP, token="ann", linger_ms=10_000)
            assert got.messages
            request = consumer.AckRequest(groupId=GROUP, acks=[acked(got)], token="ann")
            await settles.call("settle", request)
            assert len(gateway.events("ack_ok")) == 1
            assert (await code_of(settles, token="ann"))[0] == 503


async def test_requests_without_a_token_are_charged_to_their_address(tmp_path: Path) -> None:
    async with run_gateway(tmp_path) as gateway:
        quotas = {"default": {"requests_per_s": 2}}
        _, at = await gateway.start_proxy(tokens=TOKENS, quotas=quotas)
        async with connect(host_port(at.thrift)[1]) as client:
            codes = [(await code_of(client, token=each))[0] for each in (None, "x", "y", "z")]
            assert codes == [401, 401, 503, 503]
            assert (await code_of(client, token="ann"))[0] == 0


async def test_an_expired_token_is_refused_with_its_end(tmp_path: Path) -> None:
    tokens = [
        token("old", expires="2020-01-31"),
        token("new", expires="2199-01-01T00:00:00+01:00"),
    ]
    async with run_gateway(tmp_path) as gateway:
        _, at = await gateway.start_proxy(**{"tokens": tokens, "listen.http": "0.0.0.0:0"})
        http = f"http://127.0.0.1:{host_port(at.http)[1]}"
        async with connect(host_port(at.thrift)[1]) as client:
            code, text = await code_of(client, token="old")
            assert (code, "expired at 2020-01-31T00:00:00+00:00 ('old')" in text) == (401, True)
            assert (await code_of(client, token="new"))[0] == 0
        async with aiohttp.ClientSession() as session:
            shown = {"Authorization": "Bearer old"}
            async with session.get(f"{http}/api/groups", headers=shown) as answer:
                assert answer.status == 401
                assert "expired at 2020-01-31" in await answer.text()
            async with session.get(f"{http}/metrics") as answer:
                metrics = await answer.text()
        assert 'orderlane_token_expires_seconds{token="old"} -' in metrics
        assert 'orderlane_token_expires_seconds{token="new"} ' in metrics


async def test_usage_and_refusals_are_shown(tmp_path: Path) -> None:
    async with run_gateway(tmp_path) as gateway:
        at = await start(gateway, quota={"requests_per_s": 1})
        async with connect(host_port(at.thrift)[1]) as client, aiohttp.ClientSession() as session:
            for shown in ("ann", "ann", "wrong", "wrong"):
                await code_of(client, token=shown)
            async with session.get(f"http://{at.http}/api/principals") as answer:
                (row,) = (await answer.json())["principals"]
            async with session.get(f"http://{at.http}/api/refusals") as answer:
                refusals = await answer.json()
            async with session.get(f"http://{at.http}/metrics") as answer:
                metrics = await answer.text()
    assert (row["principal"], row["requests"], row["connections"]) == ("ann", 2, 1)
    assert (row["quota"]["requests_per_s"], row["refused"]["requests_per_s"]) == (1, 1)
    assert row["bytes"] > 0
    assert refusals["count"] == 2
    (refusal,) = refusals["refusals"]
    assert (refusal["client"], refusal["port"], refusal["what"]) == ("127.0.0.1", "thrift", "pull")
    assert "is unknown" in refusal["why"]
    wanted = 'orderlane_principal_refused_total{limit="requests_per_s",principal="ann"} 1.0'
    assert wanted in metrics
    assert 'orderlane_principal_requests_total{principal="(addresses)"} 2.0' in metrics


async def test_the_http_port_answers_429_and_when_to_retry(tmp_path: Path) -> None:
    async with run_gateway(tmp_path) as gateway:
        at = await start(gateway, quota={"requests_per_s": 1}, **{"listen.http": "0.0.0.0:0"})
        url = f"http://127.0.0.1:{host_port(at.http)[1]}/api/groups"
        async with aiohttp.ClientSession(headers={"Authorization": "Bearer ann"}) as session:
            async with session.get(url) as answer:
                assert answer.status == 200
            async with session.get(url) as answer:
                assert (answer.status, answer.headers["Retry-After"]) == (429, "1")
                assert "quota requests_per_s" in (await answer.json())["error"]
