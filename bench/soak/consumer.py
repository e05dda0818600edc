"""A consumer of a soak: ``python -m bench.soak.consumer``.

By default lean connections that pull and ack; with ``--client`` the Python thin client, whose
handlers fail as ``bench/soak/keys.py`` defines. It judges the order of messages as they arrive, and
prints its counts at SIGTERM.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
import uvloop

from bench.frame.progress import Counter
from bench.load.links import Links
from bench.load.proxy_pulls import Pace, ProxyPuller
from bench.load.shape import head_of, key_name
from bench.soak.keys import MOST_DELIVERIES, fails
from bench.soak.sequences import Sequences
from proxy.cli.output import print_json
from proxy.history.record import NullHistory
from proxy.observe.logs import configure_logs
from thin_client import AsyncConsumer, Message, Retry
from thrift_idl import consumer

_RUN = 16


class _Judge:
    """Receives messages, for either kind of consumer."""

    def __init__(self, counter: Path, body_bytes: int) -> None:
        self.stopped = False
        self.sequences = Sequences(most_deliveries=MOST_DELIVERIES)
        self._counter = Counter(counter)
        self._body_bytes = body_bytes

    def stop(self, *_: object) -> None:
        """Stop soon."""
        self.stopped = True

    def take_all(self, messages: Sequence[consumer.Message], _now_ns: int) -> None:
        """Take messages of one queue for a handler that never fails."""
        for message in messages:
            self.take(message.key, message.value or b"", failing=False)

    def take(self, key: str | None, body: bytes, *, failing: bool) -> bool:
        """Take a message for a handler; return whether it fails."""
        sequences, head = self.sequences, head_of(body)
        if len(body) != self._body_bytes or key != key_name(head.key):
            sequences.note_garbled()
        failed = failing and fails(head.key, head.number, sequences.tries(head.key, head.number))
        sequences.handled(head.key, head.number, failed=failed)
        return failed

    def publish(self) -> None:
        """Publish the count."""
        self._counter.show(self.sequences.counts.handled)


async def _run_client(address: str, group: str, concurrency: int, judge: _Judge) -> None:
    name = f"soak-{os.getpid()}"
    client = AsyncConsumer(
        address, group=group, concurrency=concurrency, max_run=_RUN, client_id=name
    )

    async def handle(message: Message) -> None:
        failed = judge.take(message.key, message.body, failing=True)
        judge.publish()
        if failed:
            raise Retry

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, client.stop)
    await client.run(handle, handle_signals=False)


def main(
    address: Annotated[str, typer.Option(help="host:port of a proxy")],
    group: Annotated[str, typer.Option()],
    counter: Annotated[Path, typer.Option(help="file of its message count")],
    client: Annotated[bool, typer.Option("--client")] = False,
    body_bytes: Annotated[int, typer.Option()] = 256,
    connections: Annotated[
        int, typer.Option(help="number of connections, or of the client's handlers")
    ] = 16,
    batch: Annotated[int, typer.Option()] = 256,
) -> None:
    """Consume until SIGTERM."""
    configure_logs(level="warning")
    judge = _Judge(counter, body_bytes)
    if client:
        uvloop.run(_run_client(address, group, connections, judge))
    else:
        signal.signal(signal.SIGTERM, judge.stop)
        puller = ProxyPuller(Links(), judge, Pace(batch=batch, max_run=_RUN), NullHistory())
        puller.run(address, [group], connections=connections)
    print_json(judge.sequences.counts.as_dict())


if __name__ == "__main__":
    typer.run(main)
