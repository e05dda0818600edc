"""Routing options of both producers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from testkit.scripted_proxy import Request, ScriptedProxy
from tests.integration.thin_client.both_producers import both
from thin_client import Outgoing, SendFailed, Tracer
from thin_client.key_hash import key_hash
from thrift_idl import producer


@pytest.fixture
async def proxy() -> AsyncIterator[ScriptedProxy]:
    async with ScriptedProxy() as scripted:
        yield scripted


@both
async def test_a_path_into_the_body_gives_the_sharding_key(proxy: ScriptedProxy, kind: Any) -> None:
    """An explicit one takes precedence; if the path finds no value, the key is used."""
    async with kind(proxy.address) as sender:
        body = b'{"order": {"id": 42}}'
        await sender.send("orders", body, key="k", sharding_path="$.order.id")
        await sender.send("orders", body, key="k", sharding_path="$.no", sharding_key="s")
        await sender.send("orders", body, key="k", sharding_path="$.no")
    hashes = [message.hashId for message in proxy.stored]
    assert hashes == [key_hash("42"), key_hash("s"), key_hash("k")]
    assert {message.partitionId for message in proxy.stored} == {-1}


@both
async def test_a_queue_may_be_named_or_left_to_chance(proxy: ScriptedProxy, kind: Any) -> None:
    async with kind(proxy.address) as sender:
        await sender.send("orders", b"1", key="k", queue=3)
        await sender.send("orders", b"2", key="k", queue="random")
        await sender.send("orders", b"3", key="k", queue="broker-a_1")
    assert [(m.partitionId, m.qid, m.hashId, m.key) for m in proxy.stored] == [
        (3, None, None, "k"),
        (-2, None, None, "k"),
        (-1, "broker-a_1", None, "k"),
    ]


@both
async def test_a_delayed_message_goes_by_itself(proxy: ScriptedProxy, kind: Any) -> None:
    """This version's proxies do not support delays: code 18; earlier messages are stored."""
    asked: list[Any] = []

    async def later(request: Request) -> Any:
        asked.append(request.argument)
        return producer.DelayResult(code=18, msg="this version has no delays yet")

    proxy.script("sendDelaySync", later)
    messages = [
        Outgoing("orders", b"1", key="k"),
        Outgoing("orders", b"2", key="k", tag="t", delay_s=60.5),
        Outgoing("orders", b"3", key="k"),
    ]
    async with kind(proxy.address) as sender:
        with pytest.raises(SendFailed, match="no delays yet") as failed:
            await sender.send_batch(messages)
    (delayed,) = asked
    assert (delayed.topic, delayed.body, delayed.tags) == ("orders", b"2", "t")
    assert (delayed.action, delayed.dmsgtype) == (1, 2)
    assert delayed.timestamp > 1_700_000_000
    assert delayed.properties["UNIQ_KEY"] == delayed.uuid
    assert failed.value.code == 18
    assert [message.body for message in proxy.stored] == [b"1"]
    assert list(failed.value.failures.values())[1].startswith("not sent")


@both
@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"sharding_path": "$..id"}, "not a path for producers"),
        ({"sharding_path": "$.id"}, "the body is not valid JSON"),
        ({"queue": -1}, "expected a number of at least 0"),
        ({"queue": True}, "expected a number of at least 0"),
        ({"queue": 2**31}, "expected a number of at least 0"),
        ({"queue": 3.0}, "expected a number of at least 0"),
        ({"queue": -2, "delay_s": 5}, "expected a number of at least 0"),
        ({"delay_s": -1}, "expected 0 or more"),
    ],
)
async def test_invalid_routes_are_refused_before_sending(
    proxy: ScriptedProxy, kind: Any, wrong: dict[str, Any], sentence: str
) -> None:
    async with kind(proxy.address) as sender:
        with pytest.raises(ValueError, match=sentence):
            await sender.send("orders", b"{", **wrong)
    assert proxy.requests == []


@both
async def test_a_tracer_puts_its_context_into_the_properties(
    proxy: ScriptedProxy, kind: Any
) -> None:
    class Fixed(Tracer):
        def inject(self, properties: dict[str, str]) -> None:
            properties["traceparent"] = "00-1-2-01"

    async with kind(proxy.address, tracer=Fixed()) as sender:
        await sender.send("orders", b"1", properties={"a": "b"})
    assert proxy.stored[0].properties["traceparent"] == "00-1-2-01"
    assert proxy.stored[0].properties["a"] == "b"
