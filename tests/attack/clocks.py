"""Wrong clocks, on real processes: the last time that a broker knows is moved, as by a jump."""

from __future__ import annotations

import asyncio

import orjson

from broker_core.client import BrokerClient
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
    client = BrokerClient(nameservers=[at.nameserver], client_id="sender@1#1", request_timeout_s=5)
    await client.start()
    try:
        await client.create_topic(queue.topic, queues=1)
        for _ in range(_MESSAGES):
            await client.send(queue, OutgoingMessage(queue.topic, b"x" * 90_000))
        await client.requests.ask("broker-a", RequestCode.DELETE_EXPIRED_COMMITLOG)
        await asyncio.to_thread(broker.terminate)
        table = at.folder / "data" / "config" / "retentionClock.json"
        known = orjson.loads(table.read_bytes())
        known["steady_ms"] -= _JUMP_MS
        table.write_bytes(orjson.dumps(known))
        await asyncio.to_thread(at.start_broker, **settings)
        await asyncio.sleep(4)  # longer than the retention: all files are old by the wall clock
        await client.requests.ask("broker-a", RequestCode.DELETE_EXPIRED_COMMITLOG)
        kept = _MESSAGES - await client.min_offset(queue)
        assert kept == _MESSAGES, f"{kept} of {_MESSAGES} messages kept"
        figures = await client.runtime("broker-a")
        ahead_h = int(figures["retentionClockAheadMillis"]) / 3_600_000
        assert ahead_h > 79, figures
        await client.confirm_clock("broker-a", by="attack", reason="the clock is right")
        await client.requests.ask("broker-a", RequestCode.DELETE_EXPIRED_COMMITLOG)
        left = _MESSAGES - await client.min_offset(queue)
        assert left < _MESSAGES, "nothing was deleted after the confirmation"
    finally:
        await client.close()
    return f"{ahead_h:.0f} h ahead: {kept} of {_MESSAGES} kept; {left} after the confirmation"
