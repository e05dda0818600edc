"""Messages that a client encoded may contain no more than one of ``sendSync``."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.names import Topic
from broker_core.remoting.message import RESERVED_PROPERTIES, OutgoingMessage
from broker_core.remoting.message_batch import encode_batch
from proxy.downstream.encoded_messages import MAX_MESSAGES, check_encoded, ids_of
from proxy.downstream.outgoing import IllegalMessage, outgoing_message

TOPIC = Topic("orders")
MOST = 100


def entry(body: bytes = b"b", properties: bytes = b"UNIQ_KEY\x011\x02", *, flag: int = 0) -> bytes:
    size = 22 + len(body) + len(properties)
    head = struct.pack(">iIIii", size, 0, 0, flag, len(body))
    return head + body + struct.pack(">h", len(properties)) + properties


def check(data: bytes, count: int = 1) -> None:
    check_encoded(data, count=count, max_body_bytes=MOST)


def test_the_extent_of_each_message_is_returned() -> None:
    data = entry(b"one") + entry(b"three")
    found = check_encoded(data, count=2, max_body_bytes=MOST)
    assert (found.ends, found.body_bytes) == ([len(entry(b"one")), len(data)], [3, 5])
    assert ids_of(data) == ["1", "1"]


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), max_size=4)
NAMES = st.one_of(TEXT, st.sampled_from(["DELAY", "TIMER_OUT_MS", "WAIT", "PGROUP", "color"]))


@given(
    body=st.binary(max_size=3) | st.just(bytes(MOST + 1)),
    key=TEXT | st.just("k" * 255) | st.just("k" * 256) | st.just("ü" * 255),
    tag=TEXT | st.just("t" * 256),
    properties=st.dictionaries(NAMES, TEXT, max_size=3),
)
def test_a_message_is_taken_as_sendsync_takes_it(
    body: bytes, key: str, tag: str, properties: dict[str, str]
) -> None:
    named = {name: value for name, value in properties.items() if name and value}
    message = OutgoingMessage(
        TOPIC, body, key=key or None, tag=tag or None, properties={**named, "UNIQ_KEY": "1"}
    )
    data = encode_batch([message])
    try:
        outgoing_message(
            TOPIC,
            body,
            key=key or None,
            tag=tag or None,
            properties={**named, "UNIQ_KEY": "1"},
            max_body_bytes=MOST,
        )
    except IllegalMessage:
        with pytest.raises(IllegalMessage, match=r"^message 1 of 1: "):
            check(data)
    else:
        check(data)


@pytest.mark.parametrize(
    "name", [*sorted(RESERVED_PROPERTIES - {"KEYS", "TAGS", "UNIQ_KEY"}), "__RMQ.TRANSIENT.X"]
)
def test_no_reserved_property_passes(name: str) -> None:
    raw = f"color\x01red\x02UNIQ_KEY\x011\x02{name}\x012\x02".encode()
    with pytest.raises(IllegalMessage, match="is reserved by the broker: rename it"):
        check(entry(properties=raw))
    with pytest.raises(IllegalMessage, match="is reserved by the broker: rename it"):
        check(entry(properties=f"{name}\x012\x02UNIQ_KEY\x011\x02".encode()))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (entry(flag=1), "message 1 of 1: 00000000 00000000 00000001 as magic number, checksum and"),
        (entry()[:4] + b"\xda" + entry()[5:], "da000000 00000000 00000000 as magic number"),
        (entry()[:11] + b"\x01" + entry()[12:], "00000000 00000001 00000000 as magic number"),
        (entry(b""), "message 1 of 1: a body of 0 bytes: expected 1 to 100"),
        (entry(bytes(101)), "message 1 of 1: a body of 101 bytes: expected 1 to 100"),
        (entry(properties=b""), "no property UNIQ_KEY"),
        (entry(properties=b"KEYS\x01k\x02"), "no property UNIQ_KEY"),
        (entry(properties=b"UNIQ_KEY\x011"), "expected 0x02 at the end"),
        (entry(properties=b"UNIQ_KEY\x011\x02\x02"), "neither may be empty"),
        (entry(properties=b"UNIQ_KEY\x01\x02"), "neither may be empty"),
        (entry(properties=b"UNIQ_KEY\x011\x01\x02"), "must not contain the character 0x01"),
        (entry(properties=b"UNIQ_KEY\x011\x02UNIQ_KEY\x012\x02"), "'UNIQ_KEY' occurs twice"),
        (entry(properties=b"a\x011\x02a\x012\x02UNIQ_KEY\x011\x02"), "'a' occurs twice"),
        (entry(properties=b"UNIQ_KEY\x011\x02a\x01\xff\x02"), "properties that are not UTF-8"),
        (entry()[:-1], "do not fit together"),
        (entry()[:10], "is cut short"),
        (entry() + b"\0", "is cut short"),
        (struct.pack(">iIIii", 22, 0, 0, 0, -1) + b"\0\0", "do not fit together"),
        (entry() * 2, "the body holds more than 1 messages: expected 1"),
        (b"", "the body holds 0 messages: expected 1, the count"),
    ],
)
def test_malformed_messages_are_refused_in_a_sentence(data: bytes, why: str) -> None:
    with pytest.raises(IllegalMessage) as refused:
        check(data)
    assert why in str(refused.value)


@pytest.mark.parametrize("count", [-1, 0, MAX_MESSAGES + 1])
def test_the_number_of_messages_is_limited(count: int) -> None:
    with pytest.raises(IllegalMessage, match=f"a batch of {count} messages: expected 1 to"):
        check(entry(), count)


def test_the_properties_to_decode_are_limited() -> None:
    """Their number is counted before objects are created for them."""
    raw = b"UNIQ_KEY\x011\x02" + b"".join(b"P%d\x011\x02" % n for n in range(4000))
    with pytest.raises(IllegalMessage, match=r"^message 25 of 30: more than 100000 properties"):
        check(entry(properties=raw) * 30, 30)


def test_a_refusal_names_the_message() -> None:
    with pytest.raises(IllegalMessage, match=r"^message 2 of 3: a body of 0 bytes"):
        check(entry() + entry(b"") + entry(), 3)


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_whole_messages(data: bytes) -> None:
    try:
        found = check_encoded(data, count=1, max_body_bytes=MOST)
    except IllegalMessage:
        return
    assert found.ends == [len(data)]
