"""A producer as a separate process: ``python -m bench.paced_producer``.

Messages are due at a steady rate, whether or not earlier ones were answered; all due messages go in
one request after the previous answer. Bodies contain their due time as ``sent_ns``, so that a slow
answer delays every message that waited for it. Ends at SIGTERM.
"""

from __future__ import annotations

import asyncio
import signal
from typing import Annotated

import orjson
import typer
import uvloop

from bench.bulk import BODY_BYTES, KEYS
from broker_core.clock import now_ns
from thin_client import AsyncProducer, Outgoing

_EVERY_S, _MOST = 0.005, 1_000
_PAD = "x" * (BODY_BYTES - 60)


def main(
    proxy: Annotated[str, typer.Option()],
    topic: Annotated[str, typer.Option()],
    rate: Annotated[float, typer.Option()],
) -> None:
    """Send until SIGTERM."""
    uvloop.run(_send(proxy, topic, rate))


async def _send(proxy: str, topic: str, rate: float) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    began_ns, sent = now_ns(), 0
    async with AsyncProducer(proxy) as producer:
        while not ended.is_set():
            due = int((now_ns() - began_ns) / 1e9 * rate)
            if due > sent:
                numbers = range(sent, min(due, sent + _MOST))
                due_ns = [began_ns + int(number / rate * 1e9) for number in numbers]
                batch = [_message(topic, *each) for each in zip(numbers, due_ns, strict=True)]
                await producer.send_batch(batch)
                sent = numbers.stop
            await asyncio.sleep(_EVERY_S)


def _message(topic: str, number: int, due_ns: int) -> Outgoing:
    body = orjson.dumps({"n": number, "sent_ns": due_ns, "pad": _PAD})
    return Outgoing(topic, body, key=f"key-{number % KEYS}")


if __name__ == "__main__":
    typer.run(main)
