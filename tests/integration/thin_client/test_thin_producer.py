from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from testkit.scripted_proxy import HangUp, Request, ScriptedProxy
from tests.integration.thin_client.both_producers import both
from thin_client import Outgoing, Producer, SendFailed
from thrift_idl import producer


@pytest.fixture
async def proxy() -> AsyncIterator[ScriptedProxy]:
    async with ScriptedProxy() as scripted:
        yield scripted


def answer(code: int, message: str) -> Any:
    async def scripted(request: Request) -> producer.Result:
        return producer.Result(code=code, msg=message)

    return scripted


async def hang_up(request: Request) -> None:
    raise HangUp


@both
async def test_a_message_goes_whole(proxy: ScriptedProxy, kind: Any) -> None:
    """Every field arrives; the key's hash chooses the queue, and the id is returned."""
    async with kind(proxy.address) as sender:
        properties = {"source": "test"}
        sent = await sender.send("orders", b"1", key="abc", tag="t", properties=properties)
    (stored,) = proxy.stored

    assert (stored.topic, stored.body, stored.key, stored.tags) == ("orders", b"1", "abc", "t")
    assert (stored.hashId, stored.partitionId) == (96354, -1)
    assert stored.properties == {"source": "test", "UNIQ_KEY": sent}
    assert properties == {"source": "test"}
    assert re.fullmatch("[0-9A-F]{32}", sent)
    assert proxy.requests[0].method == "sendSync"


@both
async def test_the_sharding_key_comes_first(proxy: ScriptedProxy, kind: Any) -> None:
    """A sharding key chooses the queue; without any key the queues alternate."""
    async with kind(proxy.address) as sender:
        await sender.send("orders", "text", key="a", sharding_key="abc")
        await sender.send("orders", "text")

    assert [(each.key, each.hashId) for each in proxy.stored] == [("a", 96354), (None, None)]
    assert proxy.stored[0].body == b"text"


@both
async def test_a_retry_keeps_the_id(proxy: ScriptedProxy, kind: Any) -> None:
    """After a lost connection or a retriable code the same message is sent again."""
    proxy.script("sendSync", hang_up, answer(15, "too fast"))
    async with kind(proxy.address) as sender:
        sent = await sender.send("orders", b"1")

    tried = [request.argument.properties["UNIQ_KEY"] for request in proxy.of("sendSync")]
    assert tried == [sent] * 3


@both
async def test_a_refusal_is_final(proxy: ScriptedProxy, kind: Any) -> None:
    """A final code is raised at once, with code, sentence and ID."""
    proxy.script("sendSync", answer(14, "there is no topic 'orders'"))
    async with kind(proxy.address) as sender:
        with pytest.raises(SendFailed, match=r"no topic 'orders'.*: not stored") as caught:
            await sender.send("orders", b"1", properties={"UNIQ_KEY": "MINE"})

    assert (caught.value.code, caught.value.message_id) == (14, "MINE")
    assert not caught.value.outcome_unknown
    assert len(proxy.requests) == 1


@both
async def test_time_runs_out(proxy: ScriptedProxy, kind: Any) -> None:
    """If every try was interrupted, the error says that the outcome is unknown."""
    proxy.script("sendSync", *[hang_up] * 50)
    async with kind(proxy.address, timeout_s=2.3) as sender:
        with pytest.raises(SendFailed, match="may have been stored") as caught:
            await sender.send("orders", b"1")

    assert caught.value.code is None
    assert caught.value.outcome_unknown


@both
async def test_no_proxy_at_all(kind: Any) -> None:
    """Without any connection the message was certainly not stored."""
    async with ScriptedProxy() as dead:
        pass
    async with kind(dead.address, timeout_s=2.2) as sender:
        with pytest.raises(SendFailed, match=f"no connection to {dead.address}") as caught:
            await sender.send("orders", b"1")

    assert not caught.value.outcome_unknown


@both
async def test_the_next_proxy_is_tried(proxy: ScriptedProxy, kind: Any) -> None:
    """A dead address in the list costs one try."""
    async with ScriptedProxy() as dead:
        pass
    async with kind([dead.address, proxy.address]) as sender:
        await sender.send("orders", b"1")

    assert len(proxy.stored) == 1


@both
async def test_batches_keep_their_order(proxy: ScriptedProxy, kind: Any) -> None:
    """A batch that fits is one request; a larger one is several, in order."""
    messages = [Outgoing("orders", bytes(900_000), key=str(number)) for number in range(5)]
    async with kind(proxy.address) as sender:
        ids = await sender.send_batch(messages)
        assert await sender.send_batch([]) == []

    assert [request.method for request in proxy.requests] == ["sendBatchSync"] * 2 + ["sendSync"]
    assert [each.key for each in proxy.stored] == list("01234")
    assert [each.properties["UNIQ_KEY"] for each in proxy.stored] == ids


@both
@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        (Outgoing("", b"1"), "topic is empty"),
        (Outgoing("orders", 5), "is int: expected bytes or str"),  # type: ignore[arg-type]
        (Outgoing("orders", b"1", key="\ud800"), "not valid text"),
        (Outgoing("orders", bytes(5_000_000)), "expected at most 5000000"),
    ],
)
async def test_what_cannot_be_sent_is_named(
    proxy: ScriptedProxy, kind: Any, message: Outgoing, sentence: str
) -> None:
    """An invalid message of a batch is refused before any message is sent."""
    async with kind(proxy.address) as sender:
        with pytest.raises((ValueError, TypeError), match=sentence):
            await sender.send_batch([Outgoing("orders", b"1"), message])

    assert proxy.requests == []


# ---- results of each message --------------------------------------------------------------------


def each_answer(*results: tuple[int, str | None]) -> Any:
    """Return a batch's answer with a code and a reason for each message."""

    async def scripted(request: Request) -> producer.Result:
        failures = [code for code, _ in results if code]
        messages = [producer.MessageResult(code=code, msg=msg) for code, msg in results]
        return producer.Result(code=failures[0], msg="some failed", messages=messages)

    return scripted


def batch(count: int) -> list[Outgoing]:
    return [
        Outgoing("orders", str(n).encode(), key="k", properties={"UNIQ_KEY": f"ID{n}"})
        for n in range(count)
    ]


@both
async def test_what_is_stored_of_a_batch_is_not_sent_again(proxy: ScriptedProxy, kind: Any) -> None:
    proxy.script("sendBatchSync", each_answer((0, None), (12, "slow"), (0, None), (70, "behind")))
    async with kind(proxy.address) as sender:
        assert await sender.send_batch(batch(4)) == ["ID0", "ID1", "ID2", "ID3"]

    first, again = proxy.of("sendBatchSync")
    assert len(first.argument) == 4
    assert [each.properties["UNIQ_KEY"] for each in again.argument] == ["ID1", "ID3"]


@both
async def test_a_failed_batch_says_what_of_it_is_not_stored(
    proxy: ScriptedProxy, kind: Any
) -> None:
    """A final code ends all tries; the error lists only messages not known to be stored."""
    proxy.script(
        "sendBatchSync",
        each_answer((0, None), (70, "behind"), (11, "illegal"), (11, None)),
    )
    async with kind(proxy.address) as sender:
        with pytest.raises(SendFailed, match=r"message ID1 and 2 others: not stored") as caught:
            await sender.send_batch([*batch(4), Outgoing("orders", bytes(3_000_000), key="x")])

    later = caught.value.failures.popitem()
    assert later[1] == "not sent: an earlier part failed"
    assert caught.value.failures == {"ID1": "behind", "ID2": "illegal", "ID3": "illegal"}
    assert (caught.value.code, caught.value.message_id) == (11, "ID1")
    assert len(proxy.requests) == 1


@both
@pytest.mark.parametrize("count", [1, 2])
async def test_a_batch_over_a_limit_is_not_stored(
    proxy: ScriptedProxy, kind: Any, count: int
) -> None:
    proxy.script("sendBatchSync" if count > 1 else "sendSync", answer(15, "over a limit"))
    async with kind(proxy.address, timeout_s=0.01) as sender:
        with pytest.raises(SendFailed, match=r"over a limit .*: not stored") as caught:
            await sender.send_batch(batch(count))
    assert (caught.value.code, caught.value.outcome_unknown) == (15, False)


@both
async def test_an_older_proxy_says_nothing_of_each(proxy: ScriptedProxy, kind: Any) -> None:
    proxy.script("sendBatchSync", answer(14, "no such topic"))
    async with kind(proxy.address) as sender:
        with pytest.raises(SendFailed, match="may have been stored") as caught:
            await sender.send_batch(batch(2))

    assert list(caught.value.failures) == ["ID0", "ID1"]
    assert caught.value.outcome_unknown


async def test_closed_by_another_thread_a_send_under_way_is_stored(proxy: ScriptedProxy) -> None:
    """The producer connects again, even if closed right after it has read its connection."""

    class ClosedWhenLookedAt(Producer):
        kept: Any = None

        @property
        def _connection(self) -> Any:
            looked_at, self.kept = self.kept, None
            if looked_at is not None:
                looked_at.close()
            return looked_at

        @_connection.setter
        def _connection(self, made: Any) -> None:
            self.kept = made

    sender = ClosedWhenLookedAt(proxy.address)
    for body in ("1", "2"):
        await asyncio.to_thread(sender.send, "orders", body)
    sender.close()

    assert [stored.body for stored in proxy.stored] == [b"1", b"2"]
