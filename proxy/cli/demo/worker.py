"""One client process of the demo: reports that it is ready, waits for "go", and handles messages.

Started as ``python -m proxy.cli.demo.worker``. It prints its count as a line of JSON, at most five
times per second, and drains at SIGTERM.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path

import uvloop

from proxy.cli.history_observer import HistoryObserver
from proxy.cli.output import print_json
from proxy.history.record import HistoryWriter
from thin_client import AsyncConsumer, Message

_REPORT_S = 0.2


async def work(arguments: argparse.Namespace) -> None:
    """Handle messages of one group until SIGTERM."""
    name = f"client-{arguments.number}"
    history = HistoryWriter(Path(arguments.history), f"{arguments.group}-{name}")
    observer = HistoryObserver(history, group=arguments.group, consumer=name)
    work_s = arguments.work_ms / 1000

    async def handle(_message: Message) -> None:
        await asyncio.sleep(work_s)

    consumer = AsyncConsumer(
        arguments.proxy,
        group=arguments.group,
        concurrency=arguments.handlers,
        prefetch=3 * arguments.handlers,  # fewer, larger pulls for small machines
        client_id=f"demo-{name}-{os.getpid()}",
        observer=observer,
    )
    print_json({"here": True})
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    reporting = asyncio.get_running_loop().create_task(_report(observer), name="report")
    await consumer.run(handle)
    reporting.cancel()
    print_json({"handled": observer.handled})
    history.close()


async def _report(observer: HistoryObserver) -> None:
    reported = -1
    while True:
        if observer.handled != reported:
            reported = observer.handled
            print_json({"handled": reported})
        await asyncio.sleep(_REPORT_S)


def main() -> None:
    """Parse the options passed by ``run.py``."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("proxy", "group", "history"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("number", "handlers"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--work-ms", type=float, required=True)
    uvloop.run(work(parser.parse_args()))


if __name__ == "__main__":
    main()
