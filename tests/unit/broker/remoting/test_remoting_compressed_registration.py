"""The compressed registration of RocketMQ's brokers, and every way it can be invalid."""

from __future__ import annotations

import struct
import zlib

import pytest

from broker_core.errors import InvalidCommand
from broker_core.names import Topic
from broker_core.remoting import compressed_registration
from broker_core.remoting.compressed_registration import registration_from_compressed
from broker_core.remoting.route_bodies import DataVersion, TopicConfig

VERSION = b'{"stateVersion":1,"timestamp":2,"counter":3}'


def sized(text: bytes) -> bytes:
    return struct.pack(">i", len(text)) + text


def body(*topics: bytes, count: int | None = None, version: bytes = VERSION) -> bytes:
    number = struct.pack(">i", len(topics) if count is None else count)
    return sized(version) + number + b"".join(map(sized, topics)) + sized(b"[]")


def test_topics_and_version_are_read_with_the_attributes_of_5_x_left_alone() -> None:
    plain = body(b"orders 4 8 6 SINGLE_TAG", b'a|b 1 1 4 MULTI_TAG {"+k":"v w"}') + b"\0\0\0\0"
    registration = registration_from_compressed(zlib.compress(plain, 9))
    assert registration.version == DataVersion(2, 3, 1)
    assert list(registration.topics.values()) == [
        TopicConfig(topic=Topic("orders"), read_queues=4, write_queues=8, perm=6),
        TopicConfig(topic=Topic("a|b"), read_queues=1, write_queues=1, perm=4),
    ]


@pytest.mark.parametrize(
    ("plain", "text"),
    [
        (b"", "cut short or garbled at its data version"),
        (b"\xff" * 8, "at its data version"),
        (sized(b"{"), "ends before its number of topics"),
        (body(version=b"{"), "registration's dataVersion is not JSON"),
        (body(version=b'{"counter":"x"}'), "dataVersion.counter is 'x': expected an integer"),
        (body(b"orders 4 8 6 X", count=2**31 - 1), "holds a topic b'[]'"),
        (body(count=2**31 - 1)[:-6], "at its topic 0 of 2147483647"),
        (body(b"orders 4 8 6 X")[:-10], "at its topic 0 of 1"),
        (body(b"orders 4 8"), "holds a topic b'orders 4 8': expected name, read queues"),
        (body(b"orders four 8 6 X"), "expected name, read queues"),
        (body(b"\xff 4 8 6 X"), "expected name, read queues"),
        (body(b"orders -4 8 6 X"), "topic 'orders'.readQueueNums is -4: expected 0 to"),
        (body(b"orders 4 99999999999 6 X"), "writeQueueNums is 99999999999: expected 0 to"),
        (body(b"orders " + b"9" * 5000 + b" 8 6 X"), "expected name, read queues"),
    ],
)
def test_what_does_not_fit_is_named(plain: bytes, text: str) -> None:
    with pytest.raises(InvalidCommand) as refused:
        registration_from_compressed(zlib.compress(plain))
    assert text in str(refused.value)
    assert len(str(refused.value)) < 300


def test_no_zlib_half_of_it_and_too_much_in_it_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(InvalidCommand, match="is not zlib"):
        registration_from_compressed(b"junk")
    whole = zlib.compress(body(b"orders 4 8 6 SINGLE_TAG"))
    with pytest.raises(InvalidCommand, match="ends within its zlib stream"):
        registration_from_compressed(whole[:-5])
    monkeypatch.setattr(compressed_registration, "MAX_INFLATED_BYTES", 20)
    with pytest.raises(InvalidCommand, match="takes more than 20 bytes"):
        registration_from_compressed(whole)
