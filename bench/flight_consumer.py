"""The Python client on flights, as a process: ``python -m bench.flight_consumer``.

Its handlers sleep as long as a simulation says for that message. Prints one line of JSON with its
figures at SIGTERM.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer
import uvloop

from bench.exact_sleep import ExactSleep
from bench.flights import number_of
from bench.handling_record import HandlingRecord
from broker_core.tasks import cancel_and_wait, spawn
from proxy.cli.history_observer import HistoryObserver
from proxy.cli.output import print_json
from proxy.cli.serving import open_history
from proxy.core.keys.kinds.registry import compile_order_key
from proxy.core.keys.order_key import key_text
from proxy.observe.logs import configure_logs
from proxy.tuning.service_times import ServiceTimes
from thin_client import AsyncConsumer, Message

_SHOW_S = 0.01


def main(
    proxy: Annotated[str, typer.Option()],
    group: Annotated[str, typer.Option()],
    counter: Annotated[Path, typer.Option(help="file of the message count")],
    messages: Annotated[int, typer.Option(help="expected messages")],
    order_key: Annotated[str, typer.Option(help="order key of the group")],
    service_ms: Annotated[str, typer.Option()],
    concurrency: Annotated[int, typer.Option()] = 64,
    seed: Annotated[int, typer.Option()] = 1,
    history: Annotated[Path | None, typer.Option()] = None,
) -> None:
    """Consume until SIGTERM."""
    configure_logs(level="warning")
    name = f"flights-{os.getpid()}"
    handled = HandlingRecord(counter, messages)
    rule = compile_order_key(order_key)
    lasts = ServiceTimes.parse(service_ms, seed=seed)
    with closing(open_history(history, "flights")) as writer:
        observer = HistoryObserver(writer, group=group, consumer=name)
        consumer = AsyncConsumer(
            proxy,
            group=group,
            concurrency=concurrency,
            client_id=name,
            observer=observer if writer.enabled else None,
        )

        async def run() -> None:
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGTERM, consumer.stop)
            sleep = ExactSleep(loop)

            async def handle(message: Message) -> None:
                queue = number_of(message.queue)
                lane = f"{queue} {key_text(rule.look(message)[0])}"
                handled.begin(lane, message.offset)
                handled.hold(lane)
                await sleep(lasts.ns(queue, message.offset) / 1e9)
                handled.let_go(lane)
                handled.end()

            showing = spawn(_show(handled), name="show")
            try:
                await consumer.run(handle, handle_signals=False)
            finally:
                await cancel_and_wait(showing)
                sleep.close()

        uvloop.run(run())
    print_json(handled.figures())


async def _show(handled: HandlingRecord) -> None:
    while True:
        handled.publish()
        await asyncio.sleep(_SHOW_S)


if __name__ == "__main__":
    typer.run(main)
