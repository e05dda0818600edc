"""Every form of a consumer runs in a thread other than the main one, and ``stop`` ends it."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import AsyncIterator, Callable

import pytest

from broker_core.tasks import spawn
from testkit.eventually import eventually
from testkit.scripted_proxy import ScriptedProxy
from thin_client import App, AsyncConsumer, Consumer, Message, Timing

pytestmark = pytest.mark.sockets

QUICK = Timing(ack_linger_s=0.02, request_timeout_s=20, drain_timeout_s=20)


@pytest.fixture
async def proxy() -> AsyncIterator[ScriptedProxy]:
    async with ScriptedProxy() as scripted:
        yield scripted


def handle(message: Message) -> None:
    """Do nothing: the return acks."""


#: Start a form; return what runs in the thread, and what ends it.
Form = Callable[[str], tuple[Callable[[], None], Callable[[], None]]]


def app(address: str) -> tuple[Callable[[], None], Callable[[], None]]:
    several = App(address, group="g", timing=QUICK)
    several.on("orders")(handle)
    return several.run, several.stop


def blocking(address: str) -> tuple[Callable[[], None], Callable[[], None]]:
    consumer = Consumer(address, group="g", timing=QUICK)
    return lambda: consumer.run(handle), consumer.stop


def asynchronous(address: str) -> tuple[Callable[[], None], Callable[[], None]]:
    loops: list[asyncio.AbstractEventLoop] = []
    consumers: list[AsyncConsumer] = []

    async def run() -> None:
        loops.append(asyncio.get_running_loop())
        consumers.append(AsyncConsumer(address, group="g", timing=QUICK))
        await consumers[0].run(handle)

    return lambda: asyncio.run(run()), lambda: loops[0].call_soon_threadsafe(consumers[0].stop)


@pytest.mark.parametrize("form", [app, blocking, asynchronous])
async def test_a_consumer_runs_in_a_thread(proxy: ScriptedProxy, form: Form) -> None:
    """It sets no signal handlers, which only the main thread may do, and handles messages."""
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    await proxy.put("a")
    run, stop = form(proxy.address)
    thread = threading.Thread(target=run)
    thread.start()
    await proxy.until(lambda: proxy.verdicts == [(1, "ok")])
    assert before == [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    stop()
    await eventually(lambda: not thread.is_alive(), within_s=20)


async def test_a_stop_before_the_run_is_not_lost(proxy: ScriptedProxy) -> None:
    """The owner of a thread may stop an app before the thread has begun; the next run works."""
    several = App(proxy.address, group="g", timing=QUICK)
    several.on("orders")(handle)
    several.stop()
    await asyncio.wait_for(asyncio.to_thread(several.run), 20)
    assert proxy.verdicts == []
    await proxy.put("a")
    running = spawn(several.serve(handle_signals=False), name="app")
    await proxy.until(lambda: proxy.verdicts == [(1, "ok")])
    several.stop()
    await asyncio.wait_for(running, 20)
