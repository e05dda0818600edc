"""Malformed and refused requests are freed at once, not by the garbage collector: an error that
refers to itself would keep their bytes.
"""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import suppress
from pathlib import Path

import pytest

from proxy.settings.types import host_port
from testkit.gateway import GROUP, TOPIC, run_gateway
from testkit.thrift_client import BINARY, COMPACT, frame_of, framed, our_pull, structs
from tests.support.allocations import kept_by
from thrift_idl import consumer, producer

SIZE = 300_000
LONG = "a" * SIZE
PULL = b"\x82\x21\x01\x04pull\x1c"
SETTLE = b"\x82\x21\x01\x06settle\x1c"
BINARY_PULL = b"\x80\x01\x00\x01\x00\x00\x00\x04pull\x00\x00\x00\x01"


def varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def call(method: str, *values: object, binary: bool = False) -> bytes:
    protocol = BINARY if binary else COMPACT
    return frame_of(method, structs(method)[0](*values), protocol=protocol)


def message(**fields: object) -> producer.Message:
    return producer.Message(**{"topic": TOPIC, "body": b"x", **fields})


REQUESTS = {
    "a frame of another protocol": framed(bytes(SIZE)),
    "a frame that is too long": b"\x7f\xff\xff\xff" + bytes(SIZE),
    "an empty frame": bytes(4 + SIZE),
    "a head without end": framed(b"\x82\x21" + b"\xff" * SIZE),
    "another version": framed(b"\x82\x22" + bytes(SIZE)),
    "another version, binary": framed(b"\x80\x02" + bytes(SIZE)),
    "an answer": framed(b"\x82\x41\x01\x04pull" + bytes(SIZE)),
    "a long name": framed(b"\x82\x21\x01" + varint(SIZE) + b"a" * SIZE),
    "a name that is no text": framed(b"\x82\x21\x01\x04\xff\xff\xff\xff" + bytes(SIZE)),
    "an unknown method": framed(b"\x82\x21\x01\x04what" + bytes(SIZE)),
    "arguments without end": framed(PULL + b"\x18" + varint(SIZE + 9) + bytes(SIZE)),
    "arguments without end, binary": framed(BINARY_PULL + b"\x0c\x00\x01" + b"\x08" * SIZE),
    "an unknown type": framed(PULL + b"\x1e" + bytes(SIZE)),
    "a long list": framed(PULL + b"\x19\xf5" + varint(1 << 30) + bytes(SIZE)),
    "nested without end": framed(PULL + b"\x1c" * SIZE),
    "nested without end, binary": framed(BINARY_PULL + b"\x0c\x00\x01" * (SIZE // 3)),
    "endless fields": framed(PULL + b"\x15\x02" * (SIZE // 2) + b"\0\0"),
    "too many structs": framed(
        SETTLE + b"\x29\xfc\x03" + (b"\x39\xfc" + varint(99_999) + bytes(100_000)) * 3 + b"\0\0"
    ),
    "a text that is no text": framed(PULL + b"\x18" + varint(SIZE) + b"\xff" * SIZE + b"\0\0"),
    "a long group": call("pull", our_pull(LONG)),
    "a long group, binary": call("pull", our_pull(LONG), binary=True),
    "a long topic": call("pull", our_pull(GROUP, topic=LONG)),
    "a long token": call("pull", our_pull(GROUP, token=LONG)),
    "a long client": call("pull", our_pull(GROUP, clientId=LONG)),
    "verdicts of a long group": call("settle", consumer.AckRequest(LONG, [])),
    "ranges of a long topic": call("ranges", consumer.RangesRequest(GROUP, [LONG], 1)),
    "a message for a long topic": call("sendSync", message(topic=LONG), 100),
    "a message with a long key": call("sendSync", message(key=LONG), 100),
    "a message with a long property": call("sendSync", message(properties={"p": LONG}), 100),
    "a message with an illegal property": call("sendSync", message(properties={"\1": LONG}), 100),
    "messages of long topics": call("sendBatchSync", [message(topic=LONG), message()]),
    "a message without a body": call("sendSync", producer.Message(topic=LONG, key=LONG), 100),
    "a message that is cut": call("sendSync", message(body=bytes(SIZE)), 100)[:-1] + b"\x0f",
    "garbage behind a request": call("pull", our_pull(GROUP)) + b"\xff" * SIZE,
    "an incomplete request": call("sendSync", message(body=bytes(SIZE)), 100)[:-1],
}


@pytest.mark.parametrize("with_tokens", [False, True])
async def test_refused_requests_are_freed_without_the_collector(
    tmp_path: Path, with_tokens: bool
) -> None:
    known = {"name": "known", "sha256": hashlib.sha256(b"known").hexdigest()}
    settings = {"tokens": [known]} if with_tokens else {}
    kept = {}
    async with run_gateway(tmp_path) as gateway:
        _, at = await gateway.start_proxy(**settings)
        host, port = host_port(at.thrift)

        async def send(request: bytes) -> None:
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(request)
            with suppress(TimeoutError, ConnectionError):
                async with asyncio.timeout(0.2):
                    await reader.read(1)
            writer.close()
            del reader, writer

        for name, request in REQUESTS.items():
            kept[name] = await kept_by(lambda request=request: send(request), limit=SIZE)
    assert {name: size for name, size in kept.items() if size > SIZE} == {}
