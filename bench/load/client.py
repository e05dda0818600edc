"""The Python thin client as a separate process: ``python -m bench.load.client``.

Its handlers work ``--work-ms`` per message, by default 0. Bodies are those of
``bench/load/shape.py``; it prints the same figures as ``bench.load.puller``.
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

from bench.frame.progress import Counter
from bench.load.consumer_record import ConsumerRecord
from broker_core.clock import now_ns
from proxy.cli.history_observer import HistoryObserver
from proxy.cli.output import print_json
from proxy.cli.serving import open_history
from proxy.history.record import History
from proxy.observe.logs import configure_logs
from thin_client import AsyncConsumer, Message, Observer


class _Calls(Observer):
    """Counts calls only; an observer of handlers would cost time per message."""

    def __init__(self, taken: ConsumerRecord) -> None:
        self._taken = taken

    def on_pulled(self, messages: int) -> None:
        """Count an answered pull."""
        self._taken.calls["pulls"] += 1

    def on_settled(self, settled: int, not_held: int) -> None:
        """Count an answered settle."""
        self._taken.calls["settles"] += 1


class _CallsAndHistory(_Calls, HistoryObserver):
    """For runs whose histories are judged."""

    def __init__(
        self, taken: ConsumerRecord, history: History, *, group: str, consumer: str
    ) -> None:
        _Calls.__init__(self, taken)
        HistoryObserver.__init__(self, history, group=group, consumer=consumer)


def observer_of(taken: ConsumerRecord, history: History, *, group: str, consumer: str) -> Observer:
    """Return the client's observer; it records handlings only if *history* is written."""
    if not history.enabled:
        return _Calls(taken)
    return _CallsAndHistory(taken, history, group=group, consumer=consumer)


def main(
    address: Annotated[str, typer.Option(help="host:port of a proxy")],
    group: Annotated[str, typer.Option()],
    concurrency: Annotated[int, typer.Option()] = 64,
    prefetch: Annotated[int | None, typer.Option()] = None,
    work_ms: Annotated[float, typer.Option()] = 0.0,
    split: Annotated[bool, typer.Option("--split")] = False,
    count: Annotated[int, typer.Option()] = 10**12,
    warm_s: Annotated[float, typer.Option()] = 0.0,
    counter: Annotated[Path | None, typer.Option()] = None,
    history: Annotated[Path | None, typer.Option()] = None,
) -> None:
    """Consume until the end."""
    configure_logs(level="warning")
    name = f"client-{os.getpid()}"
    with closing(open_history(history, "client")) as writer:
        taken = ConsumerRecord(
            most=count,
            warm_ns=int(warm_s * 1e9),
            split=split,
            counter=Counter(counter) if counter is not None else None,
        )
        observer = observer_of(taken, writer, group=group, consumer=name)

        async def handle(message: Message) -> None:
            taken.take(message.body, now_ns())
            taken.publish()
            if work_ms:
                await asyncio.sleep(work_ms / 1000)
            if taken.stopped:
                consumer.stop()

        async def run() -> None:
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, consumer.stop)
            await consumer.run(handle, handle_signals=False)

        consumer = AsyncConsumer(
            address,
            group=group,
            concurrency=concurrency,
            prefetch=prefetch,
            client_id=name,
            observer=observer,
        )
        uvloop.run(run())
    print_json(taken.figures())


if __name__ == "__main__":
    typer.run(main)
