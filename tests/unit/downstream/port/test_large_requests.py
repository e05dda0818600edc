"""Large requests: counted before they are decoded, and authenticated before that."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from thrift.protocol import fastbinary
from thrift.Thrift import TMessageType

from proxy.core.group.token_bucket import TokenBucket
from proxy.downstream.port.credentials import TokenReader
from proxy.downstream.port.elements.budget import MAX_STRUCTS, Budget, TooManyElements
from proxy.downstream.port.frames import Call, FrameError
from proxy.downstream.port.large_requests import SMALL_BYTES, decode_large, has_time
from proxy.errors import NotAllowed
from testkit.thrift_client import BINARY, COMPACT, Protocol, payload_of, structs
from thrift_idl import consumer, producer

CONTEXT = consumer.Context("billing", "orders", "broker-a_0#1")
protocols = pytest.mark.parametrize("protocol", [COMPACT, BINARY], ids=["compact", "binary"])


def call_of(method: str, *values: Any, protocol: Protocol = COMPACT) -> Call:
    """Return a call, encoded by the library's C codec: batches are large."""
    arguments = structs(method)[0](*values)
    encode = fastbinary.encode_compact if protocol is COMPACT else fastbinary.encode_binary
    head = payload_of(method, structs(method)[0](), protocol=protocol)[:-1]
    return Call(head + encode(arguments, [arguments.__class__, arguments.thrift_spec]))


def raw_call(method: str, arguments: bytes) -> Call:
    """A call in the compact protocol with these bytes as arguments."""
    head = bytes((0x82, TMessageType.CALL << 5 | 1, 1, len(method))) + method.encode()
    return Call(head + arguments)


def varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def compact_list(kind: int, count: int, entries: bytes) -> bytes:
    return bytes([0xF0 | kind]) + varint(count) + entries


def empty_nacks() -> bytes:
    """Return 4.8 million of them, in lists that are each of an allowed size."""
    batch = b"\x39" + compact_list(12, 100_000, bytes(100_000)) + b"\0"
    return b"\x1c\x29" + compact_list(12, 48, batch * 48) + b"\0\0"


LARGE_LISTS = b"\x39" + compact_list(6, 100_000, b"\x02" * 100_000)
BOMBS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "empty structs": ("settle", empty_nacks),
    "numbers of many lists": (
        "settle",
        lambda: b"\x1c\x29" + compact_list(12, 48, (LARGE_LISTS + b"\0") * 48) + b"\0\0",
    ),
    "one field repeated": ("settle", lambda: b"\x1c" + b"\x08\x90\x01\x00" * 1_200_000 + b"\0\0"),
    "requests repeated": ("settle", lambda: b"\x0c\x02\x00" * 1_600_000 + b"\0"),
    "empty messages": (
        "sendBatchSync",
        lambda: (b"\x09\x02" + compact_list(12, 100_000, bytes(100_000))) * 48 + b"\0",
    ),
    "entries of maps with one key": (
        "fetch",
        lambda: b"\x1c" + (b"\x0b\x08" + varint(100_000) + b"\x88" + bytes(200_000)) * 24 + b"\0\0",
    ),
    "texts of an unknown set": (
        "pull",
        lambda: (
            b"\x1c" + (b"\x0a\xc8\x01" + compact_list(8, 100_000, bytes(100_000))) * 48 + b"\0\0"
        ),
    ),
    "unknown structs in structs": (
        "pull",
        lambda: b"\x1c\x0c\xc8\x01" + (b"\x1c" * 60 + bytes(60)) * 39_000 + b"\0\0\0",
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_before_objects_are_created(name: str) -> None:
    method, arguments = BOMBS[name]
    call = raw_call(method, arguments())
    tracemalloc.start()
    with pytest.raises((TooManyElements, FrameError)):
        decode_large(call, structs(method)[0], authenticate=None, time=None)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 200_000


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_without_a_token_is_refused_without_decoding_it(name: str) -> None:
    method, arguments = BOMBS[name]
    call = raw_call(method, arguments())
    reader = TokenReader(structs(method)[0])
    tracemalloc.start()
    with suppress(FrameError, TooManyElements):
        assert reader.tokens(call) == {None}
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # The credentials of 100,000 requests, where a method has a list of them.
    assert peak_bytes < (20_000_000 if method == "sendBatchSync" else 200_000)


@protocols
def test_the_largest_batches_that_are_documented_pass(protocol: Protocol) -> None:
    nacks = [consumer.Nack(number, 5, False, "because") for number in range(MAX_STRUCTS - 1)]
    references = [consumer.LeaseRef(CONTEXT, number) for number in range(MAX_STRUCTS)]
    properties = {f"name-{number}": "value" for number in range(5)}
    messages = [producer.Message("orders", body=b"b", properties=properties)] * 10_000
    places = {"orders": {f"broker-{number}": number for number in range(MAX_STRUCTS)}}
    for method, values in {
        "settle": [consumer.AckRequest("billing", [consumer.AckBatch(CONTEXT, nacked=nacks)])],
        "extend": [consumer.ExtendRequest("billing", references, 100)],
        "sendBatchSync": [messages],
        "fetch": [consumer.FetchRequest("r", "billing", "", places)],
    }.items():
        arguments = structs(method)[0]
        call = call_of(method, *values, protocol=protocol)
        assert call.frame_bytes > SMALL_BYTES
        decoded = decode_large(call, arguments, authenticate=None, time=None)
        assert decoded == arguments(*values)


@protocols
def test_tokens_are_read_from_any_call(protocol: Protocol) -> None:
    acks = [consumer.AckBatch(CONTEXT, acked=list(range(50_000)))]
    message = producer.Message("orders", body=b"b" * 100, token="t")
    for method, values, tokens in [
        ("pull", [consumer.PullRequest("billing", acks=acks, token="t")], {"t"}),
        ("settle", [consumer.AckRequest("billing", acks)], {None}),
        ("submit", [consumer.ConsumeResult(CONTEXT, list(range(50_000)), token="t")], {"t"}),
        ("sendSync", [message, 100], {"t"}),
        ("sendBatchSync", [[message] * 100], {"t"}),
        ("sendBatchSync", [[message] * 30_000], {"t"}),
        ("sendBatchSync", [[message, producer.Message("orders")]], {"t", None}),
        ("sendBatchSync", [[]], {None}),
        ("fetch", [None], {None}),
    ]:
        reader = TokenReader(structs(method)[0])
        assert reader.tokens(call_of(method, *values, protocol=protocol)) == tokens


def test_a_call_with_the_wrong_token_is_not_decoded() -> None:
    def refuse(_call: Call) -> None:
        raise NotAllowed("no")

    def never() -> Any:
        raise AssertionError

    call = raw_call("settle", empty_nacks())
    with pytest.raises(NotAllowed):
        decode_large(call, never, authenticate=refuse, time=None)


def test_a_call_that_is_cut_short_is_an_error() -> None:
    whole = payload_of(
        "extend",
        structs("extend")[0](consumer.ExtendRequest("g", [consumer.LeaseRef(CONTEXT, 300)], 5)),
    )
    for end in range(14, len(whole)):
        with pytest.raises(FrameError):
            Call(whole[:end]).count(Budget())


def test_an_address_pays_for_its_large_requests() -> None:
    bucket = TokenBucket(rate=1.0, capacity=1.0, tokens=1.0)
    assert has_time(bucket)
    call = call_of("pull", consumer.PullRequest("billing", clientId="c"))
    decode_large(call, structs("pull")[0], authenticate=None, time=bucket)
    bucket.take(1)
    assert not has_time(bucket)
    assert has_time(None)
