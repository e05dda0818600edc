"""The asyncio producer with many sends under way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from broker_core.tasks import cancel_and_wait, spawn
from testkit.eventually import eventually
from testkit.scripted_proxy import HangUp, Request, ScriptedProxy
from thin_client import AsyncProducer, SendFailed
from thin_client.aio_sender import MOST_CONNECTIONS
from thrift_idl import producer


@pytest.fixture
async def proxy() -> AsyncIterator[ScriptedProxy]:
    async with ScriptedProxy() as scripted:
        yield scripted


def answer(code: int, message: str) -> Any:
    async def scripted(request: Request) -> producer.Result:
        return producer.Result(code=code, msg=message)

    return scripted


class Held:
    """A script that answers once ``go_on`` is set; ``asked`` is set before."""

    def __init__(self, code: int = 0) -> None:
        self.code = code
        self.asked, self.go_on = asyncio.Event(), asyncio.Event()

    async def __call__(self, request: Request) -> producer.Result:
        self.asked.set()
        await self.go_on.wait()
        return producer.Result(code=self.code, msg="told")


def bodies(proxy: ScriptedProxy) -> list[list[bytes]]:
    """Return the bodies of each request."""
    batches = [
        request.argument if isinstance(request.argument, list) else [request.argument]
        for request in proxy.requests
    ]
    return [[each.body for each in batch] for batch in batches]


async def test_sends_of_several_tasks_share_a_request(proxy: ScriptedProxy) -> None:
    async with AsyncProducer(proxy.address) as sender:
        ids = await asyncio.gather(*(sender.send("orders", b"1") for _ in range(20)))
        await sender.send("orders", b"2")

    assert len(set(ids)) == 20
    assert [len(each) for each in bodies(proxy)] == [20, 1]
    assert {request.connection for request in proxy.requests} == {1}


async def test_a_slow_key_delays_no_other_and_keeps_its_order(proxy: ScriptedProxy) -> None:
    slow = Held()
    proxy.script("sendSync", slow)
    async with AsyncProducer(proxy.address) as sender:
        first = spawn(sender.send("orders", b"a1", key="a"), name="a1")
        await slow.asked.wait()
        second = spawn(sender.send("orders", b"a2", key="a"), name="a2")
        for number in range(3):
            await sender.send("orders", b"b%d" % number, key="b")
        assert not first.done()
        assert bodies(proxy) == [[b"a1"], [b"b0"], [b"b1"], [b"b2"]]
        slow.go_on.set()
        await asyncio.gather(first, second)

    assert bodies(proxy)[-1] == [b"a2"]
    assert proxy.accepted == 2


async def test_requests_under_way_are_bounded(proxy: ScriptedProxy) -> None:
    held = [Held() for _ in range(MOST_CONNECTIONS)]
    proxy.script("sendSync", *held)
    async with AsyncProducer(proxy.address) as sender:
        sending = []
        for number, each in enumerate(held):
            sending.append(spawn(sender.send("orders", b"x", key=str(number)), name="send"))
            await each.asked.wait()
        more = [spawn(sender.send("orders", b"y", key=f"k{n}"), name="more") for n in range(9)]
        await asyncio.sleep(1)
        assert len(proxy.requests) == MOST_CONNECTIONS
        for each in held:
            each.go_on.set()
        await asyncio.gather(*sending, *more)

    assert [len(each) for each in bodies(proxy)] == [1] * MOST_CONNECTIONS + [9]


async def test_calls_wait_while_too_much_is_under_way(proxy: ScriptedProxy) -> None:
    """They go on in their order, and a cancelled one gives way."""
    slow = Held()
    proxy.script("sendBatchSync", slow)
    async with AsyncProducer(proxy.address, max_in_flight=2) as sender:
        queued = [await sender.enqueue("orders", b"%d" % number, key="k") for number in (1, 2)]
        waiting = [
            spawn(sender.enqueue("orders", b"%d" % number, key=key), name="waits")
            for number, key in ((3, "k"), (4, "gone"), (5, "k"))
        ]
        await slow.asked.wait()
        assert not any(each.done for each in queued)
        assert not any(each.done() for each in waiting)
        await cancel_and_wait(waiting[1])
        slow.go_on.set()
        await waiting[2]

    assert [body for each in bodies(proxy) for body in each] == [b"1", b"2", b"3", b"5"]


async def test_large_messages_wait_for_each_other(proxy: ScriptedProxy) -> None:
    slow = Held()
    proxy.script("sendSync", slow)
    async with AsyncProducer(proxy.address) as sender:
        for _ in range(16):
            await sender.enqueue("orders", bytes(4_000_000), key="k")
        waiting = spawn(sender.enqueue("orders", b"small", key="k"), name="waits")
        await slow.asked.wait()
        assert not waiting.done()
        slow.go_on.set()
        assert await (await waiting)


async def test_the_end_of_the_scope_waits_for_all_messages(proxy: ScriptedProxy) -> None:
    async with AsyncProducer(proxy.address) as sender:
        queued = [await sender.enqueue("orders", b"%d" % n, key=str(n % 3)) for n in range(600)]
    assert all(each.done for each in queued)
    assert [await each for each in queued] == [each.message_id for each in queued]
    stored = {(each.properties or {})["UNIQ_KEY"] for each in proxy.stored}
    assert stored == {each.message_id for each in queued}
    for key in "012":
        numbers = [int(each.body or b"") for each in proxy.stored if each.key == key]
        assert numbers == sorted(numbers)
    assert len(proxy.requests) < 10


async def test_a_failure_is_raised_where_it_is_awaited_or_at_the_end(proxy: ScriptedProxy) -> None:
    proxy.script("sendSync", answer(14, "no topic"), answer(14, "no topic"), answer(14, "no topic"))
    sender = AsyncProducer(proxy.address)
    seen = await sender.enqueue("orders", b"1", key="k")
    with pytest.raises(SendFailed, match="no topic"):
        await seen
    await sender.close()
    for body in (b"2", b"3"):
        unseen = await sender.enqueue("orders", body, key="k")
        await asyncio.sleep(0.5)
        assert repr(unseen) == f"<Enqueued {unseen.message_id}, ended>"
    with pytest.raises(SendFailed, match=r"no topic.*; 1 more failed") as caught:
        await sender.close()
    assert len(caught.value.failures) == 2
    assert unseen.message_id in caught.value.failures
    await sender.close()  # reported once


async def test_failures_that_nobody_awaits_stop_the_program(proxy: ScriptedProxy) -> None:
    """Their number is bounded like that of messages under way."""
    proxy.script("sendSync", *[answer(14, "no topic")] * 2)
    sender = AsyncProducer(proxy.address, max_in_flight=2)
    for _ in range(2):
        await sender.enqueue("orders", b"x")
        await asyncio.sleep(0.5)
    with pytest.raises(SendFailed, match="; 1 more failed"):
        await sender.enqueue("orders", b"x")
    await sender.enqueue("orders", b"stored")
    await sender.close()
    assert [each.body for each in proxy.stored] == [b"stored"]


async def test_an_error_in_the_scope_is_not_hidden(
    proxy: ScriptedProxy, caplog: pytest.LogCaptureFixture
) -> None:
    proxy.script("sendSync", answer(14, "no topic"))

    async def failing() -> None:
        async with AsyncProducer(proxy.address) as sender:
            await sender.enqueue("orders", b"x")
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await failing()
    assert "messages of enqueue were not stored: sending to orders" in caplog.text


async def test_closed_without_await_it_sends_first(proxy: ScriptedProxy) -> None:
    sender = AsyncProducer(proxy.address)
    sender.close()
    await sender.enqueue("orders", b"x")
    sender.close()
    await eventually(lambda: bool(proxy.stored) and not proxy.open_connections)
    await sender.send("orders", b"y")  # connects again
    await sender.close()
    assert proxy.accepted == 2


@pytest.mark.failing_tasks
async def test_after_a_failure_of_its_key_what_waits_fails_and_later_sends_go(
    proxy: ScriptedProxy,
) -> None:
    refused = Held(code=14)
    proxy.script("sendSync", refused)
    async with AsyncProducer(proxy.address) as sender:
        first = spawn(sender.send("orders", b"1", key="k"), name="first")
        await refused.asked.wait()
        behind = spawn(sender.send("orders", b"2", key="k"), name="behind")
        await sender.send("orders", b"3", key="other")
        refused.go_on.set()
        failed = await asyncio.gather(first, behind, return_exceptions=True)
        assert [type(each) for each in failed] == [SendFailed] * 2
        assert "an earlier send of its key failed" in str(failed[1])
        await sender.send("orders", b"4", key="k")

    assert [body for (body,) in bodies(proxy)] == [b"1", b"3", b"4"]


@pytest.mark.failing_tasks
async def test_a_cancelled_send_holds_its_key_back(proxy: ScriptedProxy) -> None:
    """Others go on: the connection stays, and the request is not sent again."""
    slow = Held(code=12)
    proxy.script("sendSync", slow)
    async with AsyncProducer(proxy.address) as sender:
        first = spawn(sender.send("orders", b"1", key="k"), name="first")
        await slow.asked.wait()
        behind = spawn(sender.send("orders", b"2", key="k"), name="behind")
        await asyncio.sleep(0)
        await cancel_and_wait(first)
        slow.go_on.set()
        with pytest.raises(SendFailed, match="an earlier send of its key failed"):
            await behind
        await sender.send("orders", b"3", key="k")

    assert [body for (body,) in bodies(proxy)] == [b"1", b"3"]
    assert proxy.accepted == 1


async def test_several_lost_connections_move_to_the_next_proxy_once(proxy: ScriptedProxy) -> None:
    """Otherwise two requests that fail together would skip it."""
    async with ScriptedProxy() as failing:

        async def hang_up(request: Request) -> None:
            await eventually(lambda: len(failing.requests) == 2)
            raise HangUp

        failing.script("sendSync", hang_up, hang_up)
        async with AsyncProducer([failing.address, proxy.address]) as sender:
            first = spawn(sender.send("orders", b"1", key="a"), name="first")
            await eventually(lambda: bool(failing.requests))
            await asyncio.gather(first, sender.send("orders", b"2", key="b"))
        assert not failing.stored
    assert {each.body for each in proxy.stored} == {b"1", b"2"}


async def test_the_end_of_the_loop_ends_what_is_under_way(proxy: ScriptedProxy) -> None:
    """As ``asyncio.run`` does: the failure says that the message may be stored."""
    slow = Held()
    proxy.script("sendSync", slow)
    sender = AsyncProducer(proxy.address)
    queued = await sender.enqueue("orders", b"x", key="k")
    await slow.asked.wait()
    waiting = await sender.enqueue("orders", b"y", key="k")
    for task in asyncio.all_tasks():
        if task.get_name() == "orderlane sends":
            await cancel_and_wait(task)
    with pytest.raises(SendFailed, match="may have been stored"):
        await queued
    assert not waiting.done
    assert len(proxy.requests) == 1
    with pytest.raises(SendFailed, match="an earlier send of its key failed"):
        await sender.close()  # goes on, so it does not wait forever
    assert waiting.done


def test_the_bound_is_a_number() -> None:
    with pytest.raises(ValueError, match="max_in_flight is 0: expected at least 1"):
        AsyncProducer("proxy:9713", max_in_flight=0)
