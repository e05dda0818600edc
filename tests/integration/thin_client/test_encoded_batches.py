"""Large batches of both producers, encoded by the client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from thrift.Thrift import TApplicationException

from broker_core.remoting.message_batch import decode_batch
from testkit.scripted_proxy import HangUp, Request, ScriptedProxy
from tests.integration.thin_client.both_producers import both
from thin_client import AsyncProducer, Outgoing, SendFailed
from thin_client.encoded_requests import route_number
from thin_client.key_hash import key_hash
from thrift_idl import producer


@pytest.fixture
async def proxy() -> AsyncIterator[ScriptedProxy]:
    async with ScriptedProxy() as scripted:
        yield scripted


async def two_queues(request: Request) -> producer.WritableQueues:
    return producer.WritableQueues(code=0, qids=["broker-a_0", "broker-a_1"])


async def unknown(request: Request) -> object:
    raise TApplicationException(TApplicationException.UNKNOWN_METHOD, "unknown method")


async def hang_up(request: Request) -> None:
    raise HangUp


def answer(code: int, stored: int = 0) -> Any:
    async def scripted(request: Request) -> producer.EncodedResult:
        return producer.EncodedResult(code=code, msg=f"code {code}", stored=stored)

    return scripted


def messages(count: int, **fields: Any) -> list[Outgoing]:
    return [
        Outgoing("orders", b"%d" % n, properties={"UNIQ_KEY": f"ID{n}"}, **fields)
        for n in range(count)
    ]


def sent(proxy: ScriptedProxy) -> list[list[int]]:
    """Return the values in each encoded request, also of those that were not answered."""
    return [
        [int(entry.body) for entry in decode_batch(request.argument.body)]
        for request in proxy.of("sendEncoded")
    ]


@both
async def test_keys_keep_their_order(proxy: ScriptedProxy, kind: Any) -> None:
    """Each key goes to its queue, in order; the ids are returned in the order of the call."""
    proxy.script("writableQueues", two_queues)
    batch = [Outgoing("orders", b"%d" % n, key=f"k{n % 7}") for n in range(70)]
    async with kind(proxy.address, token="secret") as sender:
        first = await sender.send_batch(batch[:35])
        ids = first + await sender.send_batch(batch[35:])
        await sender.send("orders", b"last", key="k1")
    assert len(proxy.of("writableQueues")) == 1
    assert {each.token for each in proxy.encoded} == {"secret"}
    route = route_number(["broker-a_0", "broker-a_1"])
    assert {each.route for each in proxy.encoded} == {route}
    found: dict[str | None, list[int]] = {}
    by_number: dict[int, str] = {}
    for each in proxy.encoded:
        for entry in decode_batch(each.body):
            found.setdefault(each.qid, []).append(int(entry.body))
            by_number[int(entry.body)] = entry.properties.split(b"\x02")[0].decode()[9:]
    for number in (0, 1):
        expected = [n for n in range(70) if abs(key_hash(f"k{n % 7}")) % 2 == number]
        assert found[f"broker-a_{number}"] == expected
    assert ids == [by_number[n] for n in range(70)]
    assert proxy.requests[-1].method == "sendSync"


async def test_no_send_overtakes_a_batch_that_asks_for_queues(proxy: ScriptedProxy) -> None:
    """Calls of a key that are made at once are sent in their order, others are not delayed."""

    other = asyncio.Event()

    async def slow(request: Request) -> producer.WritableQueues:
        await other.wait()
        return await two_queues(request)

    async def stores(request: Request) -> producer.Result:
        other.set()
        result: producer.Result = await proxy.plainly(request)
        return result

    proxy.script("writableQueues", slow)
    proxy.script("sendSync", stores)
    async with AsyncProducer(proxy.address) as sender:
        await asyncio.gather(
            sender.send_batch(messages(20, key="k")),
            sender.send("orders", b"20", key="k"),
            sender.send_batch(messages(20, key="k")),
            sender.send("orders", b"other", key="other"),
        )
    found = [request.method for request in proxy.requests]
    assert sorted(found[:2]) == ["sendSync", "writableQueues"]
    assert found[2:] == ["sendEncoded", "sendSync", "sendEncoded"]
    assert [each.body for each in proxy.stored] == [b"other", b"20"]


@both
@pytest.mark.parametrize("missing", ["writableQueues", "sendEncoded"])
async def test_an_earlier_proxy_gets_messages(
    proxy: ScriptedProxy, kind: Any, missing: str
) -> None:
    """It is asked once."""
    proxy.script("writableQueues", unknown if missing == "writableQueues" else two_queues)
    proxy.script("sendEncoded", unknown)
    async with kind(proxy.address) as sender:
        for _ in range(2):
            await sender.send_batch(messages(40, queue=1))
    assert len(proxy.of("sendEncoded")) == (missing == "sendEncoded")
    assert [int(each.body or b"") for each in proxy.stored] == [*range(40)] * 2
    assert len(proxy.of("writableQueues")) == 1


@both
async def test_what_is_stored_is_not_sent_again(proxy: ScriptedProxy, kind: Any) -> None:
    proxy.script("writableQueues", two_queues)
    proxy.script("sendEncoded", hang_up, answer(70, stored=15))
    async with kind(proxy.address) as sender:
        await sender.send_batch(messages(20, queue=0))
    assert sent(proxy) == [[*range(20)], [*range(20)], [*range(15, 20)]]


@both
async def test_a_request_in_doubt_names_all_its_messages(proxy: ScriptedProxy, kind: Any) -> None:
    """Later requests of the batch are not sent, and their messages are named, too."""
    proxy.script("writableQueues", two_queues)
    proxy.script("sendEncoded", *[answer(12, stored=0)] * 50)
    batch = [*messages(40)]
    batch = [
        Outgoing("orders", each.body, queue=n // 20, properties=each.properties)
        for n, each in enumerate(batch)
    ]
    async with kind(proxy.address, timeout_s=0.5) as sender:
        with pytest.raises(SendFailed, match="may have been stored") as caught:
            await sender.send_batch(batch)
    assert list(caught.value.failures) == [f"ID{n}" for n in range(40)]
    assert caught.value.failures["ID39"] == "not sent: an earlier part failed"
    assert caught.value.outcome_unknown
    assert {tuple(numbers) for numbers in sent(proxy)} == {tuple(range(20))}


@both
async def test_a_refusal_is_explained_by_messages(proxy: ScriptedProxy, kind: Any) -> None:
    """The queues are asked for again, since the topic may have other ones."""
    proxy.script("writableQueues", two_queues, two_queues)
    proxy.script("sendEncoded", answer(11))
    async with kind(proxy.address) as sender:
        for _ in range(2):
            await sender.send_batch(messages(20, queue=0))
    methods = [request.method for request in proxy.requests]
    once = ["writableQueues", "sendEncoded"]
    assert methods == [*once, "sendBatchSync", *once]
