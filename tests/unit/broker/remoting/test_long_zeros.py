"""Messages of an old log whose properties have more zeros in a row than are allowed now."""

from __future__ import annotations

import pytest

from broker_core.broker.delays.records import delivered, moved
from broker_core.broker.groups.retries import sent_back
from broker_core.broker.transactions.records import (
    check_body,
    place_decision,
    place_renewed,
    read_half,
)
from broker_core.broker.transactions.table import Decision
from broker_core.names import SCHEDULE_TOPIC, DelayedPlace, Topic
from broker_core.remoting import record_encoding
from broker_core.remoting.message import StoredMessage, decode_message
from broker_core.remoting.record_encoding import BatchEntry, Envelope, encode_stored
from tests.support.store_messages import HOST


@pytest.fixture
def old(monkeypatch: pytest.MonkeyPatch) -> StoredMessage:
    """As stored by a broker without the limit of zeros."""
    properties = b"KEYS\x01k\x02own\x01" + bytes(700) + b"\x02REAL_TOPIC\x01orders\x02REAL_QID\x010"
    envelope = Envelope(SCHEDULE_TOPIC, 0, HOST, HOST)
    with monkeypatch.context() as patched:
        patched.setattr(record_encoding, "TOO_MANY_ZEROS", bytes(40_000))
        raw = encode_stored(
            envelope, BatchEntry(0, b"body", properties), queue_offset=0, store_ms=1
        )
    return decode_message(bytes(raw), plain=False)


def stored_again(envelope: Envelope, entry: BatchEntry) -> StoredMessage:
    return decode_message(bytes(encode_stored(envelope, entry, queue_offset=0, store_ms=2)))


def test_whatever_it_becomes_can_be_stored_with_as_many_as_are_taken(old: StoredMessage) -> None:
    assert old.properties["own"] == "\0" * 700
    place, half = DelayedPlace(0, 0), read_half(old)
    placed = delivered(old, place, store_host=HOST)
    assert placed is not None
    waited = [placed, moved(old, place, store_host=HOST)]
    of_transactions = [
        place_renewed(old, half, checks=1, store_host=HOST),
        place_decision(old, half, Decision.COMMIT, store_host=HOST)[1],
        place_decision(old, half, Decision.GIVE_UP, store_host=HOST)[1],
    ]
    parts = [(each.envelope, each.entries[0]) for each in waited]
    parts += [(each.envelope, each.entries[0]) for each in of_transactions]
    parts.append(sent_back(old, Topic("%RETRY%g"), 0, delay_level=0, store_host=HOST))
    messages = [stored_again(*part) for part in parts]
    messages.append(decode_message(check_body(old)))
    for message in messages:
        assert message.body == b"body"
        assert message.key == "k"
        assert message.properties["own"] == "\0" * 510
