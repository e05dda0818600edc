"""Small inputs that expand: lists, nesting, aliases, compressed bodies."""

from __future__ import annotations

import asyncio
import zlib

import orjson
from thrift.protocol.TCompactProtocol import TCompactProtocol
from thrift.Thrift import TMessageType, TType
from thrift.transport.TTransport import TMemoryBuffer

from broker_core.client import BrokerClient
from broker_core.names import Topic
from broker_core.remoting.message import OutgoingMessage
from testkit.thrift_client import framed
from tests.attack.attacks import attack
from tests.attack.installation import GROUP, TOPIC, Installation, rss_bytes

_MEGABYTE = 1 << 20
#: Flag of a body compressed with zlib (``MessageSysFlag`` of Apache RocketMQ).
_COMPRESSED = 0x1 | 0x3 << 8


def _huge_list() -> bytes:
    """Return a pull that announces 2,147,483,647 verdicts and has none."""
    buffer = TMemoryBuffer()
    out = TCompactProtocol(buffer)
    out.writeMessageBegin("pull", TMessageType.CALL, 1)
    out.writeStructBegin("pull_args")
    out.writeFieldBegin("request", TType.STRUCT, 1)
    out.writeStructBegin("PullRequest")
    out.writeFieldBegin("acks", TType.LIST, 70)
    out.writeListBegin(TType.STRUCT, 2**31 - 1)
    return bytes(buffer.getvalue())


def _nested() -> bytes:
    """Return a pull with an unknown field of structs, 100,000 deep."""
    buffer = TMemoryBuffer()
    TCompactProtocol(buffer).writeMessageBegin("pull", TMessageType.CALL, 1)
    return bytes(buffer.getvalue()) + b"\x7c" * 100_000


@attack(
    "a list that claims two thousand million entries",
    also=("endlessly nested structs (recursion bomb)",),
    answer="refused by its length or depth; only that connection is closed",
)
async def thrift_bombs(at: Installation) -> str:
    proxy = at.start_all()
    before, loop = rss_bytes(proxy), asyncio.get_running_loop()
    slowest_s = 0.0
    for payload in (_huge_list(), _nested()):
        began = loop.time()
        reader, writer = await at.open(at.thrift)
        writer.write(framed(payload))
        assert await at.is_hung_up(reader)
        writer.close()
        slowest_s = max(slowest_s, loop.time() - began)
    client = await at.connect()
    assert (await client.pull(GROUP)).messages == []
    client.abort()
    grown = (rss_bytes(proxy) - before) / _MEGABYTE
    assert grown < 16, f"memory grew by {grown:.0f} MiB"
    return f"2 connections closed, the slower in {slowest_s * 1000:.0f} ms; {grown:.1f} MiB"


@attack(
    "aliases of aliases in a settings file (billion laughs)", answer="refused with one sentence"
)
async def yaml_bomb(at: Installation) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 20)]
    (at.folder / "bomb.yaml").write_text("\n".join(lines))
    loop = asyncio.get_running_loop()
    began = loop.time()
    ended = at.children.run("proxy", "--settings", "bomb.yaml")
    assert (ended.code, len(ended.err.splitlines())) == (2, 1), ended
    return f"exit code 2 after {loop.time() - began:.1f} s: {ended.err.strip()[:80]}"


@attack(
    "endlessly nested JSON in a message's body",
    also=(
        "a compressed body of gigabytes (zip bomb)",
        "a key, a reason or a body that is HTML or a script",
    ),
    answer="the message counts as one without an order key, inflated up to a limit, shown as text",
)
async def bodies(at: Installation) -> str:
    rule = {"name": TOPIC, "order_key": "$.id"}
    proxy = at.start_all(settings={"groups": [{"name": GROUP, "topics": [rule]}]})
    script = b'{"id": "<script>alert(1)</script>"}'
    zeros = zlib.compressobj(9)
    bomb = b"".join(zeros.compress(bytes(_MEGABYTE)) for _ in range(2000)) + zeros.flush()
    client = BrokerClient(nameservers=[at.nameserver], client_id="x@1#1", request_timeout_s=30)
    await client.create_topic(Topic(TOPIC), queues=1)
    (queue,) = await client.queues(Topic(TOPIC))
    before = rss_bytes(proxy)
    nested = b'{"id":' * 100_000
    for message in (
        OutgoingMessage(Topic(TOPIC), nested),
        OutgoingMessage(Topic(TOPIC), bomb, sys_flag=_COMPRESSED),
        OutgoingMessage(Topic(TOPIC), script),
    ):
        await client.send(queue, message)
    thin = await at.connect()
    seen: list[bytes] = []
    async with asyncio.timeout(60):
        while script not in seen:
            got = await thin.pull(GROUP, linger_ms=500)
            seen += [each.value for each in got.messages]
    grown = (rss_bytes(proxy) - before) / _MEGABYTE
    assert nested in seen
    assert grown < 200, f"memory grew by {grown:.0f} MiB"
    _, shown = await at.ask(f"/api/groups/{GROUP}/topics/{TOPIC}/keys")
    assert b"content-type: application/json" in shown.lower()
    orjson.loads(shown.partition(b"\r\n\r\n")[2])
    thin.abort()
    await client.close()
    return (
        f"all messages behind them delivered; {len(bomb) / _MEGABYTE:.0f} MiB bomb: {grown:.0f} MiB"
    )
