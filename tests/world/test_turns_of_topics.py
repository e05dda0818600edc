"""Topics of a group that share its limits take turns, delivered by clients or by the proxy."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from testkit.simulation.clients import Flow
from testkit.simulation.world import ClientNode
from tests.world.stage import Stage, play

#: The limits are enough for one topic.
LIMITS = pytest.mark.parametrize(
    "limit", [{}, {"max_leased_jobs": 4}, {"max_rate": 20}], ids=["none", "leases", "rate"]
)
CUSTOMERS = tuple(f"k{number}" for number in range(40))


def group(limit: dict[str, Any], **mail: Any) -> dict[str, Any]:
    topics = [{"name": "orders", "order_key": "KEY"}, {"name": "mail", "order_key": "KEY", **mail}]
    return {"name": "billing", **limit, "topics": topics}


async def busy_with_orders(stage: Stage) -> None:
    """Start clients of one topic, with more work than the limits allow."""
    stage.habits.work_for(0.2)
    await stage.producer.send(Flow("orders", CUSTOMERS, 0.0005, 3000))
    for number in range(3):
        stage.consume(f"consumer-{number}", "billing", ["orders"], concurrency=8)
    await asyncio.sleep(5)


async def _receive(pushed: list[str], host: str) -> None:
    """Answer every HTTP request with 200."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = next(
                    int(line.split(b":")[1])
                    for line in head.split(b"\r\n")
                    if line.lower().startswith(b"content-length")
                )
                await reader.readexactly(size)
                pushed.append("one")
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    await asyncio.start_server(serve, host, 8080)


@LIMITS
def test_a_topic_that_the_proxy_pushes(limit: dict[str, Any]) -> None:
    async def main(stage: Stage) -> None:
        receiver = stage.world.add(ClientNode, "receiver")
        await receiver.start()
        pushed: list[str] = []
        await receiver.do(_receive(pushed, receiver.host))
        actions = [{"push": {"urls": [f"http://{receiver.host}:8080/mail"]}}]
        groups = [group(limit, actions=actions)]
        await stage.start(groups=groups, topics={"orders": 2, "mail": 2})
        await busy_with_orders(stage)
        await stage.producer.send(Flow("mail", CUSTOMERS, 0.0005, 20))
        await stage.until(lambda: len(pushed) == 20, within_s=40)

    assert play(main).keys() <= {"D1"}, "it ends before the backlog does"


@LIMITS
def test_a_topic_of_other_clients(limit: dict[str, Any]) -> None:
    async def main(stage: Stage) -> None:
        await stage.start(groups=[group(limit)], topics={"orders": 2, "mail": 2})
        stage.consume("other", "billing", ["mail"])
        await busy_with_orders(stage)
        await stage.producer.send(Flow("mail", CUSTOMERS, 0.0005, 20))
        await stage.until(lambda: len(stage.of("deliver", topic="mail")) == 20, within_s=40)

    assert play(main).keys() <= {"D1"}, "it ends before the backlog does"
