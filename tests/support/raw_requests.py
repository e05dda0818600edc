"""Raw connections to a broker and its nameserver, with the log lines and errors that requests
cause.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import structlog

from broker_core.client.connection_pool import ConnectionPool
from broker_core.names import Group
from broker_core.remoting.bodies import ConsumerData, Heartbeat
from broker_core.remoting.codes import RequestCode
from broker_core.remoting.command import RemotingCommand, decode
from testkit.broker_process import Cluster, run_broker
from tests.support.bad_requests import AT_BROKER, AT_NAMESERVER, TOPIC

_IN_FLIGHT = 200


class Asker:
    """Sends raw requests to a broker and its nameserver, and collects logged lines."""

    def __init__(self, cluster: Cluster, logs: list[Any]) -> None:
        self.cluster = cluster
        self.logs = logs
        self.unhandled: list[dict[str, Any]] = []  # errors that reached the event loop
        self.pool = ConnectionPool(
            handlers={RequestCode.GET_CONSUMER_RUNNING_INFO: lambda asked, _: asked.response()}
        )

    async def ask(self, address: str, *requests: RemotingCommand) -> list[RemotingCommand]:
        """Send requests over one connection and return the replies."""
        answers: list[RemotingCommand] = []
        for start in range(0, len(requests), _IN_FLIGHT):
            part = requests[start : start + _IN_FLIGHT]
            answers += await asyncio.gather(
                *(self.pool.request(address, each, timeout_s=20) for each in part)
            )
        return answers

    async def stored(self) -> int:
        """Return the number of messages in all queues, by requests of a well-behaved client."""
        count = 0
        for queue_id in range(4):
            ext = {"topic": TOPIC, "queueId": str(queue_id)}
            (answer,) = await self.ask(
                self.cluster.broker_address, RemotingCommand(RequestCode.GET_MAX_OFFSET, ext=ext)
            )
            count += int(answer.ext["offset"])
        return count

    def assert_nothing_broke(self) -> None:
        """Assert that no task died, no handler failed and no log line is as long as a client's
        payload.
        """
        assert self.unhandled == []
        assert [line for line in self.logs if line["log_level"] in ("error", "critical")] == []
        assert [line for line in self.logs if "exc_info" in line or len(str(line)) > 2000] == []


@asynccontextmanager
async def asking(folder: Path) -> AsyncIterator[Asker]:
    """Start a broker with one message and one member, and a nameserver with a value."""
    with structlog.testing.capture_logs() as logs:
        async with run_broker(folder) as cluster:
            await cluster.create_topic(TOPIC)
            asker = Asker(cluster, logs)  # type: ignore[arg-type]
            asyncio.get_running_loop().set_exception_handler(
                lambda _, context: asker.unhandled.append(context)
            )
            await _prepare(asker)
            yield asker
            await asker.pool.close()
        asker.assert_nothing_broke()


async def _prepare(asker: Asker) -> None:
    send, put = AT_BROKER[RequestCode.SEND_MESSAGE], AT_NAMESERVER[RequestCode.PUT_KV_CONFIG]
    group = Group("members")
    members = ConsumerData(group=group, subscriptions=())
    member = Heartbeat(client_id="m", consumers=(members,), producers=(group,))
    answers = await asker.ask(
        asker.cluster.broker_address,
        RemotingCommand(RequestCode.SEND_MESSAGE, ext=send.ext(), body=b"x"),
        RemotingCommand(RequestCode.HEART_BEAT, body=member.to_json()),
    )
    answers += await asker.ask(
        asker.cluster.nameserver, RemotingCommand(RequestCode.PUT_KV_CONFIG, ext=put.ext())
    )
    assert {answer.code for answer in answers} == {0}


@asynccontextmanager
async def raw_connection(
    address: str,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield reader, writer
    finally:
        writer.close()


async def read_frame(reader: asyncio.StreamReader) -> RemotingCommand:
    length = int.from_bytes(await reader.readexactly(4), "big")
    return decode(memoryview(await reader.readexactly(length)))


def json_frame(header: object) -> bytes:
    text = header if isinstance(header, bytes) else orjson.dumps(header)
    return (4 + len(text)).to_bytes(4, "big") + len(text).to_bytes(4, "big") + text
