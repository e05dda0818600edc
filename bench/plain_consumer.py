"""The Python client in its usual form, as a process: ``python -m bench.plain_consumer``.

Its handlers do nothing, or sleep between two limits by the message's key and number, so that
clients of all languages sleep equally long for it. Ends at SIGTERM and prints one line of JSON with
its figures.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer
import uvloop

from bench.exact_sleep import ExactSleep
from bench.handling_record import HandlingRecord
from bench.slow_work import SlowWork
from broker_core.tasks import cancel_and_wait, spawn
from proxy.cli.history_observer import HistoryObserver
from proxy.cli.output import print_json
from proxy.cli.serving import open_history
from proxy.observe.logs import configure_logs
from thin_client import AsyncConsumer, Message

Handler = Callable[[Message], Awaitable[None]]

_SHOW_S = 0.01


def main(
    proxy: Annotated[str, typer.Option()],
    group: Annotated[str, typer.Option()],
    counter: Annotated[Path, typer.Option(help="file of the message count")],
    messages: Annotated[int, typer.Option(help="expected messages")],
    concurrency: Annotated[int, typer.Option()] = 64,
    prefetch: Annotated[int | None, typer.Option()] = None,
    max_run: Annotated[int, typer.Option()] = 1,
    work_ms: Annotated[float, typer.Option()] = 0.0,
    least_work_ms: Annotated[float | None, typer.Option()] = None,
    seed: Annotated[int, typer.Option()] = 1,
    history: Annotated[Path | None, typer.Option()] = None,
) -> None:
    """Consume until SIGTERM."""
    configure_logs(level="warning")
    name = f"plain-{os.getpid()}"
    handled = HandlingRecord(counter, messages)
    lasts = SlowWork(seed, work_ms if least_work_ms is None else least_work_ms, work_ms)
    with closing(open_history(history, "plain")) as writer:
        observer = HistoryObserver(writer, group=group, consumer=name)
        consumer = AsyncConsumer(
            proxy,
            group=group,
            concurrency=concurrency,
            prefetch=prefetch,
            max_run=max_run,
            client_id=name,
            observer=observer if writer.enabled else None,
        )
        uvloop.run(_consume(consumer, handled, lasts if work_ms else None))
    print_json(handled.figures())


async def _consume(
    consumer: AsyncConsumer, handled: HandlingRecord, lasts: SlowWork | None
) -> None:
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, consumer.stop)
    sleep = ExactSleep(loop)
    showing = spawn(_show(handled), name="show")
    handler = _idle(handled) if lasts is None else _working(handled, lasts, sleep)
    try:
        await consumer.run(handler, handle_signals=False)
    finally:
        await cancel_and_wait(showing)
        sleep.close()


def _idle(handled: HandlingRecord) -> Handler:
    async def handle(message: Message) -> None:
        handled.begin(message.key, message.offset)
        handled.end()

    return handle


def _working(handled: HandlingRecord, lasts: SlowWork, sleep: ExactSleep) -> Handler:
    async def handle(message: Message) -> None:
        key = message.key
        handled.begin(key, message.offset)
        handled.hold(key)
        await sleep(lasts.seconds(message.body))
        handled.let_go(key)
        handled.end()

    return handle


async def _show(handled: HandlingRecord) -> None:
    while True:
        handled.publish()
        await asyncio.sleep(_SHOW_S)


if __name__ == "__main__":
    typer.run(main)
