"""Waiting clients: ``python -m bench.coefficients.waiting``.

Each connection always has one pull of its group open until SIGTERM, and acks received messages with
the next pull. Prints one line when all are connected.
"""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer
import uvloop

from broker_core.tasks import spawn
from proxy.cli.output import print_json
from testkit.thrift_client import acked, connect, our_pull

_LINGER_MS = 8000


async def _wait(port: int, group: str, name: str, connected: asyncio.Semaphore) -> None:
    async with connect(port) as client:
        connected.release()
        acks: list[object] = []
        while True:
            wish = our_pull(group, linger_ms=_LINGER_MS, clientId=name, manyQueues=True, acks=acks)
            answer = await client.call("pull", wish)
            acks = [acked(batch) for batch in (answer, *(answer.more or ())) if batch.messages]


async def _run(port: int, groups: int, each: int) -> None:
    connected = asyncio.Semaphore(0)
    tasks = [
        spawn(_wait(port, f"g{group}", f"c{group}-{number}", connected), name="wait")
        for group in range(groups)
        for number in range(each)
    ]
    for _ in tasks:
        await connected.acquire()
    print_json({"ready": True, "clients": len(tasks)})
    await asyncio.gather(*tasks)


def main(
    port: Annotated[int, typer.Option()],
    groups: Annotated[int, typer.Option()] = 1,
    each: Annotated[int, typer.Option(help="connections per group")] = 1,
) -> None:
    """Wait for messages until SIGTERM."""
    uvloop.run(_run(port, groups, each))


if __name__ == "__main__":
    typer.run(main)
