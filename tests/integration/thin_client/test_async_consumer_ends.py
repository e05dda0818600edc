"""The asyncio consumer keeps leases, loses them, and returns messages when it ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from testkit.eventually import eventually
from testkit.scripted_proxy import Request, ScriptedProxy
from tests.integration.thin_client import async_consumers
from tests.integration.thin_client.async_consumers import Running
from thin_client import AsyncConsumer, Message, Observer, Timing
from thrift_idl import consumer

#: No request times out on a slow machine: repeats would arrive twice.
PATIENT = Timing(ack_linger_s=0.02, request_timeout_s=20, drain_timeout_s=20)


def consumer_of(proxy: ScriptedProxy, **options: Any) -> AsyncConsumer:
    return async_consumers.consumer_of(proxy, **{"timing": PATIENT, **options})


@pytest.fixture
async def proxy() -> AsyncIterator[ScriptedProxy]:
    async with ScriptedProxy() as scripted:
        yield scripted


async def test_leases_are_extended(proxy: ScriptedProxy) -> None:
    """The leases of a slow handler and of a waiting message are extended together at a third."""
    proxy.lease_for(300)

    async def handle(message: Message) -> None:
        enough = 2 if message.key == "a" else 3
        await eventually(lambda: len(proxy.of("extend")) >= enough)

    await proxy.put(*"ab")
    async with Running(consumer_of(proxy, concurrency=1, prefetch=1), handle):
        await proxy.until(lambda: len(proxy.verdicts) == 2)

    first = proxy.of("extend")[0].argument
    assert [ref.leaseId for ref in first.leases] == [1, 2]
    assert first.ms == 300
    assert first.leases[0].context.qid == "broker-a_0#1"
    assert len(proxy.of("extend")) >= 3


async def test_lost_leases_are_reported(proxy: ScriptedProxy) -> None:
    """A handler can see that its lease is gone; a message that only waited is not handled."""
    proxy.lease_for(300)
    lost: list[Message] = []
    handled = []
    told = asyncio.Event()

    class Watch(Observer):
        def on_lease_lost(self, message: Message) -> None:
            lost.append(message)
            told.set()

    async def handle(message: Message) -> None:
        handled.append(message.key)
        if message.key == "a":
            proxy.lose(1, 2)  # only now: on a slow machine the handler would not start
            await told.wait()
            assert message.lease_lost

    await proxy.put(*"abc")
    async with Running(consumer_of(proxy, concurrency=1, prefetch=2, observer=Watch()), handle):
        await proxy.until(lambda: (3, "ok") in proxy.verdicts)

    assert [message.key for message in lost] == ["a"]
    assert handled == ["a", "c"]


@pytest.mark.parametrize("still_held", [True, False])
async def test_late_answers_are_confirmed_first(proxy: ScriptedProxy, still_held: bool) -> None:
    """Messages of an answer later than the lease is long are handled only after an extend."""
    proxy.lease_for(100)
    handled = []

    async def late(request: Request) -> consumer.PullResponse:
        await asyncio.sleep(0.15)
        return proxy.batch(
            consumer.Message(value=b"", offset=0, leaseId=77, key="late"),
        )

    async def handle(message: Message) -> None:
        assert proxy.of("extend")
        handled.append(message.key)

    if not still_held:
        proxy.lose(77)
    proxy.script("pull", late)
    async with Running(consumer_of(proxy), handle):
        await proxy.until(lambda: bool(proxy.of("extend")))
        await proxy.until(lambda: len(proxy.of("pull")) > 3)
        if still_held:  # a confirmed lease may expire again on a slow machine
            await eventually(lambda: bool(handled))

    assert handled == (["late"] if still_held else [])


async def test_drain_finishes_and_gives_back(proxy: ScriptedProxy) -> None:
    """After stop, handled messages are acked, waiting ones released, and nothing is pulled."""
    go_on = asyncio.Event()
    started = asyncio.Event()

    async def handle(message: Message) -> None:
        started.set()
        await go_on.wait()

    await proxy.put(*"abc")
    consumer = consumer_of(proxy, concurrency=1, prefetch=2)
    running = Running(consumer, handle)
    await started.wait()
    consumer.stop()
    await proxy.until(lambda: sorted(proxy.verdicts) == [(2, "defer"), (3, "defer")])
    pulls = len(proxy.of("pull"))
    go_on.set()
    await asyncio.wait_for(running.task, 30)

    assert sorted(proxy.verdicts) == [(1, "ok"), (2, "defer"), (3, "defer")]
    assert len(proxy.of("pull")) == pulls


async def test_a_parked_pull_is_given_back_at_drain(proxy: ScriptedProxy) -> None:
    """Messages of a pull pending at stop are released unhandled."""
    async with consumer_of(proxy) as each:
        await proxy.until(lambda: proxy.waiting_pulls == 1)
        each.stop()
        await proxy.put("a")

    assert proxy.verdicts == [(1, "defer")]


async def test_drain_has_a_deadline(proxy: ScriptedProxy) -> None:
    """A coroutine that does not end in time is cancelled and its message given back."""
    timing = Timing(drain_timeout_s=0.05, request_timeout_s=20)
    started = asyncio.Event()

    async def handle(message: Message) -> None:
        started.set()
        await asyncio.Event().wait()

    await proxy.put("a")
    consumer = consumer_of(proxy, timing=timing, concurrency=1, prefetch=0)
    running = Running(consumer, handle)
    await started.wait()
    consumer.stop()
    await asyncio.wait_for(running.task, 30)

    assert proxy.verdicts == [(1, "defer")]


@pytest.mark.sockets
async def test_a_thread_over_time_keeps_its_message(proxy: ScriptedProxy) -> None:
    """A thread cannot be cancelled, so no other client may get its message yet."""
    timing = Timing(drain_timeout_s=0.05, request_timeout_s=20)
    started, end = threading.Event(), threading.Event()

    def handle(message: Message) -> None:
        started.set()
        end.wait(60)

    await proxy.put("a")
    consumer = consumer_of(proxy, timing=timing, concurrency=1, prefetch=0)
    running = Running(consumer, handle)
    await asyncio.to_thread(started.wait, 15)
    consumer.stop()
    await asyncio.wait_for(running.task, 30)
    end.set()

    assert proxy.verdicts == []


@pytest.mark.sockets
async def test_signal_handlers_of_the_application_are_back_after_the_end(
    proxy: ScriptedProxy,
) -> None:
    """As those of a web server, or of ``asyncio.run``, whose SIGINT cancels the main task."""

    def own(number: int, _frame: object) -> None:
        raise AssertionError(f"signal {number}")

    numbers = (signal.SIGTERM, signal.SIGINT)
    former = [signal.signal(number, own) for number in numbers]
    try:
        each = consumer_of(proxy)
        running = asyncio.get_running_loop().create_task(each.run(print))
        await proxy.until(lambda: proxy.waiting_pulls == 1)
        assert signal.getsignal(signal.SIGTERM) is not own
        each.stop()
        await asyncio.wait_for(running, 30)
        assert [signal.getsignal(number) for number in numbers] == [own, own]
    finally:
        for number, handler in zip(numbers, former, strict=True):
            signal.signal(number, handler)


@pytest.mark.sockets
async def test_sigterm_drains(proxy: ScriptedProxy) -> None:
    """On SIGTERM run acks its messages and returns."""
    handled = asyncio.Event()

    async def handle(message: Message) -> None:
        handled.set()
        await asyncio.sleep(0.05)

    await proxy.put("a")
    consumer = consumer_of(proxy, concurrency=1, prefetch=0)
    task = asyncio.get_running_loop().create_task(consumer.run(handle))
    await handled.wait()
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(task, 30)

    assert proxy.verdicts == [(1, "ok")]


@pytest.mark.sockets
async def test_sigterm_drains_all_consumers_of_a_loop(proxy: ScriptedProxy) -> None:
    """A signal stops every consumer, also those left after another one has ended."""
    handled = asyncio.Queue[str | None]()

    async def handle(message: Message) -> None:
        handled.put_nowait(message.key)
        await asyncio.sleep(0.05)

    consumers = [consumer_of(proxy, concurrency=1, prefetch=0) for _ in range(3)]
    loop = asyncio.get_running_loop()
    *tasks, first_to_end = [loop.create_task(each.run(handle)) for each in consumers]
    await proxy.until(lambda: proxy.waiting_pulls == 3)
    consumers[-1].stop()
    await asyncio.wait_for(first_to_end, 30)
    await proxy.put("a")
    await handled.get()
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(asyncio.gather(*tasks), 30)

    assert proxy.verdicts == [(1, "ok")]


async def test_a_handler_that_ignores_its_cancellation_does_not_hold_the_end(
    proxy: ScriptedProxy,
) -> None:
    """Its message waits for the end of its lease, as that of a thread does."""
    timing = Timing(drain_timeout_s=0.05, request_timeout_s=20)
    started, end = asyncio.Event(), asyncio.Event()

    async def handle(message: Message) -> None:
        started.set()
        while not end.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await end.wait()

    await proxy.put("a")
    consumer = consumer_of(proxy, timing=timing, concurrency=1, prefetch=0)
    running = Running(consumer, handle)
    await started.wait()
    consumer.stop()
    try:
        await asyncio.wait_for(asyncio.shield(running.task), 60)
    finally:
        end.set()

    assert proxy.verdicts == []


async def test_a_second_stop_is_a_hard_one(proxy: ScriptedProxy) -> None:
    """Stopping twice does not wait for handlers."""
    started = asyncio.Event()

    async def handle(message: Message) -> None:
        started.set()
        await asyncio.Event().wait()

    await proxy.put("a")
    timing = Timing(request_timeout_s=20, drain_timeout_s=90)
    consumer = consumer_of(proxy, timing=timing, concurrency=1, prefetch=0)
    running = Running(consumer, handle)
    await started.wait()
    began = time.monotonic()
    async with asyncio.timeout(60):
        while not running.task.done():  # until the drain starts, a stop counts as the first
            consumer.stop()
            await asyncio.sleep(0.01)
    await running.task

    assert time.monotonic() - began < timing.drain_timeout_s / 2
    assert proxy.verdicts == [(1, "defer")]
