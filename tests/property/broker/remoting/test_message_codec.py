from __future__ import annotations

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from broker_core.errors import RemoteProtocolError
from broker_core.names import Topic
from broker_core.remoting.message import (
    OutgoingMessage,
    decode_messages,
    decode_properties,
    encode_host,
    encode_properties,
)
from broker_core.remoting.message_batch import decode_batch, encode_batch
from broker_core.remoting.record_encoding import BatchEntry, Envelope, encode_stored

texts = st.text(
    st.characters(blacklist_categories=["Cs"], blacklist_characters="\x01\x02"),
    min_size=1,
    max_size=20,
)
properties = st.dictionaries(texts, texts, max_size=5)
hosts = st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)).map(
    lambda ip: encode_host(str(ip), 1)
)
envelopes = st.builds(
    Envelope,
    st.sampled_from([Topic("orders"), Topic("x" * 127)]),
    st.integers(0, 2**31 - 1),
    hosts,
    hosts,
    born_ms=st.integers(0, 2**63 - 1),
    reconsume_times=st.integers(0, 100),
    prepared_offset=st.integers(-(1 << 63), (1 << 63) - 1),
    sys_flag=st.sampled_from([0, 4, 8]),
)
messages = st.builds(
    OutgoingMessage,
    st.just(Topic("orders")),
    st.binary(max_size=200),
    key=st.none() | texts,
    tag=st.none() | texts,
    properties=properties,
    flag=st.integers(-(2**31), 2**31 - 1),
)


@given(envelopes, st.lists(st.tuples(st.binary(max_size=200), properties), max_size=4))
def test_what_is_encoded_is_decoded(
    envelope: Envelope, parts: list[tuple[bytes, dict[str, str]]]
) -> None:
    raw = b"".join(
        encode_stored(
            envelope, BatchEntry(1, body, encode_properties(props)), queue_offset=n, store_ms=5
        )
        for n, (body, props) in enumerate(parts)
    )
    decoded = decode_messages(raw, check_crc=True)
    assert [(m.body, m.properties) for m in decoded] == parts
    assert [m.queue_offset for m in decoded] == list(range(len(parts)))
    for message in decoded:
        assert (message.topic, message.queue_id) == (envelope.topic, envelope.queue_id)
        assert (message.born_host, message.store_host) == (envelope.born_host, envelope.store_host)
        assert (message.born_ms, message.reconsume_times) == (
            envelope.born_ms,
            envelope.reconsume_times,
        )


@given(st.lists(messages, max_size=4))
def test_batch_round_trip(batch: list[OutgoingMessage]) -> None:
    decoded = decode_batch(encode_batch(batch))
    assert [(e.flag, e.body) for e in decoded] == [(m.flag, m.body) for m in batch]
    assert [decode_properties(e.properties) for e in decoded] == [m.all_properties() for m in batch]


@given(st.lists(messages, min_size=1, max_size=3), st.data())
def test_garbled_bytes_either_decode_or_raise_the_one_error(
    batch: list[OutgoingMessage], data: st.DataObject
) -> None:
    host = encode_host("127.0.0.1", 1)
    entries = decode_batch(encode_batch(batch))
    envelope = Envelope(Topic("orders"), 0, host, host)
    stored = b"".join(encode_stored(envelope, e, queue_offset=0, store_ms=0) for e in entries)
    for raw, decode in ((stored, decode_messages), (encode_batch(batch), decode_batch)):
        garbled = bytearray(raw)
        for _ in range(data.draw(st.integers(1, 4))):
            garbled[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
        del garbled[data.draw(st.integers(0, len(raw))) :]
        with contextlib.suppress(RemoteProtocolError):
            decode(bytes(garbled))
