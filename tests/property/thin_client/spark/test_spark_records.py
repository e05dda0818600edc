"""Vectorized decoding gives the same rows as the proxy's decoder."""

from __future__ import annotations

from itertools import pairwise
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from broker_core.errors import RemoteProtocolError
from broker_core.remoting.compression import SYS_COMPRESSED
from broker_core.remoting.message import MAGIC_V1, MAGIC_V2, decode_message
from tests.support.stored_records import (
    HOST_V4,
    HOST_V6,
    OTHER_COMPRESSION,
    Record,
    compressed,
    rows_owed,
)
from thin_client.spark import columns, records
from thin_client.spark.offsets import Slice

_NAMES = ("KEYS", "TAGS", "UNIQ_KEY", "WAIT", "color", "größe", "n")
_VALUES = ("red", "blau grün", "1", "0123456789ABCDEF")
_BYTES = (b"\x01", b"\x02", b"\x00", b"\xff", b"\xc3", b"\xa4", b"KEYS", b"v", b"UNIQ_KEY")
pair = st.tuples(st.sampled_from(_NAMES), st.sampled_from(_VALUES))


def joined(pairs: list[tuple[str, str]]) -> bytes:
    return b"".join(f"{name}\x01{value}\x02".encode() for name, value in pairs)


plain_properties = st.lists(pair, max_size=5, unique_by=lambda each: each[0]).map(joined)
properties = st.one_of(
    plain_properties,
    plain_properties.map(lambda raw: raw[:-1]),  # no last separator
    st.lists(pair, max_size=12).map(joined),  # names twice
    st.lists(st.sampled_from(_BYTES), max_size=12).map(b"".join),
    st.binary(max_size=30),
)
bodies = st.one_of(
    st.binary(max_size=40).map(lambda body: (0, body)),
    st.just((0, MAGIC_V1.to_bytes(4, "big") * 3)),
    st.just((0, bytes(2_000))),
    st.binary(max_size=40).map(lambda body: (SYS_COMPRESSED, compressed(body))),
    st.binary(max_size=40).map(lambda body: (SYS_COMPRESSED, body)),
    st.binary(max_size=40).map(lambda body: (OTHER_COMPRESSION, body)),
)
times = st.integers(1_500_000_000_000, 1_900_000_000_000) | st.integers(-(2**63), 2**63 - 1)
hosts = st.sampled_from([HOST_V4, HOST_V4, HOST_V6])


@st.composite
def sequences(draw: st.DrawFn) -> list[bytes]:
    """Generate records with ascending offsets, mostly of one kind, as on brokers."""
    odd = draw(st.booleans())
    offset = draw(st.integers(0, 3) | st.integers(2**40, 2**62))
    found = []
    for _ in range(draw(st.integers(0, 12))):
        flags, body = draw(bodies) if odd else (0, draw(st.binary(min_size=1, max_size=9)))
        record = Record(
            offset,
            body,
            draw(properties if odd else plain_properties),
            topic=draw(st.sampled_from(["orders", "orders", "other!", "x"])) if odd else "orders",
            magic=draw(st.sampled_from([MAGIC_V1, MAGIC_V2])),
            flags=flags,
            born_host=draw(hosts) if odd else HOST_V4,
            store_host=draw(hosts) if odd else HOST_V4,
            born_ms=draw(times),
            store_ms=draw(times),
        )
        found.append(record.encode())
        offset += draw(st.just(1) | st.integers(1, 5))
    return found


def chunked(some: list[bytes], cuts: list[int]) -> list[bytes]:
    bounds = sorted({0, len(some), *(cut % (len(some) + 1) for cut in cuts)})
    return [b"".join(some[a:b]) for a, b in pairwise(bounds)]


def rows_of(chunks: list[bytes], part: Slice, *, headers: bool) -> list[dict[str, Any]]:
    rows = []
    names = records.column_names(include_headers=headers)
    for batch in records.record_batches(chunks, part, names):
        batch.validate(full=True)
        assert batch.schema.equals(records.arrow_schema(names))
        columns = {
            name: (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column)
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        }
        rows += pa.table(columns).to_pylist()
    return rows


parts = st.builds(
    lambda start, size: Slice("orders", "broker-a_3", start, start + size),
    st.integers(0, 5) | st.just(2**40),
    st.integers(0, 20) | st.just(2**62),
)


@settings(deadline=None)
@given(
    sequences(),
    st.lists(st.integers(0, 12), max_size=3),
    parts,
    st.booleans(),
    st.sampled_from([1, 100, 1 << 20]),
    st.sampled_from([1, 3, 100]),
    st.sampled_from([1, 2, 100]),
)
def test_vectors_give_what_the_decoder_gives(
    some: list[bytes],
    cuts: list[int],
    part: Slice,
    headers: bool,
    most_bytes: int,
    most_rows: int,
    lane_records: int,
) -> None:
    owed = rows_owed(some, part, headers=headers)
    with (
        mock.patch.object(records, "MAX_BYTES", most_bytes),
        mock.patch.object(records, "MAX_ROWS", most_rows),
        mock.patch.object(records, "WORTH_BYTES", most_bytes),
        mock.patch.object(columns, "LANE_RECORDS", lane_records),
    ):
        assert rows_of(chunked(some, cuts), part, headers=headers) == owed


@settings(deadline=None)
@given(sequences().filter(bool), st.data())
def test_garbled_bytes_are_refused_or_decoded_alike(some: list[bytes], data: st.DataObject) -> None:
    """Any bytes give the decoder's rows, or an error where the decoder raises one."""
    garbled = bytearray(b"".join(some))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(garbled) - 1))
        garbled[at] = data.draw(st.sampled_from([0, 1, 2, 0x80, 0xFF]) | st.integers(0, 255))
    del garbled[data.draw(st.just(len(garbled)) | st.integers(0, len(garbled))) :]
    raw, part = bytes(garbled), Slice("orders", "broker-a_3", 0, 2**63 - 1)
    try:
        owed, last = [], -1
        at = 0
        while at < len(raw):
            checked = columns.states_checksum(raw[at:])
            message = decode_message(raw, at, check_bodies=checked)
            if message.queue_offset <= last:
                raise RemoteProtocolError("offsets fall")
            last = message.queue_offset
            owed += rows_owed([raw[at : at + message.size]], part, headers=True)
            at += message.size
    except RemoteProtocolError:
        event("garbled")
        with pytest.raises(records.GarbledRecords, match=r"topic 'orders', qid 'broker-a_3'"):
            rows_of([raw], part, headers=True)
    else:
        event("readable")
        assert rows_of([raw], part, headers=True) == owed
