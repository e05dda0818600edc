"""A handler that blocks the event loop keeps its leases while its process lives."""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from testkit.scripted_proxy import Request, ScriptedProxy
from thin_client import AsyncConsumer, Defer, Message, Observer, Timing
from thrift_idl import consumer

pytestmark = [pytest.mark.sockets, pytest.mark.slow]

PATIENT = Timing(ack_linger_s=0.02, request_timeout_s=20, drain_timeout_s=20)
LEASE_MS = 6_000
#: Longer than a lease on a loaded machine.
BLOCKED_S = 8.0


@pytest.fixture
async def proxy() -> AsyncIterator[ScriptedProxy]:
    async with ScriptedProxy(lease_ms=LEASE_MS) as scripted:
        yield scripted


class Elsewhere:
    """An asyncio consumer in a thread with its own loop, since the test's loop runs the proxy."""

    def __init__(
        self, proxy: ScriptedProxy, handler: Callable[[Message], Any], **options: Any
    ) -> None:
        self._address = proxy.address
        self._handler = handler
        self._options = {"group": "g", "timing": PATIENT, **options}
        self._loop: asyncio.AbstractEventLoop | None = None
        self.consumer: AsyncConsumer | None = None

    async def __aenter__(self) -> Elsewhere:
        self._running = asyncio.get_running_loop().run_in_executor(None, asyncio.run, self._run())
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        assert self._loop is not None
        assert self.consumer is not None
        self._loop.call_soon_threadsafe(self.consumer.stop)
        await asyncio.wait_for(self._running, 60)

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.consumer = AsyncConsumer(self._address, **self._options)
        await self.consumer.run(self._handler, handle_signals=False)


def longest_gap_s(proxy: ScriptedProxy, lease: int) -> float:
    """Return the longest time between requests for *lease*: its pull, extends and verdict."""
    signs = [
        each.at_s
        for each in proxy.requests
        if (each.method == "extend" and lease in [ref.leaseId for ref in each.argument.leases])
        or (each.method != "extend" and lease in [number for number, _ in each.verdicts])
    ]
    signs = [proxy.requests[0].at_s, *signs]
    return max(after - before for before, after in itertools.pairwise(signs))


async def test_leases_outlive_a_blocked_loop(
    proxy: ScriptedProxy, caplog: pytest.LogCaptureFixture
) -> None:
    """No lease is lost: of messages being handled, waiting, or done but unconfirmed."""
    runs: list[str | None] = []

    async def block(message: Message) -> None:
        runs.append(message.key)
        time.sleep(BLOCKED_S)  # noqa: ASYNC251  # as a library does that knows no asyncio

    await proxy.put(*"abc")
    async with Elsewhere(proxy, block, concurrency=2, prefetch=2):
        await proxy.until(lambda: len(proxy.verdicts) >= 3)

    assert sorted(runs) == ["a", "b", "c"]
    assert sorted(set(proxy.verdicts)) == [(1, "ok"), (2, "ok"), (3, "ok")]
    for lease in (1, 2, 3):
        assert longest_gap_s(proxy, lease) * 1000 < LEASE_MS
    (warning,) = [each for each in caplog.records if each.levelno == logging.WARNING]
    said = warning.getMessage()
    assert said.startswith("the event loop was blocked for ")
    assert " s, the lease is 6 s: use a plain def" in said


async def test_a_free_loop_extends_by_itself(
    proxy: ScriptedProxy, caplog: pytest.LogCaptureFixture
) -> None:
    """A handler that awaits causes no second extension and no warning."""

    async def wait(message: Message) -> None:
        await asyncio.sleep(BLOCKED_S)

    await proxy.put("a")
    async with Elsewhere(proxy, wait):
        await proxy.until(lambda: bool(proxy.verdicts))

    assert len({each.connection for each in proxy.of("extend")}) == 1
    assert not caplog.records


async def test_refused_leases_are_not_handled(proxy: ScriptedProxy) -> None:
    """Waiting messages whose extend was refused are dropped; running handlers are notified."""
    runs: list[str | None] = []
    lost: list[str | None] = []

    async def block(message: Message) -> None:
        runs.append(message.key)
        proxy.not_held.update({1, 2})
        time.sleep(BLOCKED_S)  # noqa: ASYNC251
        await asyncio.sleep(0.2)

    class Watch(Observer):
        def on_lease_lost(self, message: Message) -> None:
            lost.append(message.key)

    await proxy.put(*"abc")
    async with Elsewhere(proxy, block, concurrency=1, prefetch=2, observer=Watch()):
        await proxy.until(lambda: (3, "ok") in proxy.verdicts)

    assert runs == ["a", "c"]
    assert lost == ["a"]


async def test_a_closed_consumer_keeps_nothing(proxy: ScriptedProxy) -> None:
    """After its drain, or once its loop is closed, no lease is extended; Python reports the
    connection that was not closed.
    """

    async def hold_one() -> None:
        each = AsyncConsumer(proxy.address, group="g", timing=PATIENT)
        await each.__aenter__()
        await anext(each)  # the loop ends while the message is held

    async def leave() -> None:
        await asyncio.to_thread(asyncio.run, hold_one())
        proxy.requests.clear()
        await asyncio.sleep(2 * LEASE_MS / 1000)
        gc.collect()  # here, not in a later test

    await proxy.put("a")
    with pytest.warns(ResourceWarning, match="^unclosed"):
        await leave()

    assert proxy.of("extend") == []
    assert not [each for each in threading.enumerate() if each.name == "orderlane leases"]


async def test_an_extension_that_fails_is_asked_again(proxy: ScriptedProxy) -> None:
    """A connection that breaks while the loop is blocked is opened again."""

    async def refuse(request: Request) -> None:
        raise consumer.PullException(503, "not now")

    async def block(message: Message) -> None:
        proxy.script("extend", refuse)
        proxy.hang_up()
        time.sleep(BLOCKED_S)  # noqa: ASYNC251
        raise Defer

    await proxy.put("a")
    async with Elsewhere(proxy, block):
        await proxy.until(lambda: bool(proxy.verdicts))

    assert len(proxy.of("extend")) > 2
    assert longest_gap_s(proxy, 1) * 1000 < LEASE_MS
