"""Requests that would cost far more than their bytes, before and after authentication."""

from __future__ import annotations

import asyncio
import socket
import ssl

import orjson

from broker_core.remoting.command import RemotingCommand
from broker_core.tasks import spawn
from proxy.admin.http_connections import MAX_LINE_BYTES
from testkit.certificates import make_certificates
from testkit.processes import Child
from testkit.thrift_client import framed
from tests.attack.attacks import attack
from tests.attack.installation import GROUP, Installation, rss_bytes, token_settings

_MEGABYTE = 1 << 20
#: Longest time for which another client may wait: a busy machine alone takes a part of it.
_WAIT_S = 0.5
_HALF_OPEN, _LIMIT = 300, 100
_HEADS = 400


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def _list(kind: int, entries: int, content: bytes) -> bytes:
    """Return a list in the compact protocol."""
    return bytes([0xF0 | kind]) + _varint(entries) + content


def _settle(batch: bytes, batches: int) -> bytes:
    """Return a call with a list of equal batches of verdicts."""
    return b"\x82\x21\x01\x06settle\x1c\x29" + _list(12, batches, batch * batches) + b"\0\0"


_BOMBS = {
    "empty nacks": _settle(b"\x39" + _list(12, 100_000, bytes(100_000)) + b"\0", 48),
    "empty nacks in short lists": _settle(b"\x39" + _list(12, 40_000, bytes(40_000)) + b"\0", 120),
    "numbers": _settle(b"\x29" + _list(6, 100_000, b"\x02" * 100_000) + b"\0", 48),
    "repeated fields": b"\x82\x21\x01\x06settle\x1c" + b"\x08\x90\x01\x00" * 1_200_000 + b"\0\0",
    "map entries": b"\x82\x21\x01\x05fetch\x1c"
    + (b"\x0b\x08" + _varint(100_000) + b"\x88" + bytes(200_000)) * 24
    + b"\0\0",
}


async def _longest_wait_s(at: Installation, stop: asyncio.Event) -> float:
    """Return the longest time for an answer of the proxy's probe until *stop*."""
    loop, longest_s = asyncio.get_running_loop(), 0.0
    while not stop.is_set():
        began_s = loop.time()
        await at.ask("/healthz")
        longest_s = max(longest_s, loop.time() - began_s)
    return longest_s


async def _bombed(at: Installation, proxy: Child) -> str:
    """Send all bombs; return what they cost."""
    before = rss_bytes(proxy)
    stop = asyncio.Event()
    watch = spawn(_longest_wait_s(at, stop), name="wait")
    for payload in _BOMBS.values():
        reader, writer = await at.open(at.thrift)
        writer.write(framed(payload))
        async with asyncio.timeout(30):
            await reader.read(1)  # a refusal, or the end
        writer.close()
    stop.set()
    waited_s = await watch
    grown = rss_bytes(proxy) - before
    assert grown < 2 * max(map(len, _BOMBS.values())) + 16 * _MEGABYTE, f"memory grew by {grown}"
    assert waited_s < _WAIT_S, f"another client waited {waited_s:.2f} s"
    assert not at.has_traceback(), at.errors()
    return f"{len(_BOMBS)} refused; others waited {waited_s * 1000:.0f} ms, {grown / 1e6:.1f} MB"


@attack(
    "a request of megabytes that would become hundreds of megabytes of objects",
    answer="refused by its number of elements, before any object is created",
)
async def elements(at: Installation) -> str:
    proxy = at.start_all(settings={"limits": {"max_decoding_share_per_address": None}})
    return await _bombed(at, proxy)


@attack(
    "the same without a token, or from an address that repeats it",
    answer="only the token is read; an address that takes too much time gets 503",
)
async def unknown_clients(at: Installation) -> str:
    proxy = at.start_all(settings=token_settings("app"))
    cost = await _bombed(at, proxy)
    for _ in range(40):
        reader, writer = await at.open(at.thrift)
        writer.write(framed(_BOMBS["empty nacks in short lists"]))
        async with asyncio.timeout(30):
            await reader.read(1)
        writer.close()
    client = await at.connect()
    assert (await client.pull(GROUP, token="app")).messages == []
    client.abort()
    return cost


@attack(
    "a header or a JSON body with millions of values, on the ports of broker and nameserver",
    answer="refused before it is parsed; a large header before it is received",
)
async def headers_and_bodies(at: Installation) -> str:
    at.start_all()
    before = [rss_bytes(child) for child in at.running]
    loop, slowest_s = asyncio.get_running_loop(), 0.0
    values = b'{"code":34,"extFields":{"a":[' + b"[]," * 330_000 + b"[]]}}"
    small = b'{"code":34,"x":[' + b"1," * 400_000 + b"1]}"
    large = (15 * _MEGABYTE).to_bytes(4, "big") + (14 * _MEGABYTE).to_bytes(4, "big")
    fields = (b"\0\1a" + bytes(4)) * 140_000
    binary = bytes(17) + len(fields).to_bytes(4, "big") + fields
    frames = [large]
    for kind, header in ((0, values), (0, small), (1, binary)):
        word = (kind << 24 | len(header)).to_bytes(4, "big")
        frames.append((4 + len(header)).to_bytes(4, "big") + word + header)
    for port in (at.broker, at.nameserver):
        for frame in frames:
            began_s = loop.time()
            reader, writer = await at.open(port)
            writer.write(frame)
            assert await at.is_hung_up(reader)
            writer.close()
            slowest_s = max(slowest_s, loop.time() - began_s)
    heartbeat = RemotingCommand(34, body=b"[" + b"[]," * 1_300_000 + b"[]]")
    reader, writer = await at.open(at.broker)
    writer.write(heartbeat.encode())
    answer = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
    assert b"at most 250000 are allowed" in answer
    writer.close()
    grown = max(rss_bytes(child) - was for child, was in zip(at.running, before, strict=True))
    assert grown < 32 * _MEGABYTE, f"memory grew by {grown} bytes"
    assert slowest_s < 2 * _WAIT_S
    return f"9 refused, the slowest in {slowest_s * 1000:.0f} ms; {grown / 1e6:.1f} MB at most"


@attack(
    "connections of one address that never finish their TLS handshake",
    answer="they count from the accept on, at every port; those over the limit are closed",
)
async def half_open(at: Installation) -> str:
    files = make_certificates(at.folder)
    tls = {"certificate": str(files.server), "key": str(files.server_key)}
    limit = {"max_connections_per_address": _LIMIT}
    at.start_nameserver()
    at.start_broker(tls=tls, **limit)
    trust = {"ca": str(files.ca), "verify": "ca"}
    at.start_proxy(listen={"tls": tls}, limits=limit, broker_tls=trust)
    kept = []
    for port in (at.thrift, at.broker):
        host, _, number = port.rpartition(":")
        opened = [socket.create_connection((host, int(number))) for _ in range(_HALF_OPEN)]
        await asyncio.sleep(1)
        kept.append(sum(_is_open(each) for each in opened))
        for each in opened:
            each.close()
    assert max(kept) <= _LIMIT, kept
    client = await at.connect(ssl.create_default_context(cafile=files.ca))
    assert (await client.pull(GROUP)).messages == []
    client.abort()
    return f"{kept[0]} and {kept[1]} of {_HALF_OPEN} kept, with a limit of {_LIMIT}"


def _is_open(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


@attack(
    "hundreds of unfinished HTTP heads of a megabyte, and of a line that is just allowed",
    answer="the port keeps 32 MiB of requests; connections with large ones are closed beyond it",
)
async def heads(at: Installation) -> str:
    proxy = at.start_all()
    before = rss_bytes(proxy)
    writers = []
    for size in (_MEGABYTE, MAX_LINE_BYTES - 100) * (_HEADS // 2):
        _, writer = await at.open(at.http)
        writer.write(b"GET /" + b"a" * size)
        writers.append(writer)
    await asyncio.sleep(2)
    assert (await at.ask("/healthz"))[0] == 200
    grown = rss_bytes(proxy) - before
    for writer in writers:
        writer.close()
    assert grown < 96 * _MEGABYTE, f"memory grew by {grown} bytes"
    return f"{grown / 1e6:.0f} MB for {_HEADS} heads"


@attack(
    "a request that is not HTTP, or whose body is not in the encoding that it names",
    answer="400 or 415 with one sentence and the port's headers, no traceback, no versions",
)
async def not_http(at: Installation) -> str:
    at.start_all()
    body = orjson.dumps({"reason": "because"})
    strange = (b"GET / FTP/9\r\n\r\n", b"\x16\x03\x01\r\n\r\n", b"\0\r\n\r\n")
    answers = [await at.raw(each) for each in strange]
    for encoding in ("gzip", "deflate", "br", "nonsense"):
        answers.append(await at.ask("/api/owners/drain", body, Content_Encoding=encoding))
    for status, answer in answers:
        assert status in (400, 415), answer
        assert b"Server: orderlane\r\n" in answer
        assert b"X-Frame-Options: DENY" in answer
        assert orjson.loads(answer.partition(b"\r\n\r\n")[2]).keys() == {"error"}
        assert b"aiohttp" not in answer.lower()
    status, _ = await at.ask("/metrics", Host="evil.example")
    assert status == 403
    assert not at.has_traceback(), at.errors()
    return f"{len(answers)} of {len(answers)} in one sentence"
