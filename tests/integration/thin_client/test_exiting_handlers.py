"""Handlers that call ``sys.exit()`` or the like: the consumer ends and keeps no message."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from testkit.scripted_proxy import ScriptedProxy
from thin_client import App, AsyncConsumer, Consumer, KeyBatch, Message, Timing

QUICK = Timing(ack_linger_s=0.02, request_timeout_s=10, drain_timeout_s=5)

pytestmark = [pytest.mark.sockets, pytest.mark.usefixtures("quiet")]


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, logger="orderlane")


@pytest.fixture
async def proxy() -> AsyncIterator[ScriptedProxy]:
    async with ScriptedProxy(lease_ms=8_000) as scripted:
        yield scripted


def options(**more: Any) -> dict[str, Any]:
    return {"group": "g", "topics": ["orders"], "timing": QUICK, **more}


async def _blocking(proxy: ScriptedProxy, handler: Callable[[Message], object]) -> None:
    consumer = Consumer(proxy.address, **options())
    await asyncio.to_thread(consumer.run, handler, handle_signals=False)


async def _blocking_batches(proxy: ScriptedProxy, handler: Callable[[Message], object]) -> None:
    def handle(batch: KeyBatch) -> None:
        for message in batch:
            handler(message)

    consumer = Consumer(proxy.address, **options(max_run=2))
    await asyncio.to_thread(consumer.run_batches, handle, handle_signals=False)


async def _threads(proxy: ScriptedProxy, handler: Callable[[Message], object]) -> None:
    await AsyncConsumer(proxy.address, **options()).run(handler, handle_signals=False)


async def _coroutines(proxy: ScriptedProxy, handler: Callable[[Message], object]) -> None:
    async def handle(message: Message) -> None:
        await asyncio.to_thread(lambda: None if message.key == "bad" else handler(message))
        if message.key == "bad":
            handler(message)

    await AsyncConsumer(proxy.address, **options()).run(handle, handle_signals=False)


async def _app(proxy: ScriptedProxy, handler: Callable[[Message], object]) -> None:
    app = App(proxy.address, group="g", timing=QUICK)
    app.on("orders")(handler)
    app.on("refunds")(handler)
    await app.serve(handle_signals=False)


@pytest.mark.parametrize(
    "run",
    [
        *(_blocking, _coroutines),
        *(pytest.param(run, marks=pytest.mark.slow) for run in (_blocking_batches, _threads, _app)),
    ],
)
async def test_sys_exit_in_a_handler_ends_the_consumer_and_what_others_handle_is_acked(
    run: Callable[[ScriptedProxy, Callable[[Message], object]], Any], proxy: ScriptedProxy
) -> None:
    """Otherwise it would end only its thread: the message's lease would be extended forever, and
    its key would wait.
    """
    begun, exited = threading.Event(), threading.Event()

    def handle(message: Message) -> None:
        if message.key == "bad":
            assert begun.wait(20)
            exited.set()
            sys.exit(3)
        begun.set()
        assert exited.wait(20)

    await proxy.put("good", "bad")
    async with asyncio.timeout(30):
        with pytest.raises(SystemExit) as ended:  # in this task: another one's would end the loop
            await run(proxy, handle)

    assert ended.value.code == 3
    assert sorted(each[1] for each in proxy.verdicts) == ["ok", "retry"]


class Interrupt(BaseException):
    """As libraries derive for time-outs that no ``except Exception`` may swallow."""


@pytest.mark.parametrize("error", [Interrupt, KeyboardInterrupt])
@pytest.mark.parametrize("form", ["coroutine", "thread", "app", "blocking"])
async def test_what_is_no_exception_ends_the_consumer_too(
    error: type[BaseException], form: str, proxy: ScriptedProxy
) -> None:
    """Otherwise it would end one task alone, without a log line, and its message stays leased."""

    def fail(message: Message) -> None:
        raise error

    async def fail_here(message: Message) -> None:
        raise error

    app = App(proxy.address, group="g", timing=QUICK)
    app.on("orders")(fail_here)
    forms = {
        "blocking": lambda: _blocking(proxy, fail),
        "thread": lambda: AsyncConsumer(proxy.address, **options()).run(fail),
        "coroutine": lambda: AsyncConsumer(proxy.address, **options()).run(fail_here),
        "app": app.serve,
    }
    await proxy.put("bad")
    async with asyncio.timeout(30):
        with pytest.raises(error):
            await forms[form]()

    assert proxy.verdicts == [(1, "retry")]
