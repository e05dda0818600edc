"""Messages of megabytes: memory while consumers join and leave, and the search for order keys."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from broker_core.client import BrokerClient
from broker_core.names import Topic
from broker_core.remoting.message import OutgoingMessage
from testkit.processes import Child
from testkit.thrift_client import our_pull
from tests.attack.attacks import attack
from tests.attack.installation import GROUP, TOPIC, Installation, rss_bytes

_MEGABYTE = 1 << 20
_MEMORY = 256 * _MEGABYTE
_BODY = bytes(4_000_000)


async def _send(at: Installation, bodies: list[bytes]) -> None:
    """Send *bodies* to one queue, past the proxy."""
    client = BrokerClient(nameservers=[at.nameserver], client_id="x@1#1", request_timeout_s=30)
    await client.start()
    await client.create_topic(Topic(TOPIC), queues=1)
    (queue,) = await client.queues(Topic(TOPIC))
    for number, body in enumerate(bodies):
        await client.send(queue, OutgoingMessage(Topic(TOPIC), body, key=f"k{number}"))
    await client.close()


async def _join_and_leave(at: Installation, proxy: Child, largest: int) -> int:
    """Take messages, break the connection, and wait until nothing is held; return the largest
    resident memory.
    """
    client = await at.connect()
    client.send("pull", our_pull(GROUP, linger_ms=20_000, maxBatchSize=4))
    with suppress(TimeoutError):
        async with asyncio.timeout(20):
            await client.reader.read(1)
    client.abort()
    async with asyncio.timeout(60):
        while await at.metric("orderlane_memory_used_bytes"):
            largest = max(largest, rss_bytes(proxy))
            await asyncio.sleep(0.1)
    return max(largest, rss_bytes(proxy))


@attack(
    "consumers of messages of megabytes that join and leave",
    answer="what their queues held is released at once; memory stays within its limit and 30 %",
)
async def joins_and_leaves(at: Installation) -> str:
    topic = {"name": TOPIC, "order_key": "KEY", "visibility_timeout_s": 1}
    proxy = at.start_all(
        settings={
            "groups": [{"name": GROUP, "topics": [topic]}],
            "limits": {"memory_bytes": _MEMORY},
            "ownership": {"leave_after_s": 0.5, "drain_s": 0.5},
        }
    )
    await _send(at, [_BODY] * 40)
    before = largest = rss_bytes(proxy)
    for _ in range(8):
        largest = await _join_and_leave(at, proxy, largest)
    grown = largest - before
    assert grown <= _MEMORY * 1.3, f"memory grew by {grown / _MEGABYTE:.0f} MiB"
    return f"8 joins: at most {grown / _MEGABYTE:.0f} MiB more, of {_MEMORY / _MEGABYTE:.0f} MiB"


@attack(
    "a body of megabytes, or with patterns that backtrack, for the search of an order key"
    " (`$..id`, filters)",
    answer="the message counts as one without an order key after 100,000 steps",
)
async def endless_searches(at: Installation) -> str:
    rules = {"name": TOPIC, "order_key": "$..id", "missing_key": "unordered"}
    at.start_all(settings={"groups": [{"name": GROUP, "topics": [rules]}]})
    await _send(at, [b'{"a": [' + b"[0]," * 950_000 + b"[0]]}"] * 3 + [b'{"id": 1}'])
    client = await at.connect()
    loop, slowest_s, seen = asyncio.get_running_loop(), 0.0, 0
    async with asyncio.timeout(60):
        while seen < 4:
            began = loop.time()
            await at.ask("/livez")
            slowest_s = max(slowest_s, loop.time() - began)
            got = await client.pull(GROUP, linger_ms=200, maxBatchSize=4)
            seen += len(got.messages)
    missing = await at.metric("orderlane_missing_key_total")
    assert missing == 3, missing
    client.abort()
    assert slowest_s < 1.0, f"a probe took {slowest_s:.1f} s"
    return f"3 bodies of 3.6 MiB without a key; the slowest probe took {slowest_s * 1000:.0f} ms"
