"""``python -m tests.chaos.consumer``: handles messages as their bodies say, until SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import signal
from pathlib import Path

from proxy.cli.observing import HistoryObserver
from proxy.cli.output import print_json
from proxy.history.record import HistoryWriter
from tests.chaos.workload import GROUP, fails
from thin_client import AsyncConsumer, Message, Retry


async def _run_thin(options: argparse.Namespace, history: HistoryWriter) -> None:
    async def handle(message: Message) -> None:
        body = message.json()
        await asyncio.sleep(body["work_ms"] / 1000)
        if fails(body, attempt=message.attempt, cured=options.cured.exists()):
            raise Retry

    consumer = AsyncConsumer(
        options.proxies.split(","),
        group=GROUP,
        concurrency=8,
        client_id=options.name,
        observer=HistoryObserver(history, group=GROUP, consumer=options.name),
    )
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, consumer.stop)
    print_json({"ready": True})
    await consumer.run(handle, handle_signals=False)


#: By what a client calls itself.
KINDS = {"thin": _run_thin}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", choices=sorted(KINDS), default="thin")
    parser.add_argument("--proxies", required=True, help="host:port, separated by commas")
    parser.add_argument("--history", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--cured", type=Path, required=True, help="while it exists nothing fails")
    options = parser.parse_args()
    history = HistoryWriter(options.history, options.name, parts=("consumer",))
    asyncio.run(KINDS[options.kind](options, history))
    history.close()


if __name__ == "__main__":
    main()
