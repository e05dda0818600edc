"""Batches of one key at both forms of the consumer, and the App, at a scripted proxy."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from broker_core.tasks import spawn
from testkit.scripted_proxy import Request, ScriptedProxy
from thin_client import (
    App,
    AsyncConsumer,
    Consumer,
    KeyBatch,
    Message,
    Observer,
    Refused,
    Reject,
    Timing,
)
from thrift_idl import consumer

pytestmark = pytest.mark.sockets


class Log(Observer):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def on_handle_start(self, message: Message) -> None:
        self.lines.append(f"start {message.lease_id}")

    def on_handle_end(self, message: Message, outcome: str) -> None:
        self.lines.append(f"{outcome} {message.lease_id}")


@pytest.fixture
async def proxy() -> AsyncIterator[ScriptedProxy]:
    async with ScriptedProxy() as scripted:
        yield scripted


Handle = Callable[[KeyBatch], object]


async def handle_all(
    form: type[Any], proxy: ScriptedProxy, handle: Handle, *, verdicts: int, **options: Any
) -> None:
    """Run *handle* until the proxy has received *verdicts* verdicts."""
    timing = Timing(request_timeout_s=20)  # repeats would arrive twice
    each = form(proxy.address, group="g", max_run=3, timing=timing, **options)
    if form is Consumer:
        running = asyncio.to_thread(each.run_batches, handle, handle_signals=False)
    else:
        running = each.run_batches(handle, handle_signals=False)
    task = spawn(running, name="consumer")
    await proxy.until(lambda: len(proxy.verdicts) >= verdicts)
    each.stop()
    await asyncio.wait_for(task, 30)


both = pytest.mark.parametrize("form", [Consumer, AsyncConsumer])


@both
async def test_a_batch_holds_messages_of_one_key_in_order(
    proxy: ScriptedProxy, form: type[Any]
) -> None:
    """At most the requested number; a message without a key comes alone."""
    await proxy.put("a", "a", "a", "a", "b", None, None)
    seen: list[list[int]] = []

    def handle(batch: KeyBatch) -> None:
        seen.append([message.lease_id for message in batch])

    await handle_all(form, proxy, handle, verdicts=7, concurrency=1, prefetch=8)
    assert sorted(seen) == [[1, 2, 3], [4], [5], [6], [7]]
    assert proxy.requests[0].argument.maxRun == 3
    assert sorted(proxy.verdicts) == [(number, "ok") for number in range(1, 8)]


@both
async def test_a_failure_acks_what_came_before_and_gives_the_rest_back(
    proxy: ScriptedProxy, form: type[Any]
) -> None:
    await proxy.put("a", "a", "a", "a")
    log = Log()

    def handle(batch: KeyBatch) -> None:
        for message in batch:
            if message.lease_id == 2:
                raise Reject("schema")
            batch.ok()

    await handle_all(form, proxy, handle, verdicts=4, concurrency=1, prefetch=8, observer=log)
    assert sorted(proxy.verdicts) == [(1, "ok"), (2, "reject"), (3, "defer"), (4, "defer")]
    assert log.lines == ["start 1", "ok 1", "start 2", "reject 2"]


@both
async def test_an_exception_after_all_are_done_changes_nothing(
    proxy: ScriptedProxy, form: type[Any]
) -> None:
    await proxy.put("a", "a")

    def handle(batch: KeyBatch) -> None:
        batch.ok(len(batch))
        raise ValueError("too late")

    await handle_all(form, proxy, handle, verdicts=2, concurrency=1, prefetch=8)
    assert sorted(proxy.verdicts) == [(1, "ok"), (2, "ok")]


def test_more_than_there_are_cannot_be_done() -> None:
    message: Any = object()
    batch = KeyBatch([message, message], Observer())
    batch.ok()
    with pytest.raises(ValueError, match="expected 0 to 1, the number left"):
        batch.ok(2)
    assert (batch.done, len(batch), batch[0:1]) == (1, 2, (message,))


# ---- App ----------------------------------------------------------------------------------------


async def test_an_app_has_a_consumer_for_each_handler_until_the_signal(
    proxy: ScriptedProxy,
) -> None:
    """Plain functions and coroutines, one message or a batch at a time."""
    app = App(proxy.address, group="g", client_id="me")
    seen: list[object] = []

    @app.on("orders", concurrency=2)
    async def one(message: Message) -> None:
        seen.append(message.lease_id)

    @app.on("refunds", "returns", batch_by="key", max_batch=5)
    def several(batch: KeyBatch) -> None:
        seen.append(len(batch))

    task = spawn(app.serve(), name="app")
    await proxy.until(lambda: proxy.waiting_pulls == 2)
    asked = {
        (request.argument.clientId, *request.argument.topics, request.argument.maxRun)
        for request in proxy.of("pull")
    }
    assert asked == {("me-1", "orders", None), ("me-2", "refunds", "returns", 5)}
    await proxy.put("a", "a", "a")
    await proxy.until(lambda: len(proxy.verdicts) == 3)
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(task, 30)
    assert len(seen) in (1, 2, 3)


async def test_a_handler_whose_consumer_ends_ends_the_app(proxy: ScriptedProxy) -> None:
    """The refusal is raised unchanged, and the other consumers drain."""
    app = App(proxy.address, group="g")

    @app.on("orders")
    async def one(message: Message) -> None: ...

    @app.on("refunds")
    async def other(message: Message) -> None: ...

    async def refuse(request: Request) -> Any:
        raise consumer.PullException(code=404, message="no such topic")

    proxy.script("pull", refuse)
    with pytest.raises(Refused, match="no such topic"):
        await asyncio.wait_for(app.serve(handle_signals=False), 30)


def test_an_app_says_what_it_lacks() -> None:
    app = App("proxy:9713", group="g")
    with pytest.raises(ValueError, match="no handler is registered"):
        app.run()
    with pytest.raises(ValueError, match="topics are missing"):
        app.on()
    with pytest.raises(ValueError, match="expected 'key'"):
        app.on("orders", batch_by="queue")  # type: ignore[arg-type]
