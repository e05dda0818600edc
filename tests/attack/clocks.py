"""Wrong clocks, on real processes: the last time that a broker knows is moved, as by a jump."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import orjson

from broker_core.client import BrokerClient
from broker_core.clock import boot_id, now_ns, wall_ms
from broker_core.names import QueueName, Topic
from broker_core.remoting.codes import RequestCode
from broker_core.remoting.message import OutgoingMessage
from tests.attack.attacks import attack
from tests.attack.installation import TOPIC, Installation

_MESSAGES = 8
_JUMP_MS = 80 * 3_600_000


@attack(
    "the same while the broker is off",
    answer="everything is kept until an administrator confirms the clock",
    also=("a wall clock that jumps ahead, so that retention would delete everything",),
)
async def jump_over_a_restart(at: Installation) -> str:
    """Stop the broker, let it find its last known time 80 hours ago, and apply the retention."""
    settings = {"segment_bytes": 200_000, "max_message_bytes": 100_000, "retention_hours": 0.001}
    at.start_nameserver()
    broker = at.start_broker(**settings)
    queue = QueueName(Topic(TOPIC), "broker-a", 0)
    async with _client(at) as client:
        await client.create_topic(queue.topic, queues=1)
        for _ in range(_MESSAGES):
            await client.send(queue, OutgoingMessage(queue.topic, b"x" * 90_000))
    await asyncio.to_thread(broker.terminate)
    table = at.folder / "data" / "config" / "retentionClock.json"
    table.write_bytes(orjson.dumps(_known_before()))
    await asyncio.to_thread(at.start_broker, **settings)
    await asyncio.sleep(4)  # longer than the retention: all files are old by the wall clock
    async with _client(at) as client:
        kept = await _kept(client, queue)
        assert kept == _MESSAGES, f"{kept} of {_MESSAGES} messages kept"
        ahead_ms = int((await client.runtime("broker-a"))["retentionClockAheadMillis"])
        assert ahead_ms > 0.9 * _JUMP_MS, f"the broker noticed a jump by {ahead_ms} ms"
        await client.confirm_clock("broker-a", by="attack", reason="the clock is right")
        left = await _kept(client, queue)
        assert left < _MESSAGES, "nothing was deleted after the confirmation"
    ahead_h = ahead_ms / 3_600_000
    return f"{ahead_h:.0f} h ahead: {kept} of {_MESSAGES} kept; {left} after the confirmation"


def _known_before() -> dict[str, object]:
    """Return the broker's table of its clock, as if its last known time were before the jump."""
    return {
        "boot": boot_id(),
        "steady_ms": wall_ms() - _JUMP_MS,
        "at_ns": now_ns(),
        "unknown": False,
        "confirmed": None,
    }


@asynccontextmanager
async def _client(at: Installation) -> AsyncIterator[BrokerClient]:
    client = BrokerClient(nameservers=[at.nameserver], client_id="sender@1#1", request_timeout_s=5)
    await client.start()
    try:
        yield client
    finally:
        await client.close()


async def _kept(client: BrokerClient, queue: QueueName) -> int:
    """Apply the retention; return the number of messages kept."""
    await client.requests.ask(queue.broker, RequestCode.DELETE_EXPIRED_COMMITLOG)
    return _MESSAGES - await client.min_offset(queue)
