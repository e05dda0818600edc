"""Records without bodies are what their readers expect, apart from the bodies."""

from __future__ import annotations

import zlib

import pytest

from broker_core.errors import RemoteProtocolError
from broker_core.remoting.compression import SYS_COMPRESSED
from broker_core.remoting.message import MAGIC_V2, StoredMessage, decode_messages
from broker_core.remoting.record_fields import fields_of
from broker_core.remoting.record_stripping import without_bodies
from tests.support.stored_records import HOST_V6, Record

KINDS = [
    Record(1),
    Record(2, b""),
    Record(3, bytes(1000), magic=MAGIC_V2),
    Record(4, b"x", born_host=HOST_V6),
    Record(5, b"x", born_host=HOST_V6, store_host=HOST_V6),
    Record(6, b"not compressed", flags=SYS_COMPRESSED),
]


def described(message: StoredMessage) -> tuple[object, ...]:
    return (
        *(message.queue_offset, message.topic, message.properties, message.message_id),
        *(message.born_ms, message.store_ms),
    )


@pytest.mark.parametrize("kind", [*KINDS, Record(8, store_host=HOST_V6, magic=MAGIC_V2)])
def test_single_fields_are_those_of_the_decoded_message(kind: Record) -> None:
    before = Record(0).encode()
    (message,) = decode_messages(kind.encode())
    found = fields_of(before + kind.encode(), len(before))
    assert found == (message.topic.encode(), message.raw_properties, message.store_ms)


def test_all_but_the_bodies_stays() -> None:
    checked = bytearray(Record(7, b"body").encode())
    checked[8:12] = zlib.crc32(b"body").to_bytes(4, "big")
    data = b"".join(each.encode() for each in KINDS) + checked
    before = [described(each) for each in decode_messages(data)]
    stripped = decode_messages(without_bodies(data), check_bodies=True)
    assert [described(each) for each in stripped] == before
    assert {each.body for each in stripped} == {b""}
    assert without_bodies(b"") == b""


@pytest.mark.parametrize("cut", [1, 90, 100])
def test_an_incomplete_record_is_refused(cut: int) -> None:
    with pytest.raises(RemoteProtocolError, match="an incomplete record at byte 0"):
        without_bodies(Record(1, bytes(20)).encode()[:cut])


def test_a_body_longer_than_its_record_is_refused() -> None:
    data = bytearray(Record(1).encode())
    data[84:88] = (1000).to_bytes(4, "big")
    with pytest.raises(RemoteProtocolError, match="a body of 1000 bytes"):
        without_bodies(bytes(data))
