"""The codec of messages. Golden vectors were captured from a RocketMQ 4.2.1 broker and its Java
client.
"""

from __future__ import annotations

import struct
import zlib

import pytest

from broker_core.errors import LocalProtocolError, RemoteProtocolError
from broker_core.names import Topic
from broker_core.remoting.message import (
    MAX_PROPERTIES_BYTES,
    OutgoingMessage,
    StoredMessage,
    decode_message,
    decode_messages,
    decode_properties,
    encode_host,
    encode_properties,
    offset_message_id,
)
from broker_core.remoting.message_batch import decode_batch, encode_batch
from broker_core.remoting.record_encoding import BatchEntry, Envelope, encode_stored

GOLDEN = bytes.fromhex(
    "000000bcdaa320a73610a686000000010000000000000000000000000000000036cbe08000000000000001a1fd2fc40f"
    "7f0000010000d5d2000001a1fd2fc41f7f000001000051af0000000000000000000000000000000568656c6c6f094361"
    "70546f7069633300534b455953016b657941206b65794202753101763102554e49515f4b455901433030303032303332"
    "3036323546464432423237363843374443304530303030025741495401747275650254414753017461674102"
)
UNIQUE = "C000020320625FFD2B2768C7DC0E0000"
TOPIC = Topic("orders")
LOOPBACK = encode_host("127.0.0.1", 20911)


def stored(
    entry: BatchEntry, *, envelope: Envelope | None = None, queue_offset: int = 7
) -> bytearray:
    envelope = envelope or Envelope(TOPIC, 3, LOOPBACK, LOOPBACK, born_ms=11)
    return encode_stored(envelope, entry, queue_offset=queue_offset, store_ms=22)


def only(raw: bytes) -> StoredMessage:
    (message,) = decode_messages(raw, check_crc=True)
    return message


def test_golden_message_decodes_to_what_the_java_client_sent() -> None:
    message = only(GOLDEN)
    assert (message.topic, message.queue_id, message.body) == ("CapTopic3", 1, b"hello")
    assert (message.key, message.tag, message.message_id) == ("keyA keyB", "tagA", UNIQUE)
    assert message.properties["u1"] == "v1"
    assert message.properties["WAIT"] == "true"
    assert message.offset_message_id == "7F000001000051AF0000000036CBE080"
    assert message.physical_offset == 919330944
    assert (message.size, message.queue_offset, message.reconsume_times) == (188, 0, 0)


def test_golden_message_is_encoded_to_the_same_bytes() -> None:
    golden = only(GOLDEN)
    envelope = Envelope(
        golden.topic, golden.queue_id, golden.born_host, golden.store_host, born_ms=golden.born_ms
    )
    entry = BatchEntry(0, b"hello", encode_properties(golden.properties))
    encoded = encode_stored(envelope, entry, queue_offset=0, store_ms=golden.store_ms)
    struct.pack_into(">q", encoded, 28, golden.physical_offset)
    assert bytes(encoded) == GOLDEN


def test_stored_properties_end_with_their_separator() -> None:
    assert only(stored(BatchEntry(0, b"", b"a\x01b"))).raw_properties == b"a\x01b\x02"


def test_golden_batch_entry() -> None:
    properties = encode_properties(
        {"KEYS": "k0", "UNIQ_KEY": UNIQUE, "WAIT": "true", "TAGS": "tagA"}
    )
    message = OutgoingMessage(
        TOPIC, b"b0", properties={"KEYS": "k0", "UNIQ_KEY": UNIQUE, "WAIT": "true", "TAGS": "tagA"}
    )
    encoded = encode_batch([message])
    assert len(properties) == 0x46
    assert encoded == bytes.fromhex("0000005e00000000000000000000000000000002") + b"b0" + (
        bytes.fromhex("0046") + properties
    )


def test_several_messages_in_one_body() -> None:
    body = GOLDEN + stored(BatchEntry(5, b"", b"")) + GOLDEN
    first, second, third = decode_messages(memoryview(body))
    assert first.body == third.body == b"hello"
    assert (second.flag, second.queue_offset, second.born_ms, second.store_ms) == (5, 7, 11, 22)
    assert second.key is second.tag is None


def test_message_without_a_producers_id_is_named_by_its_place() -> None:
    message = only(stored(BatchEntry(0, b"x", b"")))
    assert message.message_id == offset_message_id(LOOPBACK, 0) == "7F000001000051AF" + "0" * 16


@pytest.mark.parametrize("born", ["127.0.0.1", "2001:db8::1"])
@pytest.mark.parametrize("store", ["10.0.0.1", "::1"])
def test_hosts_of_either_width(born: str, store: str) -> None:
    envelope = Envelope(TOPIC, 0, encode_host(born, 1), encode_host(store, 2))
    message = only(stored(BatchEntry(0, b"body", b"k\x01v\x02"), envelope=envelope))
    assert (message.born_host, message.store_host) == (envelope.born_host, envelope.store_host)
    assert (message.body, message.properties) == (b"body", {"k": "v"})
    assert len(message.message_id) == (56 if ":" in store else 32)


def test_topic_length_of_two_bytes() -> None:
    raw = stored(BatchEntry(0, b"body", b"k\x01v\x02"))
    topic_at = 88 + 4
    raw[topic_at : topic_at + 1] = struct.pack(">h", len(TOPIC))
    struct.pack_into(">iI", raw, 0, len(raw), 0xDAA320AB)
    message = only(raw)
    assert (message.topic, message.properties) == (TOPIC, {"k": "v"})


@pytest.mark.parametrize("sys_flag", [0x001, 0x301])
def test_zlib_body_is_inflated(sys_flag: int) -> None:
    envelope = Envelope(TOPIC, 0, LOOPBACK, LOOPBACK, sys_flag=sys_flag)
    message = only(stored(BatchEntry(0, zlib.compress(b"x" * 6000), b""), envelope=envelope))
    assert (message.body, message.body_is_compressed) == (b"x" * 6000, False)


@pytest.mark.parametrize(
    ("sys_flag", "body"), [(0x001, b"no zlib"), (0x001, zlib.compress(b"xy")[:-1]), (0x101, b"LZ4")]
)
def test_body_that_cannot_be_inflated_is_given_as_stored(sys_flag: int, body: bytes) -> None:
    envelope = Envelope(TOPIC, 0, LOOPBACK, LOOPBACK, sys_flag=sys_flag)
    broken, good = decode_messages(
        stored(BatchEntry(0, body, b""), envelope=envelope) + stored(BatchEntry(0, b"good", b""))
    )
    assert (broken.body, broken.body_is_compressed) == (body, True)
    assert (good.body, good.body_is_compressed) == (b"good", False)


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"\0\0\0\x05abc", "cut short"),
        (b"\0" * 120, "magic is 0x00000000"),
        (GOLDEN[:-1], "187 bytes held"),
        (GOLDEN[:88], "88 bytes held"),
        (GOLDEN[:84] + b"\xff\xff\xff\xff" + GOLDEN[88:], "body of -1"),
        (GOLDEN[:84] + b"\0\0\0\x06" + GOLDEN[88:], "byte 0"),
        (GOLDEN[:88] + b"J" + GOLDEN[89:], "checksum"),
    ],
)
def test_bad_bytes_name_the_place_and_the_fault(raw: bytes, says: str) -> None:
    with pytest.raises(RemoteProtocolError, match="stored message at byte 0") as caught:
        decode_messages(raw, check_crc=True)
    assert says in str(caught.value)
    with pytest.raises(RemoteProtocolError, match="stored message at byte 188"):
        decode_messages(GOLDEN + raw, check_crc=True)


def test_decoding_one_message_does_not_look_behind_it() -> None:
    assert decode_message(b"skip" + GOLDEN + b"rubbish", 4).size == 188


def test_properties_with_and_without_the_last_separator() -> None:
    assert decode_properties(b"a\x01b\x02c\x01d\x02") == {"a": "b", "c": "d"}
    assert decode_properties(b"a\x01b\x02c\x01d") == {"a": "b", "c": "d"}
    assert decode_properties(b"\x01b\x02c\x01\x02d\x02") == {}
    assert decode_properties(b"k\x01\xff\x02") == {"k": "\\xff"}


def test_properties_that_no_reader_could_split_are_refused() -> None:
    for properties in ({"a\x01": "b"}, {"a": "b\x02"}):
        with pytest.raises(LocalProtocolError, match="0x01 and 0x02"):
            encode_properties(properties)
    with pytest.raises(LocalProtocolError, match=str(MAX_PROPERTIES_BYTES)):
        encode_properties({"a": "b" * MAX_PROPERTIES_BYTES})
    with pytest.raises(LocalProtocolError, match="too long to store"):
        stored(BatchEntry(0, b"", b"x" * 40_000))


def test_properties_that_a_recovery_would_take_for_a_lost_sector_are_refused() -> None:
    zeros = b"k\x01" + bytes(510)
    two = zeros + b"\x02" + zeros + b"\x02"
    assert decode_message(stored(BatchEntry(0, b"", two))).raw_properties == two
    with pytest.raises(LocalProtocolError, match="more than 510 zero bytes in a row"):
        stored(BatchEntry(0, b"", zeros + b"\0"))


def test_batch_round_trip_keeps_bodies_flags_and_properties() -> None:
    batch = [
        OutgoingMessage(TOPIC, b"one", key="k1", tag="t1", flag=9),
        OutgoingMessage(TOPIC, b"", properties={"KEYS": "overruled", "é": "ü"}, key="k2"),
    ]
    first, second = decode_batch(encode_batch(batch))
    assert (first.flag, first.body) == (9, b"one")
    assert decode_properties(first.properties) == {"KEYS": "k1", "TAGS": "t1"}
    assert decode_properties(second.properties) == {"KEYS": "k2", "é": "ü"}
    assert decode_batch(b"") == []


def test_bad_batch_bodies_are_refused_at_the_right_byte() -> None:
    good = encode_batch([OutgoingMessage(TOPIC, b"one")])
    for cut in range(1, len(good)):
        with pytest.raises(RemoteProtocolError, match=f"batch entry at byte {len(good)}"):
            decode_batch(good + good[:cut])
    with pytest.raises(RemoteProtocolError, match="do not fit together"):
        decode_batch(good[:16] + b"\0\0\0\x02" + good[20:])


@pytest.mark.parametrize("properties", [{"KEYS": "a\ud800"}, {"\udfff": "a"}])
def test_half_a_surrogate_pair_is_refused_instead_of_written_as_something_else(
    properties: dict[str, str],
) -> None:
    with pytest.raises(LocalProtocolError, match="properties must be text"):
        encode_properties(properties)
