"""Observers that raise: their errors do not affect messages."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

from broker_core.tasks import spawn
from testkit.scripted_proxy import Request, ScriptedProxy
from thin_client import AsyncConsumer, ClientError, Consumer, KeyBatch, Message, Observer
from thrift_idl import consumer

pytestmark = pytest.mark.sockets


class Failing(Observer):
    """Raises in every method."""

    def __init__(self) -> None:
        self.told: set[str] = set()

    def fail(self, what: str) -> None:
        self.told.add(what)
        raise ValueError(what)

    def on_handle_start(self, message: Message) -> None:
        self.fail("start")

    def on_handle_end(self, message: Message, outcome: str) -> None:
        self.fail("end")

    def on_pulled(self, messages: int) -> None:
        self.fail("pulled")

    def on_settled(self, settled: int, not_held: int) -> None:
        self.fail("settled")

    def on_lease_lost(self, message: Message) -> None:
        self.fail("lost")

    def on_error(self, error: ClientError) -> None:
        self.fail("error")


@pytest.mark.parametrize("batches", [False, True])
@pytest.mark.parametrize("form", [Consumer, AsyncConsumer])
async def test_what_an_observer_raises_is_logged_and_ends_nothing(
    form: type[Consumer] | type[AsyncConsumer], batches: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Every message is handled and acked, although each of the observer's methods fails."""
    observer = Failing()

    def handle(taken: Message | KeyBatch) -> None:
        message = taken if isinstance(taken, Message) else taken[0]
        while message.lease_id == 1 and not message.lease_lost:
            time.sleep(0.005)

    async def busy(request: Request) -> None:
        raise consumer.PullException(503, "shutting down")

    async with ScriptedProxy(lease_ms=3_000) as proxy:
        proxy.not_held = {1}
        proxy.script("pull", busy)
        await proxy.put(*"abcd")
        each = form(proxy.address, group="g", concurrency=2, prefetch=0, observer=observer)
        run = each.run_batches if batches else each.run
        with caplog.at_level(logging.ERROR, logger="orderlane"):
            if isinstance(each, Consumer):
                task = spawn(asyncio.to_thread(run, handle, handle_signals=False), name="consumer")
            else:
                task = spawn(run(handle, handle_signals=False), name="consumer")
            await proxy.until(lambda: len(proxy.verdicts) == 4, 30)
            await proxy.until(lambda: proxy.waiting_pulls == 1 and "settled" in observer.told, 30)
            each.stop()
            await asyncio.wait_for(task, 30)

    assert sorted(proxy.verdicts) == [(number, "ok") for number in (1, 2, 3, 4)]
    assert observer.told == {"start", "end", "pulled", "settled", "lost", "error"}
    assert "an observer method failed" in caplog.text
