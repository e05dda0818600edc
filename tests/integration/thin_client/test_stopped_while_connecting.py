"""Consumers that are stopped or closed while one of their connections is being opened."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from broker_core.tasks import spawn
from testkit.eventually import eventually
from testkit.scripted_proxy import HangUp, Request, ScriptedProxy
from thin_client import AsyncConsumer, Consumer, Message, Observer, Timing, aio_feeder, feeder
from thin_client.aio_connection import AsyncConnection
from thin_client.connection import Connection
from thin_client.servers import Destination

pytestmark = pytest.mark.sockets

#: A close waits for threads for twice the request time-out, plus the wait of pulls.
QUICK = Timing(request_timeout_s=1.3, drain_timeout_s=0.1)


@pytest.fixture
async def proxy() -> AsyncIterator[ScriptedProxy]:
    async with ScriptedProxy() as scripted:
        yield scripted


class Gate:
    """Gate for new connections; connection number *shut* waits at it."""

    def __init__(self, shut: int) -> None:
        self.shut = shut
        self.knocked, self.opened = threading.Event(), threading.Event()
        self._count = 0

    def _waits(self) -> bool:
        self._count += 1
        if self._count != self.shut:
            return False
        self.knocked.set()
        return True

    def connect(self, destination: Destination, *, timeout_s: float) -> Connection:
        if self._waits():
            self.opened.wait(10)
        return Connection(destination, timeout_s=timeout_s)

    async def open(self, destination: Destination, *, timeout_s: float) -> AsyncConnection:
        if self._waits():
            await eventually(self.opened.is_set)
        return await AsyncConnection.open(destination, timeout_s=timeout_s)


def our_threads() -> set[str]:
    return {each.name for each in threading.enumerate() if each.name.startswith("orderlane")}


@pytest.mark.parametrize(("shut", "asked"), [(1, set()), (2, {"pull"})])
async def test_closed_while_it_connects_it_asks_for_nothing_more(
    proxy: ScriptedProxy, monkeypatch: pytest.MonkeyPatch, shut: int, asked: set[str]
) -> None:
    """Neither messages on the first connection, nor an extend on the second."""
    gate = Gate(shut)
    monkeypatch.setattr(feeder, "Connection", gate.connect)
    await proxy.put("a")
    proxy.lease_for(300)

    def life() -> None:
        with Consumer(proxy.address, group="g", timing=QUICK) as each:
            if shut > 1:
                message = next(each)
                message.__enter__()
            gate.knocked.wait(5)

    await asyncio.to_thread(life)
    gate.opened.set()
    await eventually(lambda: not our_threads())
    await eventually(lambda: proxy.open_connections == 0)

    assert {request.method for request in proxy.requests} == asked


@pytest.mark.slow
async def test_a_home_that_is_met_after_the_close_gets_no_thread(proxy: ScriptedProxy) -> None:
    """An answer that arrived just before the close is processed after it."""
    answered, closed = threading.Event(), threading.Event()

    class Slow(Observer):
        def on_pulled(self, messages: int) -> None:
            answered.set()
            closed.wait(10)

    def life() -> None:
        with Consumer(proxy.address, group="g", timing=QUICK, observer=Slow()):
            answered.wait(5)

    await proxy.put("a")
    await asyncio.to_thread(life)
    closed.set()

    await eventually(lambda: not our_threads())


@pytest.mark.parametrize("form", [Consumer, AsyncConsumer])
async def test_stopped_while_it_connects_it_pulls_no_more(
    proxy: ScriptedProxy,
    monkeypatch: pytest.MonkeyPatch,
    form: type[Consumer] | type[AsyncConsumer],
) -> None:
    """A pull sent then would wait at the proxy and delay the drain."""
    gate = Gate(2)  # the first one is for the pull of the message
    started, go_on = threading.Event(), threading.Event()

    async def hang_up(request: Request) -> None:
        raise HangUp

    def handle(message: Message) -> None:
        started.set()
        go_on.wait(10)

    monkeypatch.setattr(feeder, "Connection", gate.connect)
    monkeypatch.setattr(aio_feeder, "AsyncConnection", gate)
    await proxy.put("a")
    proxy.lease_for(60_000)  # no extends during the test
    proxy.script("pull", proxy.plainly, hang_up)
    each = form(proxy.address, group="g", concurrency=1, prefetch=1)
    if isinstance(each, Consumer):
        running = asyncio.to_thread(each.run, handle, handle_signals=False)
    else:
        running = each.run(handle, handle_signals=False)
    task = spawn(running, name="consumer")
    await asyncio.to_thread(started.wait, 30)
    await asyncio.to_thread(gate.knocked.wait, 30)
    each.stop()
    gate.opened.set()
    await eventually(lambda: proxy.accepted == 2)
    go_on.set()
    await asyncio.wait_for(task, 30)

    assert len(proxy.of("pull")) == 2
    assert proxy.verdicts == [(1, "ok")]
