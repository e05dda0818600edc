"""Cancelled asyncio consumers: the first time they drain, the second time they end at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine

import pytest

from broker_core.tasks import spawn
from testkit.eventually import eventually
from testkit.scripted_proxy import ScriptedProxy
from thin_client import App, AsyncConsumer, Message, Timing


@pytest.fixture
async def proxy() -> AsyncIterator[ScriptedProxy]:
    async with ScriptedProxy() as scripted:
        yield scripted


Run = Callable[[ScriptedProxy, asyncio.Event], Coroutine[None, None, None]]


def parallel(proxy: ScriptedProxy, started: asyncio.Event) -> Coroutine[None, None, None]:
    async def handle(message: Message) -> None:
        started.set()
        await asyncio.Event().wait()

    each = AsyncConsumer(proxy.address, group="g", concurrency=2)
    return each.run(handle, handle_signals=False)


async def iterator(proxy: ScriptedProxy, started: asyncio.Event) -> None:
    async with AsyncConsumer(proxy.address, group="g") as each:
        message = await anext(each)
        message.__enter__()  # as by another task that shares the consumer and has not ended
        started.set()
        await asyncio.Event().wait()


def app(proxy: ScriptedProxy, started: asyncio.Event) -> Coroutine[None, None, None]:
    several = App(proxy.address, group="g")

    @several.on("orders")
    @several.on("refunds")
    async def handle(message: Message) -> None:
        started.set()
        await asyncio.Event().wait()

    return several.serve(handle_signals=False)


async def twice(task: asyncio.Task[None]) -> None:
    """Cancel as a task group does, and then a time-out around it."""
    task.cancel()
    for _ in range(20):
        await asyncio.sleep(0)
    assert not task.done()
    task.cancel()


async def at_every_turn(task: asyncio.Task[None]) -> None:
    """Cancel as a cancel scope of anyio does."""
    while not task.done():
        task.cancel()
        await asyncio.sleep(0)


@pytest.mark.parametrize("cancel", [twice, at_every_turn])
@pytest.mark.parametrize("run", [parallel, iterator, app])
async def test_cancelled_again_a_consumer_leaves_no_task_and_no_connection(
    proxy: ScriptedProxy, run: Run, cancel: Callable[[asyncio.Task[None]], Coroutine]
) -> None:
    """A second cancellation does not wait, and no task keeps leases alive."""
    started = asyncio.Event()
    await proxy.put("a")
    task = spawn(run(proxy, started), name="application")
    await proxy.until(lambda: proxy.waiting_pulls > 0)
    await asyncio.wait_for(started.wait(), 20)
    await cancel(task)
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 20)

    await nothing_left(proxy)


async def test_a_cancelled_drain_has_the_deadline_of_any_other(proxy: ScriptedProxy) -> None:
    """Messages of handlers that do not end in time are given back, on every supported Python."""
    started = asyncio.Event()

    async def handle(message: Message) -> None:
        started.set()
        await asyncio.Event().wait()

    await proxy.put("a")
    timing = Timing(drain_timeout_s=0.05, request_timeout_s=20)
    each = AsyncConsumer(proxy.address, group="g", timing=timing, concurrency=1, prefetch=0)
    task = spawn(each.run(handle, handle_signals=False), name="application")
    await asyncio.wait_for(started.wait(), 20)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 20)

    assert proxy.verdicts == [(1, "defer")]
    await nothing_left(proxy)


async def test_a_drain_after_stop_that_is_cancelled_leaves_nothing(proxy: ScriptedProxy) -> None:
    """As with a time-out around the drain after ``stop``."""
    started = asyncio.Event()

    async def handle(message: Message) -> None:
        started.set()
        await asyncio.Event().wait()

    await proxy.put("a")
    each = AsyncConsumer(proxy.address, group="g")
    task = spawn(each.run(handle, handle_signals=False), name="application")
    await asyncio.wait_for(started.wait(), 20)
    each.stop()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(task, 0.05)

    await nothing_left(proxy)


async def nothing_left(proxy: ScriptedProxy) -> None:
    def ours() -> set[str]:
        names = {task.get_name() for task in asyncio.all_tasks()}
        return {name for name in names if name.startswith("orderlane")}

    await eventually(lambda: not ours(), within_s=10)
    await eventually(lambda: proxy.open_connections == 0, within_s=10)
