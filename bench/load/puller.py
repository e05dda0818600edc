"""A lean consumer as a separate process: ``python -m bench.load.puller``.

Each connection pulls, works (``--work-ms`` per message, 0 by default) and pulls again, with the
acks in that pull or in a call before it (``--settle``). So a connection with ``--batch 1`` is one
handler. With ``--broker`` there is no proxy: one connection has a pull of each queue open at a
broker, and nothing is acked. Bodies are those of ``bench/load/shape.py``.

Prints one line of JSON at its end, after ``--count`` messages or SIGTERM: counts, repeated and
early messages, and the delay from a message's due time to its handler, without those of the first
``--warm-s``. ``--split``: separate delays for key 0 and the rest.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from bench.frame.progress import Counter
from bench.load.broker_pulls import BrokerPuller
from bench.load.consumer_record import ConsumerRecord
from bench.load.links import Links
from bench.load.proxy_pulls import Pace, ProxyPuller
from proxy.cli.output import print_json
from proxy.cli.serving import open_history


def main(
    address: Annotated[str, typer.Option(help="host:port of a proxy or a broker")],
    group: Annotated[
        str, typer.Option(help="groups separated by commas; connections alternate between them")
    ],
    topic: Annotated[str, typer.Option(help="of --broker")] = "",
    queues: Annotated[int, typer.Option(help="of --broker")] = 8,
    connections: Annotated[int, typer.Option()] = 16,
    batch: Annotated[int, typer.Option()] = 32,
    max_run: Annotated[int, typer.Option()] = 1,
    work_ms: Annotated[float, typer.Option()] = 0.0,
    settle: Annotated[bool, typer.Option("--settle")] = False,
    broker: Annotated[bool, typer.Option("--broker")] = False,
    split: Annotated[bool, typer.Option("--split")] = False,
    count: Annotated[int, typer.Option()] = 10**12,
    warm_s: Annotated[float, typer.Option()] = 0.0,
    counter: Annotated[Path | None, typer.Option()] = None,
    history: Annotated[Path | None, typer.Option()] = None,
) -> None:
    """Consume until the end."""
    with closing(open_history(history, "puller")) as writer:
        taken = ConsumerRecord(
            most=count,
            warm_ns=int(warm_s * 1e9),
            split=split,
            counter=Counter(counter) if counter is not None else None,
        )
        stop: Callable[..., None] = taken.stop
        signal.signal(signal.SIGTERM, stop)
        if broker:
            BrokerPuller(Links(), address, taken).run(topic, group, queues=queues, batch=batch)
        else:
            pace = Pace(batch=batch, max_run=max_run, work_ms=work_ms, settle=settle)
            puller = ProxyPuller(Links(), taken, pace, writer)
            puller.run(address, group.split(","), connections=connections)
            taken.calls = puller.calls
    print_json(taken.figures())


if __name__ == "__main__":
    typer.run(main)
