"""Whatever is no valid request gets one sentence with the port's headers, and no traceback."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
import structlog
from pydantic import BaseModel

from proxy.admin.guard import SECURITY_HEADERS
from proxy.admin.http import AdminHttp
from proxy.admin.http_connections import MAX_LINE_BYTES, MAX_RECEIVED_BYTES, HttpConnections
from proxy.admin.metric_families import Scrape
from proxy.admin.operations import Call, post
from proxy.downstream.port.load import Load
from proxy.settings.proxy_settings import LimitSettings
from testkit.eventually import eventually
from testkit.lanes import open_guard

BODY = b'{"word":"hello"}'


class Said(BaseModel):
    """A body."""

    word: str


@asynccontextmanager
async def running() -> AsyncIterator[tuple[HttpConnections, int]]:
    async def say(call: Call) -> dict[str, Any]:
        return call.body.model_dump()  # type: ignore[union-attr]

    async def ready() -> str | None:
        return None

    connections = HttpConnections(LimitSettings(), Load(1 << 30))
    http = AdminHttp(
        scrape=Scrape(),
        not_ready=ready,
        groups=_no_groups,
        guard=open_guard(),
        operations=[post("/api/say", "Say it.", say, body=Said, answer=dict[str, Any])],
        connections=connections,
    )
    try:
        yield connections, await http.listen("127.0.0.1", 0)
    finally:
        await http.close()


def say(body: bytes = BODY, **headers: str) -> bytes:
    sent = {
        "Host": "localhost",
        "Connection": "close",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
    } | {name.replace("_", "-"): value for name, value in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
    return f"POST /api/say HTTP/1.1\r\n{head}\r\n".encode() + body


async def answer(port: int, request: bytes) -> tuple[int, dict[str, str], bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    async with asyncio.timeout(30):
        whole = await reader.read()
    writer.close()
    head, _, body = whole.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    return int(first.split(" ")[1]), headers, body


GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
REQUESTS = {
    "gzip that is plain": (400, say(Content_Encoding="gzip")),
    "deflate that is plain": (400, say(Content_Encoding="deflate")),
    "deflate that is cut short": (
        400,
        say(zlib.compress(BODY * 99)[:-6], Content_Encoding="deflate"),
    ),
    "an encoding of another library": (400, say(Content_Encoding="br")),
    "an unknown encoding": (415, say(Content_Encoding="nonsense")),
    "two encodings": (415, say(Content_Encoding="gzip, gzip")),
    "bytes of TLS": (400, b"\x16\x03\x01\x02\x00garbage\r\n\r\n"),
    "a line with three words too many": (400, b"GET / a b c HTTP/1.1\r\n\r\n"),
    "a wrong version": (400, b"GET / FTP/9\r\n\r\n"),
    "a header without a name": (400, GET + b": x\r\n\r\n"),
    "a NUL in a header": (400, GET + b"X: a\x00b\r\n\r\n"),
    "two lengths": (400, say(Content_Length="1")[:-16] + b"Content-Length: 2\r\n\r\nab"),
    "a length that is no number": (400, say(Content_Length="ten")),
    "a chunk without a length": (
        400,
        GET.replace(b"GET /healthz", b"POST /api/say")
        + b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ),
    "a header of 9 KB": (400, GET + b"X: " + b"a" * 9000 + b"\r\n\r\n"),
    "three hundred headers": (400, GET + b"X: a\r\n" * 300 + b"\r\n"),
    "a long line": (400, b"GET /" + b"a" * (MAX_LINE_BYTES + 1) + b" HTTP/1.1\r\n\r\n"),
    "an unknown expectation": (417, say(Expect="miracles")),
    "deep JSON": (400, say(b'{"word":' + b"[" * 900 + b"]" * 900 + b"}")),
    "JSON with many values": (400, say(b'{"word":[' + b"[]," * 200_000 + b"[]]}")),
    "a foreign host": (
        403,
        GET.replace(b"localhost", b"evil.example") + b"Connection: close\r\n\r\n",
    ),
    "metrics for a foreign host": (
        403,
        b"GET /metrics HTTP/1.1\r\nHost: evil.example:9090\r\nConnection: close\r\n\r\n",
    ),
}


@pytest.mark.parametrize("name", REQUESTS)
async def test_what_is_no_valid_request_gets_one_sentence(name: str) -> None:
    expected, request = REQUESTS[name]
    with structlog.testing.capture_logs() as logs:
        async with running() as (connections, port):
            status, headers, body = await answer(port, request)
            assert (await answer(port, say()))[2] == BODY
            await eventually(lambda: connections.received_bytes == 0)
    assert status == expected
    assert headers["Content-Type"] == "application/json"
    assert {each: headers.get(each) for each in SECURITY_HEADERS} == SECURITY_HEADERS
    sentence = orjson.loads(body)["error"]
    assert sentence.isprintable()
    assert 10 < len(sentence) < 300
    assert not any(word in sentence.lower() for word in ("aiohttp", "python", "install", "b'"))
    assert not [line for line in logs if "exc_info" in line or line["log_level"] == "error"]


async def test_valid_encodings_are_inflated() -> None:
    async with running() as (_, port):
        packed = zlib.compress(BODY)
        assert (await answer(port, say(packed, Content_Encoding="deflate")))[2] == BODY
        assert (await answer(port, say(Content_Encoding="identity")))[2] == BODY
        assert (await answer(port, say(Expect="100-continue")))[0] == 100


async def test_unfinished_heads_have_room_for_small_requests_only() -> None:
    """Beyond the limit, connections with a large head are closed; others are served."""
    async with running() as (connections, port):
        head = b"GET /" + b"a" * (MAX_LINE_BYTES - 100)
        number = MAX_RECEIVED_BYTES // len(head) + 20
        opened = []
        for _ in range(number):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(head)
            opened.append((reader, writer))
        await eventually(lambda: len(connections.open) < number)
        assert connections.received_bytes <= MAX_RECEIVED_BYTES + len(head)
        assert (await answer(port, say()))[2] == BODY
        for _, writer in opened:
            writer.close()
        await eventually(lambda: connections.received_bytes == 0)


@pytest.mark.parametrize("name", REQUESTS)
async def test_memory_of_malformed_requests_is_freed_without_the_collector(name: str) -> None:
    """Neither errors nor their tracebacks keep the received bytes."""
    _, request = REQUESTS[name]
    padded = request + b"\r\n" + b"a" * 300_000
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        async with running() as (connections, port):
            for number in range(5):
                if number == 2:
                    before = tracemalloc.get_traced_memory()[0]
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(padded)
                await eventually(lambda: connections.received_bytes > 0 or not connections.open)
                writer.close()
                await eventually(lambda: not connections.open)
            grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
        gc.enable()
    assert grown < 1_000_000


async def _no_groups() -> dict[str, object]:
    return {}
