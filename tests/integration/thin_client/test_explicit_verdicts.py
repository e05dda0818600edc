"""``message.ack()``, ``nack()`` and ``reject()`` on the messages of iterators."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from orderlane import Consumer, Message
from testkit.scripted_proxy import ScriptedProxy
from tests.integration.thin_client.async_consumers import QUICK, consumer_of

VERDICTS = [(1, "ok"), (2, "retry"), (3, "reject"), (4, "ok")]


@pytest.fixture
async def proxy() -> AsyncIterator[ScriptedProxy]:
    async with ScriptedProxy() as scripted:
        yield scripted


def settle(message: Message) -> object:
    match message.key:
        case "b":
            return message.nack(after_s=1.5)
        case "c":
            return message.reject("schema")
        case _:
            return message.ack()


def nacks(proxy: ScriptedProxy) -> dict[int, object]:
    return {
        nack.leaseId: nack
        for request in proxy.of("pull") + proxy.of("settle")
        for batch in request.argument.acks or ()
        for nack in batch.nacked or ()
    }


def check(proxy: ScriptedProxy) -> None:
    assert sorted(proxy.verdicts) == VERDICTS
    assert nacks(proxy)[2].retryAfterMs == 1500
    assert nacks(proxy)[3].reason == "schema"


async def test_verdicts_are_given_by_calls(proxy: ScriptedProxy) -> None:
    await proxy.put(*"abcd")
    async with consumer_of(proxy, prefetch=8) as consumer:
        seen = ""
        async for message in consumer:
            await settle(message)
            seen += message.key
            if len(seen) == 4:
                break
        await proxy.until(lambda: len(proxy.verdicts) == 4)
    assert seen == "abcd"
    check(proxy)


@pytest.mark.sockets
async def test_without_asyncio_too(proxy: ScriptedProxy) -> None:
    await proxy.put(*"abcd")

    def consume() -> None:
        with Consumer(proxy.address, group="g", topics=["orders"], timing=QUICK) as consumer:
            for number, message in enumerate(consumer, start=1):
                settle(message)
                if number == 4:
                    break

    await asyncio.to_thread(consume)
    check(proxy)


async def test_a_message_is_settled_once(proxy: ScriptedProxy) -> None:
    await proxy.put("a", "b")
    async with consumer_of(proxy) as consumer:
        first = await anext(consumer)
        await first.ack()
        with pytest.raises(RuntimeError, match=r"cannot be settled by nack\(\): use it once"):
            first.nack()
        with pytest.raises(RuntimeError, match="cannot be entered"):
            async with first:
                pass
        second = await anext(consumer)
        async with second:
            with pytest.raises(RuntimeError, match="outside of 'with message:'"):
                second.reject("no")
        await proxy.until(lambda: len(proxy.verdicts) == 2)
    assert sorted(proxy.verdicts) == [(1, "ok"), (2, "ok")]


async def test_an_invalid_delay_leaves_the_message_open(proxy: ScriptedProxy) -> None:
    await proxy.put("a")
    async with consumer_of(proxy) as consumer:
        message = await anext(consumer)
        with pytest.raises(ValueError, match="after_s is -1: expected 0 or more seconds"):
            message.nack(after_s=-1)
        await message.ack()
        await proxy.until(lambda: bool(proxy.verdicts))
    assert proxy.verdicts == [(1, "ok")]


async def test_a_message_that_was_not_settled_is_reported_with_the_calls(
    proxy: ScriptedProxy,
) -> None:
    await proxy.put("a", "b")
    async with consumer_of(proxy) as consumer:
        await anext(consumer)
        with pytest.raises(RuntimeError, match=r"or call its ack\(\), nack\(\) or reject\(\)"):
            await anext(consumer)


async def test_the_message_of_a_handler_is_settled_by_its_end_alone(proxy: ScriptedProxy) -> None:
    await proxy.put("a")
    consumer = consumer_of(proxy)
    errors: list[RuntimeError] = []

    async def handle(message: Message) -> None:
        try:
            message.ack()
        except RuntimeError as error:
            errors.append(error)
        consumer.stop()

    await consumer.run(handle, handle_signals=False)
    assert [str(error).partition(": ")[2][:8] for error in errors] == ["use it o"]
    assert proxy.verdicts == [(1, "ok")]
