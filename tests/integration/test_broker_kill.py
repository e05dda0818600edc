"""A broker in a process of its own, killed with SIGKILL while messages come in."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from pathlib import Path

import pytest

from broker_core.client.broker_client import BrokerClient
from broker_core.errors import RemotingError
from broker_core.names import Group, QueueName, Topic
from broker_core.nameserver.server import NameServer
from broker_core.remoting.message import OutgoingMessage
from broker_core.tasks import spawn

TOPIC = Topic("orders")
ROOT = Path(__file__).parents[2]
PROGRAM = """
import asyncio, sys
from pathlib import Path
from broker_core.broker import Broker, BrokerSettings

async def main():
    broker = Broker(BrokerSettings(
        data=Path(sys.argv[1]), nameserver=(sys.argv[2],), listen="127.0.0.1:0",
        flush=sys.argv[3], segment_bytes=300_000, max_message_bytes=100_000,
    ))
    await broker.start()
    print("ready", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def started_broker(data: Path, nameserver: str, flush: str) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, str(data), nameserver, flush,
        cwd=ROOT, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    async for line in process.stdout:
        if line.strip() == b"ready":
            return process
    raise AssertionError(f"the broker ended with {await process.wait()}")


async def send_until_it_fails(
    client: BrokerClient, queue: QueueName, answered: dict[QueueName, list[tuple[int, bytes]]]
) -> None:
    """Note each message once its send was answered."""
    with contextlib.suppress(RemotingError):
        while True:
            sent = answered.setdefault(queue, [])
            body = b"%s %d " % (str(queue).encode(), len(sent)) + b"x" * 500
            receipt = await client.send(queue, OutgoingMessage(TOPIC, body), timeout_s=2)
            sent.append((receipt.offset, body))


async def stored_bodies(client: BrokerClient, queue: QueueName) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    offset = 0
    while True:
        pulled = await client.pull(queue, group=Group("g"), offset=offset, suspend_ms=0)
        if not pulled.messages:
            return found
        found |= {m.queue_offset: m.body for m in pulled.messages}
        offset = pulled.next_offset


@pytest.mark.slow
@pytest.mark.parametrize("flush", ["sync", "async"])
async def test_what_was_answered_survives_a_kill_at_its_offset(tmp_path: Path, flush: str) -> None:
    """A killed process leaves the page cache behind, so this holds with flush async as well."""
    nameserver = NameServer()
    await nameserver.start()
    answered: dict[QueueName, list[tuple[int, bytes]]] = {}
    queues: list[QueueName] = []
    for life in range(3):
        broker = await started_broker(tmp_path / "data", nameserver.address, flush)
        client = BrokerClient(nameservers=[nameserver.address], client_id=f"life-{life}")
        await client.start()
        if not queues:
            await client.create_topic(TOPIC, queues=4)
            queues = await client.queues(TOPIC)
        for queue, sent in answered.items():
            found = await stored_bodies(client, queue)
            assert sorted(found) == list(range(len(found)))
            assert [found[offset] for offset, _ in sent] == [body for _, body in sent]
        senders = [
            spawn(send_until_it_fails(client, queue, answered), name=str(queue)) for queue in queues
        ]
        await asyncio.sleep(0.3)
        broker.send_signal(signal.SIGKILL)
        await broker.wait()
        await asyncio.gather(*senders)
        await client.close()
    assert sum(map(len, answered.values())) > 100
    await nameserver.close()
