"""Handlers that cancel, or await what was cancelled: each message gets a verdict, and the next one
is handled.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from broker_core.tasks import spawn
from testkit.scripted_proxy import ScriptedProxy
from thin_client import AsyncConsumer, KeyBatch, Message, Timing

pytestmark = pytest.mark.sockets


@pytest.fixture
async def proxy() -> AsyncIterator[ScriptedProxy]:
    async with ScriptedProxy() as scripted:
        yield scripted


def consumer(proxy: ScriptedProxy, concurrency: int = 1) -> AsyncConsumer:
    timing = Timing(ack_linger_s=0.02, drain_timeout_s=5)
    return AsyncConsumer(proxy.address, group="g", concurrency=concurrency, timing=timing)


async def handled_after(
    proxy: ScriptedProxy, handler: Callable[[Message], Any]
) -> list[tuple[int, str]]:
    """Handle a message of each key, one at a time; return the verdicts."""
    each = consumer(proxy)
    await proxy.put("a", "b", "c")
    running = spawn(each.run(handler, handle_signals=False), name="consumer")
    await proxy.until(lambda: len(proxy.verdicts) == 3)
    each.stop()
    await running
    return sorted(proxy.verdicts)


def of_a_pool(_message: Message) -> None:
    future: concurrent.futures.Future[None] = concurrent.futures.Future()
    future.cancel()
    future.result()


def of_another_loop(_message: Message) -> None:
    async def work() -> None:
        raise asyncio.CancelledError

    asyncio.run(work())


async def of_a_future(_message: Message) -> None:
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


async def by_a_timer(_message: Message) -> None:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().call_later(0.05, task.cancel)
    await asyncio.Event().wait()


async def belatedly(_message: Message) -> None:
    """Its task is cancelled when the handler has ended and the next one may run."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().call_soon(task.cancel)
    raise ValueError


@pytest.mark.parametrize("work", [of_a_pool, of_another_loop])
async def test_a_plain_handler_whose_work_was_cancelled(
    proxy: ScriptedProxy, work: Callable[[Message], None]
) -> None:
    def handler(message: Message) -> None:
        if message.key == "a":
            work(message)

    assert await handled_after(proxy, handler) == [(1, "retry"), (2, "ok"), (3, "ok")]


@pytest.mark.parametrize("work", [of_a_future, by_a_timer])
async def test_a_coroutine_whose_work_was_cancelled(
    proxy: ScriptedProxy, work: Callable[[Message], Any]
) -> None:
    async def handler(message: Message) -> None:
        if message.key == "a":
            await work(message)

    assert await handled_after(proxy, handler) == [(1, "retry"), (2, "ok"), (3, "ok")]


async def test_a_timer_that_cancels_its_task_belatedly(proxy: ScriptedProxy) -> None:
    async def handler(message: Message) -> None:
        if message.key == "a":
            await belatedly(message)

    verdicts = dict(await handled_after(proxy, handler))
    assert (verdicts[1], verdicts[3]) == ("retry", "ok")


async def test_a_home_made_time_out_before_a_cancelled_future(proxy: ScriptedProxy) -> None:
    """It leaves the task's count of cancellations at 1."""

    async def handler(message: Message) -> None:
        if message.key == "a":
            try:
                await by_a_timer(message)
            except asyncio.CancelledError:
                raise TimeoutError from None
        if message.key == "b":
            await of_a_future(message)

    assert await handled_after(proxy, handler) == [(1, "retry"), (2, "retry"), (3, "ok")]


async def test_a_batch_whose_work_was_cancelled(proxy: ScriptedProxy) -> None:
    def handler(batch: KeyBatch) -> None:
        if batch.key == "a":
            of_a_pool(batch[0])

    each = consumer(proxy)
    await proxy.put("a", "b")
    running = spawn(each.run_batches(handler, handle_signals=False), name="consumer")
    await proxy.until(lambda: len(proxy.verdicts) == 2)
    each.stop()
    await running
    assert sorted(proxy.verdicts) == [(1, "retry"), (2, "ok")]


async def test_a_message_that_was_given_back_is_not_handled(
    proxy: ScriptedProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No thread can start for it; the executor keeps it for a thread that becomes free."""
    handled: list[str | None] = []
    given_back = threading.Event()
    start = threading.Thread.start

    def fails(thread: threading.Thread) -> None:
        if thread.name.startswith("orderlane_") and not thread.name.endswith("_0"):
            raise RuntimeError("can't start new thread")
        start(thread)

    def handler(message: Message) -> None:
        given_back.wait(30)
        handled.append(message.key)

    monkeypatch.setattr(threading.Thread, "start", fails)
    each = consumer(proxy, concurrency=2)
    running = spawn(each.run(handler, handle_signals=False), name="consumer")
    await proxy.put("a", "b")
    await proxy.until(lambda: proxy.verdicts == [(2, "retry")])
    given_back.set()
    await proxy.until(lambda: len(proxy.verdicts) == 2)
    each.stop()
    await running
    assert sorted(proxy.verdicts) == [(1, "ok"), (2, "retry")]
    assert handled == ["a"]
