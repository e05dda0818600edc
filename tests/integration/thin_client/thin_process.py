"""A thin client as a process, to be stopped or killed."""

from __future__ import annotations

import argparse
import asyncio
import time
from pathlib import Path

from proxy.cli.history_observer import HistoryObserver
from proxy.history.record import HistoryWriter
from thin_client import AsyncConsumer, Consumer, Message

FORMS = ("aio", "blocking")


def main() -> None:
    """Handle messages, each for ``--work-s``, until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--form", choices=FORMS, required=True)
    parser.add_argument("--proxy", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--history", type=Path, required=True)
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument("--work-s", type=float, default=0.0)
    options = parser.parse_args()
    history = HistoryWriter(options.history, options.name)
    observer = HistoryObserver(history, group=options.group, consumer=options.name)

    async def sleep(_message: Message) -> None:
        await asyncio.sleep(options.work_s)

    def block(_message: Message) -> None:
        time.sleep(options.work_s)

    if options.form == "aio":
        consumer = AsyncConsumer(
            options.proxy,
            group=options.group,
            concurrency=options.concurrency,
            client_id=options.name,
            observer=observer,
        )
        asyncio.run(consumer.run(sleep))
    else:
        Consumer(
            options.proxy,
            group=options.group,
            concurrency=options.concurrency,
            client_id=options.name,
            observer=observer,
        ).run(block)
    history.close()


if __name__ == "__main__":
    main()
