"""Cheap clients in one process: ``python -m bench.lean_puller``.

Many connections share one loop. Each pulls, counts the messages as handled at once, and acks them
with the next pull, sent right away. So the load is that of many clients, while the processor time
is left to broker and proxy. Messages are those of ``bench/preload.py``. Ends at SIGTERM and prints
one line of JSON with its figures.
"""

from __future__ import annotations

import signal
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from bench.handling_record import HandlingRecord
from bench.load.links import Links
from bench.load.proxy_pulls import Pace, ProxyPuller
from proxy.cli.output import print_json
from proxy.cli.serving import open_history


def main(
    proxy: Annotated[str, typer.Option()],
    group: Annotated[str, typer.Option()],
    counter: Annotated[Path, typer.Option(help="file of the message count")],
    messages: Annotated[int, typer.Option(help="expected messages")],
    connections: Annotated[int, typer.Option()] = 16,
    batch: Annotated[int, typer.Option()] = 256,
    max_run: Annotated[int, typer.Option()] = 1,
    history: Annotated[Path | None, typer.Option()] = None,
) -> None:
    """Consume until SIGTERM."""
    handled = HandlingRecord(counter, messages)
    signal.signal(signal.SIGTERM, handled.stop)
    with closing(open_history(history, "lean")) as writer:
        puller = ProxyPuller(Links(), handled, Pace(batch=batch, max_run=max_run), writer)
        puller.run(proxy, [group], connections=connections)
    print_json(handled.figures())


if __name__ == "__main__":
    typer.run(main)
