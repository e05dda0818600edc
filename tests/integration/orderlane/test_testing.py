"""``orderlane.testing``: gateways in the tests of applications."""

from __future__ import annotations

import asyncio

import pytest

from orderlane import AsyncConsumer, AsyncProducer, Consumer, Message, Producer, Retry
from orderlane.testing import AsyncGateway, Gateway, run_in_virtual_time
from proxy.errors import SettingsError


async def retried_after_a_minute() -> tuple[list[int], float]:
    loop = asyncio.get_running_loop()
    attempts: list[int] = []
    async with AsyncGateway(queues=2) as gateway:
        consumer = AsyncConsumer(gateway.address, group="billing", topics=["orders"])

        async def handle(message: Message) -> None:
            attempts.append(message.attempt)
            if message.attempt == 1:
                raise Retry(after_s=60)
            consumer.stop()

        async with AsyncProducer(gateway.address) as producer:
            await producer.send("orders", b"7", key="customer-7")
        began_s = loop.time()
        await consumer.run(handle, handle_signals=False)
        await gateway.until_consumed("billing", "orders")
        return attempts, loop.time() - began_s


def test_in_virtual_time_a_minute_passes_at_once() -> None:
    attempts, took_s = run_in_virtual_time(retried_after_a_minute())
    assert attempts == [1, 2]
    assert took_s >= 60


def test_the_same_seed_gives_the_same_times() -> None:
    first, second = (run_in_virtual_time(retried_after_a_minute(), seed=7) for _ in range(2))
    assert first == second
    assert first != run_in_virtual_time(retried_after_a_minute(), seed=8)


async def test_a_topic_has_the_number_of_queues_that_was_asked_for() -> None:
    async with AsyncGateway() as gateway:
        await gateway.create_topic("orders", queues=3)
        async with AsyncProducer(gateway.address) as producer:
            for queue in range(3):
                await producer.send("orders", b"x", queue=queue)
            with pytest.raises(Exception, match="queue"):
                await producer.send("orders", b"x", queue=3)
        assert await gateway.lag("billing", "orders") == 3


async def test_a_group_that_does_not_consume_is_reported_with_its_lag() -> None:
    async with AsyncGateway() as gateway:
        async with AsyncProducer(gateway.address) as producer:
            await producer.send("orders", b"x", key="a")
        with pytest.raises(
            TimeoutError, match=r"has not consumed topic orders within 2 s: its lag is 1"
        ):
            await gateway.until_consumed("billing", "orders", within_s=2)


async def test_settings_of_groups_apply() -> None:
    topic = {"name": "orders", "order_key": "$.customer", "retry_intervals_ms": [7000]}
    groups = [{"name": "billing", "topics": [topic]}]
    async with AsyncGateway(groups=groups) as gateway:
        async with AsyncProducer(gateway.address) as producer:
            await producer.send("orders", b'{"customer": "c"}')
        consumer = AsyncConsumer(gateway.address, group="billing", topics=["orders"])
        seen = []

        async def handle(message: Message) -> None:
            seen.append((message.order_key, asyncio.get_running_loop().time()))
            if len(seen) == 2:
                consumer.stop()
                return
            raise ValueError("again")

        await consumer.run(handle, handle_signals=False)
    (first, at_s), (_, again_s) = seen
    assert first == "c"
    assert 7 <= again_s - at_s < 8


@pytest.mark.parametrize("gateway", [Gateway, AsyncGateway])
def test_invalid_settings_are_refused_at_the_call(gateway: type[Gateway]) -> None:
    with pytest.raises(SettingsError, match="comit_every_s"):
        gateway(settings={"comit_every_s": 3})


@pytest.mark.parametrize(
    ("gateway", "form"), [(Gateway(), "with Gateway"), (AsyncGateway(), "async with AsyncGateway")]
)
def test_the_address_of_a_gateway_that_does_not_run_is_refused(gateway: Gateway, form: str) -> None:
    with pytest.raises(RuntimeError, match=f"is not running: use it inside '{form}"):
        _ = gateway.address


@pytest.mark.sockets
def test_without_asyncio_the_gateway_runs_in_a_thread() -> None:
    seen = []
    with Gateway(queues=2) as gateway:
        with Producer(gateway.address) as producer:
            for number in range(20):
                producer.send("orders", str(number), key=f"customer-{number % 3}")
        consumer = Consumer(gateway.address, group="billing", topics=["orders"])

        def handle(message: Message) -> None:
            seen.append(int(message.body))
            if len(seen) == 20:
                consumer.stop()

        consumer.run(handle, handle_signals=False)
        gateway.until_consumed("billing", "orders")
        assert gateway.lag("billing", "orders") == 0
    for customer in range(3):
        of_customer = [number for number in seen if number % 3 == customer]
        assert of_customer == sorted(of_customer)
    assert len(seen) == 20
    with pytest.raises(RuntimeError, match="is not running"):
        gateway.lag("billing", "orders")
