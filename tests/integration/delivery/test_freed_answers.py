"""Answers of receivers to a push are freed at once, not by the garbage collector."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from proxy.delivery.deliverer import TargetDown
from proxy.delivery.sinks.push import HttpPush
from proxy.settings.sinks.push import PushSettings, answer_rules_of, push_rules_of, receivers_of
from tests.integration.delivery.test_http_push import DELIVERY
from tests.support.allocations import kept_by
from tests.support.receiver_access import access

SIZE = 300_000
PAD = b"a" * SIZE
OK = b"HTTP/1.1 200 OK\r\n"

ANSWERS = {
    "no HTTP": b"\0" * SIZE,
    "another protocol": b"FTP/9 200 OK\r\n\r\n" + PAD,
    "a long status": b"HTTP/1.1 200 " + PAD,
    "a long header": OK + b"X: " + PAD,
    "invalid headers": OK + (b"\xff:\0\r\n" * (SIZE // 5)),
    "two lengths": OK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n" + PAD,
    "a body that is cut": OK + b"Content-Length: 999999\r\n\r\n" + PAD,
    "invalid chunks": OK + b"Transfer-Encoding: chunked\r\n\r\n" + PAD,
    "a body in no encoding": OK + b"Content-Encoding: gzip\r\nContent-Length: 300000\r\n\r\n" + PAD,
    "a refusal with a long reason": b"HTTP/1.1 500 No\r\nContent-Length: 300000\r\n\r\n" + PAD,
    "a redirect": b"HTTP/1.1 302 Go\r\nLocation: http://" + PAD[:8000] + b"\r\n\r\n" + PAD,
    "nothing": b"",
}


async def kept_after(answer: bytes | None) -> int:
    """Return the bytes kept by pushes that get *answer*; None: to a port where nothing listens."""

    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer or b"")
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(say, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    if answer is None:
        server.close()
    settings = PushSettings(urls=[f"http://127.0.0.1:{port}/orders"], timeout_s=5)
    push = HttpPush(
        push_rules_of(settings, access()),
        answer_rules_of(settings),
        addresses=receivers_of(settings, access()),
        timeout_s=settings.timeout_s,
        concurrency=settings.concurrency,
    )

    async def deliver() -> None:
        with suppress(TargetDown):
            await push.deliver(DELIVERY)

    kept = await kept_by(deliver, limit=SIZE)
    await push.close()
    server.close()
    return kept


@pytest.mark.sockets
@pytest.mark.parametrize("name", ANSWERS)
async def test_senseless_answers_are_freed_without_the_collector(name: str) -> None:
    assert await kept_after(ANSWERS[name]) <= SIZE
