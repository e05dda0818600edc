"""``python -m tests.chaos.consumer``: handle messages as their bodies specify, until SIGTERM.

Changes for running handlers are in a folder of orders.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from proxy.cli.history_observer import HistoryObserver
from proxy.cli.output import print_json
from proxy.history.record import HistoryWriter
from testkit.ddmq_client import MODES, DdmqClient, DdmqMessage
from tests.chaos.orders import Orders
from tests.chaos.workload import fails, work_s
from thin_client import AsyncConsumer, Consumer, Message, Retry

_CONCURRENCY = 8
_LOOK_S = 0.02


def _options_of(options: argparse.Namespace, history: HistoryWriter) -> dict[str, Any]:
    observer = HistoryObserver(history, group=options.group, consumer=options.name)
    return {"concurrency": _CONCURRENCY, "client_id": options.name, "observer": observer}


async def _work(options: argparse.Namespace, body: dict[str, Any], attempt: int) -> bool:
    """Do a handler's work; return whether it fails."""
    orders: Orders = options.orders
    cured = orders.cured(body)
    await asyncio.sleep(work_s(body, cured=cured) + orders.slow_s(options.name))
    while orders.together:  # noqa: ASYNC110  # another process says so, by a file
        await asyncio.sleep(_LOOK_S)
    return fails(body, attempt=attempt, cured=cured)


def _run_thin(options: argparse.Namespace, history: HistoryWriter, *, max_run: int = 1) -> int:
    async def handle(message: Message) -> None:
        body = message.json()
        if await _work(options, body, message.attempt):
            raise Retry

    async def run() -> None:
        servers, more = options.proxies.split(","), _options_of(options, history)
        consumer = AsyncConsumer(servers, group=options.group, max_run=max_run, **more)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, consumer.stop)
        print_json({"ready": True})
        await consumer.run(handle, handle_signals=False)

    asyncio.run(run())
    return 0


def _run_blocking(options: argparse.Namespace, history: HistoryWriter) -> int:
    def handle(message: Message) -> None:
        body, orders = message.json(), options.orders
        cured = orders.cured(body)
        time.sleep(work_s(body, cured=cured) + orders.slow_s(options.name))
        while orders.together:
            time.sleep(_LOOK_S)
        if fails(body, attempt=message.attempt, cured=cured):
            raise Retry

    servers, more = options.proxies.split(","), _options_of(options, history)
    consumer = Consumer(servers, group=options.group, **more)
    signal.signal(signal.SIGTERM, lambda *_: consumer.stop())
    print_json({"ready": True})
    consumer.run(handle, handle_signals=False)
    return 0


def _run_ddmq(options: argparse.Namespace, history: HistoryWriter, *, mode: str) -> int:
    """Run a DDMQ client, which prints its report at the end; return 1 if a proxy violated its
    contract.
    """
    attempts: Counter[tuple[str, int]] = Counter()

    async def handle(message: DdmqMessage) -> bool:
        place = (message.qid.partition("#")[0], message.offset)
        attempts[place] += 1
        return not await _work(options, orjson.loads(message.value), attempts[place])

    client = DdmqClient(
        *(options.proxies.split(","), options.group, MODES[mode]),
        name=options.name,
        history=history,
    )

    async def run() -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, client.stop)
        print_json({"ready": True})
        await client.run(handle)

    asyncio.run(run())
    print_json(client.report())
    for violation in client.violations:
        sys.stderr.write(f"violation: {violation}\n")
    return 1 if client.violations else 0


#: By client kind.
KINDS: dict[str, Callable[[argparse.Namespace, HistoryWriter], int]] = {
    "thin": _run_thin,
    "runs": partial(_run_thin, max_run=8),
    "blocking": _run_blocking,
    **{f"ddmq-{mode}": partial(_run_ddmq, mode=mode) for mode in MODES},
}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", choices=sorted(KINDS), default="thin")
    parser.add_argument("--group", required=True)
    parser.add_argument("--proxies", required=True, help="host:port, separated by commas")
    parser.add_argument("--history", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--orders", type=Path, required=True, help="see tests/chaos/orders.py")
    parser.add_argument("--slow-s", type=float, default=0)
    given = parser.parse_args()
    orders = Orders(given.orders, slow_handlers_s=given.slow_s)
    options = argparse.Namespace(**{**vars(given), "orders": orders})
    history = HistoryWriter(options.history, options.name, parts=("consumer",))
    code = KINDS[options.kind](options, history)
    history.close()
    return code


if __name__ == "__main__":
    sys.exit(main())
