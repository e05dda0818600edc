"""Malformed requests and answers of the remoting protocol are freed at once, not by the garbage
collector: an error that refers to itself would keep their bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from broker_core.client import BrokerClient
from broker_core.client.connection_pool import ConnectionPool
from broker_core.errors import RemotingError
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.codes import RequestCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.message import OutgoingMessage
from broker_core.remoting_server import RemotingServer
from testkit.eventually import eventually
from tests.integration.broker.client.scripted_broker import ScriptedBroker
from tests.support.allocations import kept_by
from tests.support.bad_requests import AT_BROKER, AT_NAMESERVER, Good
from tests.support.raw_requests import asking, json_frame, raw_connection, read_frame

SIZE = 300_000
PAD = b"a" * SIZE


def frame(header: bytes, *, kind: int = 0, body: bytes = PAD) -> bytes:
    word = (kind << 24 | len(header)).to_bytes(4)
    return (4 + len(header) + len(body)).to_bytes(4) + word + header + body


NO_FRAMES = {
    "a long frame": b"\x7f\xff\xff\xff" + PAD,
    "a short frame": b"\0\0\0\1" + PAD,
    "TLS": b"\x16\x03\x01\x02\x00\x01" + PAD,
    "HTTP": b"GET / HTTP/1.1\r\nX: " + PAD,
    "a header longer than its frame": (SIZE).to_bytes(4) + (SIZE + 9).to_bytes(4) + PAD,
    "a long header": (15 << 20).to_bytes(4) + (14 << 20).to_bytes(4) + PAD,
    "no JSON": frame(b"{" + PAD),
    "JSON that is no object": frame(b'["' + PAD + b'"]'),
    "JSON with many values": frame(b'{"code":34,"x":[' + b"1," * (SIZE // 2) + b"1]}"),
    "nested JSON": frame(b'{"extFields":' + b"[" * SIZE),
    "a code that is no number": json_frame({"code": "x" * SIZE}),
    "ext fields that are a list": json_frame({"code": 34, "extFields": ["x" * SIZE]}),
    "an unknown kind": frame(b"{}", kind=5),
    "binary, cut": frame(bytes(21) + PAD, kind=1),
    "binary, lengths that do not add up": frame(b"\xff" * SIZE, kind=1),
    "binary, texts that are no texts": frame(
        bytes(17) + (6 + SIZE).to_bytes(4) + b"\0\0" + SIZE.to_bytes(4) + b"\xff" * SIZE, kind=1
    ),
    "an unknown code": frame(b'{"code":99999,"opaque":1}'),
    "an unfinished frame": frame(b'{"code":34,"opaque":1}')[:-1],
}


async def send_to(address: str, frames: bytes) -> None:
    async with raw_connection(address) as (reader, writer):
        writer.write(frames)
        with suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(0.2):
                await reader.read(1)


@pytest.mark.parametrize("port", ["broker", "nameserver"])
async def test_invalid_frames_are_freed_without_the_collector(tmp_path: Path, port: str) -> None:
    kept = {}
    async with asking(tmp_path) as asker:
        address = asker.cluster.broker_address if port == "broker" else asker.cluster.nameserver
        for name, frames in NO_FRAMES.items():
            kept[name] = await kept_by(lambda frames=frames: send_to(address, frames), limit=SIZE)
            asker.logs.clear()
    assert {name: size for name, size in kept.items() if size > SIZE} == {}


def refused_requests(code: int, good: Good) -> list[RemotingCommand]:
    ext, body = good.ext(), good.content()
    return [
        RemotingCommand(code, ext=ext, body=b"{" + PAD),
        RemotingCommand(code, ext=ext, body=b'[{"a":"' + PAD + b'"}]'),
        RemotingCommand(code, ext=ext, body=b'{"consumerDataSet":[["' + PAD + b'"]]}'),
        RemotingCommand(code, ext=ext, body=b"\xff" * SIZE),
        RemotingCommand(code, ext={"long": "a" * SIZE}, body=body),
        RemotingCommand(code, ext=ext | dict.fromkeys(list(ext)[:1], "a" * SIZE), body=body),
        RemotingCommand(code, ext=ext | dict.fromkeys(list(ext)[-1:], "a" * SIZE), body=body),
    ]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("port", ["broker", "nameserver"])
async def test_refused_requests_are_freed_without_the_collector(tmp_path: Path, port: str) -> None:
    kept = {}
    async with asking(tmp_path) as asker:
        at_broker = port == "broker"
        address = asker.cluster.broker_address if at_broker else asker.cluster.nameserver
        for code, good in (AT_BROKER if at_broker else AT_NAMESERVER).items():
            frames = [each.encode() for each in refused_requests(code, good)]

            async def send(frames: list[bytes] = frames) -> None:
                async with raw_connection(address) as (reader, writer):
                    for each in frames:
                        writer.write(each)
                        with suppress(ConnectionError, EOFError):
                            await read_frame(reader)

            kept[code] = await kept_by(send, limit=SIZE, times=2)
            asker.logs.clear()
    assert {code: size for code, size in kept.items() if size > SIZE} == {}


@pytest.mark.parametrize("name", NO_FRAMES)
async def test_invalid_answers_are_freed_without_the_collector(name: str) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            await reader.read(1)
            writer.write(NO_FRAMES[name])
            await asyncio.sleep(0.3)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    pool = ConnectionPool()

    async def ask() -> None:
        with suppress(RemotingError):
            await pool.request(f"{host}:{port}", RemotingCommand(34), timeout_s=0.2)
        await asyncio.sleep(0.5)

    kept = await kept_by(ask, limit=SIZE)
    await pool.close()
    server.close()
    assert kept <= SIZE


BODIES = {
    "no JSON": b"{" + PAD,
    "other JSON": b'{"consumerIdList":5,"lockOKMQSet":[["' + PAD + b'"]],"queueDatas":{}}',
    "no text": b"\xff" * SIZE,
    "zeros": bytes(SIZE),
    "a message that does not add up": (SIZE).to_bytes(4) + b"\xda\xa3\x20\xa7" + PAD,
}
QUEUE = QueueName(Topic("orders"), "broker-a", 0)

Ask = Callable[[BrokerClient], Awaitable[object]]
QUESTIONS: dict[str, Ask] = {
    "pull": lambda client: client.pull(
        QUEUE, group=Group("g"), offset=0, max_messages=1, suspend_ms=0
    ),
    "lock": lambda client: client.lock(Group("g"), [QUEUE]),
    "unlock": lambda client: client.unlock(Group("g"), [QUEUE]),
    "consumer_ids": lambda client: client.consumer_ids(Group("g"), Topic("orders")),
    "producer_ids": lambda client: client.producer_ids(Group("g"), Topic("orders")),
    "subscribed": lambda client: client.subscribed(Group("g"), "m", Topic("orders")),
    "max_offset": lambda client: client.max_offset(QUEUE),
    "committed_offset": lambda client: client.committed_offset(Group("g"), QUEUE),
    "send": lambda client: client.send(QUEUE, OutgoingMessage(Topic("orders"), PAD)),
    "log_span": lambda client: client.log_span("broker-a"),
    "locks_since_ms": lambda client: client.locks_since_ms("broker-a"),
}


@pytest.mark.parametrize("question", QUESTIONS)
async def test_senseless_answers_of_a_broker_are_freed_without_the_collector(
    tmp_path: Path, question: str
) -> None:
    kept = {}
    async with asking(tmp_path) as asker:
        broker = ScriptedBroker("broker-a", asker.cluster.nameserver)
        await broker.start()
        await broker.add_topic("orders", queues=1)
        client = BrokerClient(
            nameservers=[asker.cluster.nameserver], client_id="x@1#1", request_timeout_s=1
        )
        for name, body in BODIES.items():
            for code in RequestCode:
                broker.answer(code, lambda asked, body=body: asked.response(body=body))

            async def ask() -> None:
                with suppress(RemotingError):
                    await QUESTIONS[question](client)
                broker.asked.clear()

            kept[name] = await kept_by(ask, limit=SIZE)
        await client.close()
        await broker.close()
    assert {name: size for name, size in kept.items() if size > SIZE} == {}


@pytest.mark.parametrize("name", BODIES)
async def test_senseless_routes_are_freed_without_the_collector(name: str) -> None:
    server = RemotingServer(
        {code: lambda asked, _: asked.response(body=BODIES[name]) for code in RequestCode}
    )
    address = await server.listen("127.0.0.1", 0)
    client = BrokerClient(nameservers=[address], client_id="x@1#1", request_timeout_s=1)

    async def ask() -> None:
        with suppress(RemotingError):
            await client.queues(Topic("orders"))

    kept = await kept_by(ask, limit=SIZE)
    await client.close()
    await server.close()
    await eventually(lambda: not server.channels)
    assert kept <= SIZE
