"""What ordered runs bring a single busy key: messages a second with a handler that does nothing.

Nameserver, broker and proxy are one process, the consumer is this one. Prints one JSON line:
``{"bench": "runs", "max_run": …, "alone_per_s": …, "runs_per_s": …, "ratio": …}``, medians of the
rounds; in each round both take their turn.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

from thin_client import AsyncConsumer, Message, Outgoing, Producer

TOPIC = "orders"
MAX_RUN = 256
ROUNDS = 3
#: Messages that count, one a round trip and in runs; the first ones only warm up.
ALONE, RUNS, WARM = 1_500, 8_500, 500


def send(address: str, messages: int) -> None:
    """So many messages of one key."""
    with Producer(address) as producer:
        for start in range(0, messages, 1_000):
            bodies = range(start, min(start + 1_000, messages))
            producer.send_batch([Outgoing(TOPIC, f"{n:09}", key="busy") for n in bodies])


async def per_second(address: str, *, max_run: int, messages: int) -> float:
    """Messages handled a second, in their order."""
    handled = 0
    began = ended = 0.0

    async def handle(message: Message) -> None:
        nonlocal handled, began, ended
        assert int(message.body) == handled
        handled += 1
        if handled == WARM:
            began = time.perf_counter()
        if handled == WARM + messages:
            ended = time.perf_counter()
            consumer.stop()

    consumer = AsyncConsumer(address, group="bench", topics=[TOPIC], max_run=max_run)
    await consumer.run(handle)
    return messages / (ended - began)


@contextmanager
def running() -> Iterator[str]:
    """Nameserver, broker and proxy with nothing in them; where clients find them."""
    ports = [f"--{name}-port=0" for name in ("thrift", "http", "nameserver", "broker")]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "proxy.cli", "up", "--data", folder, *ports]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=folder
        ) as process:
            try:
                assert process.stdout is not None
                yield json.loads(process.stdout.readline())["thrift"]
            finally:
                process.kill()


def measured(*, max_run: int, messages: int) -> float:
    """Messages handled a second, from the first one on."""
    with running() as address:
        send(address, WARM + messages + max_run)
        return asyncio.run(per_second(address, max_run=max_run, messages=messages))


def main() -> None:
    """All rounds."""
    alone, runs = [], []
    for _ in range(ROUNDS):
        alone.append(measured(max_run=1, messages=ALONE))
        runs.append(measured(max_run=MAX_RUN, messages=RUNS))
    ratio = statistics.median(each / one for each, one in zip(runs, alone, strict=True))
    result = {
        "bench": "runs",
        "max_run": MAX_RUN,
        "alone_per_s": round(statistics.median(alone)),
        "runs_per_s": round(statistics.median(runs)),
        "ratio": round(ratio, 1),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
