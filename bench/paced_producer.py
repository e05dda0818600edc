"""A producer as a process of its own: ``python -m bench.paced_producer``.

It sends small batches at a steady rate until SIGTERM, through the proxy, whatever becomes of them:
a slow answer does not slow the arrivals down, as far as a few requests under way go. Bodies say
when they were sent.
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
from broker_core.tasks import spawn
from thin_client import AsyncProducer, Outgoing

_EVERY_S = 0.01
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
        under_way: set[asyncio.Task[list[str]]] = set()
        while not ended.is_set():
            due = int((now_ns() - began_ns) / 1e9 * rate) - sent
            if due > 0:
                batch = [_message(topic, sent + number) for number in range(due)]
                sent += due
                under_way.add(task := spawn(producer.send_batch(batch), name="send"))
                task.add_done_callback(under_way.discard)
            await asyncio.sleep(_EVERY_S)
        await asyncio.gather(*under_way)


def _message(topic: str, number: int) -> Outgoing:
    body = orjson.dumps({"n": number, "sent_ns": now_ns(), "pad": _PAD})
    return Outgoing(topic, body, key=f"key-{number % KEYS}")


if __name__ == "__main__":
    typer.run(main)
