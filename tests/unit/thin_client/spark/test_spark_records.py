from __future__ import annotations

import random
import re
import struct
from itertools import accumulate
from unittest import mock

import pyarrow as pa
import pytest

from broker_core.names import Topic
from broker_core.remoting import compression
from broker_core.remoting.compression import LZ4, SYS_COMPRESSED, ZSTD, deflate
from broker_core.remoting.message import MAGIC_V1, MAGIC_V2, encode_host, encode_properties
from broker_core.remoting.record_encoding import BatchEntry, Envelope, encode_run
from tests.support.stored_records import HOST_V6, Record, compressed, rows_owed
from thin_client.spark import columns, records
from thin_client.spark.offsets import Slice
from thin_client.spark.option_values import OptionError
from thin_client.spark.records import (
    MAX_ROWS,
    CannotInflate,
    GarbledRecords,
    arrow_schema,
    chosen_columns,
    column_names,
    need_records,
    position_batches,
    record_batches,
    schema_ddl,
)

PART = Slice("orders", "broker-a_3", 0, 1_000_000)


def batches(*chunks: bytes, part: Slice = PART) -> list[pa.RecordBatch]:
    return list(record_batches(chunks, part, column_names(include_headers=False)))


def column(name: str, *chunks: bytes) -> list[object]:
    return pa.Table.from_batches(batches(*chunks)).column(name).to_pylist()


def test_the_schema_is_spark_s_ddl() -> None:
    assert schema_ddl(column_names(include_headers=False)) == (
        "key STRING, value BINARY, topic STRING, qid STRING, offset BIGINT, timestamp TIMESTAMP,"
        " bornTimestamp TIMESTAMP, tag STRING, properties MAP<STRING, STRING>, messageId STRING"
    )
    assert schema_ddl(column_names(include_headers=True)).endswith(
        "messageId STRING, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
    )


@pytest.mark.parametrize(
    "record",
    [
        Record(5, b"\0" * 300, b"KEYS\x01k\x02TAGS\x01t\x02UNIQ_KEY\x01u\x02a\x01b\x02"),
        Record(5, properties="KEYS\x01größe\x02UNIQ_KEY\x01u\x02".encode()),
        Record(5, properties=b"KEYS\x01k\x02UNIQ_KEY\x01u"),  # Apache RocketMQ 4.9.1 to 5.1.4
        Record(5, properties=b""),
        Record(5, properties=b"KEYS\x01 k\t\x02UNIQ_KEY\x01u\x02"),  # blanks are no part of keys
        Record(5, properties=b"KEYS\x01\x02\x01v\x02UNIQ_KEY\x01u\x02"),  # empty value, empty name
        Record(5, magic=MAGIC_V2),
        Record(5, magic=MAGIC_V2, body=b"", born_host=HOST_V6, store_host=HOST_V6),
        Record(5, born_host=HOST_V6, properties=b"a\x01b\x02"),
        Record(5, store_host=HOST_V6, properties=b"a\x01b\x02"),
        Record(5, body=struct.pack(">I", MAGIC_V1) * 20),
        Record(5, born_ms=-(2**63), store_ms=2**63 - 1),
    ],
    ids=str,
)
def test_usual_records_need_no_decoder_of_their_own(record: Record) -> None:
    """Kinds of records that may fill whole topics are decoded together."""
    other = Record(6, b"other").encode()
    owed = rows_owed([record.encode(), other], PART, headers=False)
    with mock.patch.object(records, "decode_message", side_effect=AssertionError):
        table = pa.Table.from_batches(batches(record.encode() + other))
    for name in ("timestamp", "bornTimestamp"):
        at = table.schema.get_field_index(name)
        table = table.set_column(at, name, table.column(name).cast(pa.int64()))
    assert table.to_pylist() == owed


def test_rows_stay_in_order_where_some_are_decoded_apart() -> None:
    chunk = b"".join(
        Record(n, compressed(b"%d" % n), flags=SYS_COMPRESSED).encode()
        if n % 3 == 1
        else Record(n, b"%d" % n, b"KEYS\x01\xff\x02" if n % 5 == 2 else b"KEYS\x01k\x02").encode()
        for n in range(40)
    )
    assert column("value", chunk) == [b"%d" % n for n in range(40)]
    assert column("key", chunk)[:4] == ["k", "key", "\\xff", "k"]


def test_only_the_part_s_own_rows_come() -> None:
    chunks = [Record(n).encode() for n in (3, 4, 7, 8, 9)]
    part = Slice("orders", "broker-a_3", 4, 9)
    table = pa.Table.from_batches(batches(*chunks, part=part))
    assert table.column("offset").to_pylist() == [4, 7, 8]
    assert batches(*chunks, part=Slice("orders", "broker-a_3", 20, 30)) == []


def test_small_chunks_become_one_batch() -> None:
    assert [each.num_rows for each in batches(*(Record(n).encode() for n in range(100)))] == [100]


def test_batches_are_bounded_in_rows_and_bytes() -> None:
    chunk = b"".join(Record(n, bytes(1_000)).encode() for n in range(50))
    with mock.patch.object(records, "MAX_BYTES", 10_000):
        assert [each.num_rows for each in batches(chunk)] == [8] * 6 + [2]
    with mock.patch.object(records, "MAX_ROWS", 20):
        assert [each.num_rows for each in batches(chunk)] == [20, 20, 10]


def test_bodies_count_as_what_they_are_inflated_to() -> None:
    """Ten megabytes of consecutive compressed bodies would be few bytes of one chunk."""
    large = compressed(bytes(1_000_000))
    chunk = b"".join(Record(n, large, flags=SYS_COMPRESSED).encode() for n in range(10))
    with mock.patch.object(records, "MAX_BYTES", 3_000_000):
        found = batches(chunk)
    assert [each.num_rows for each in found] == [4, 4, 2]
    assert {len(body) for body in column("value", chunk)} == {1_000_000}


@pytest.mark.parametrize("kind", [LZ4, ZSTD])
def test_bodies_of_each_compression_are_rows_as_they_were_sent(kind: int) -> None:
    flags = SYS_COMPRESSED | kind
    assert column("value", Record(3, deflate(b"plain", kind), flags=flags).encode()) == [b"plain"]
    assert column("value", Record(3, b"torn", flags=flags).encode()) == [b"torn"]


def test_a_body_for_which_a_package_is_missing_is_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    record = Record(3, deflate(b"plain", LZ4), flags=SYS_COMPRESSED | LZ4).encode()
    monkeypatch.setattr(compression, "lz4_frame", None)
    with pytest.raises(CannotInflate, match=r"offset 3: .* the package lz4 is not installed"):
        column("value", record)


def test_times_beyond_spark_s_years_are_null() -> None:
    chunk = Record(0, born_ms=253_402_300_800_000).encode() + Record(1, born_ms=0).encode()
    assert [each is None for each in column("bornTimestamp", chunk)] == [True, False]


@pytest.mark.parametrize(
    ("first", "second", "due", "why"),
    [
        (b"", Record(5).encode()[:-1], 0, "size"),
        (Record(5).encode(), b"\0\0", 0, "cut short"),
        (Record(5).encode(), Record(6, magic=0x1234).encode(), 6, "magic is 0x00001234"),
        (Record(5).encode(), Record(6, topic="o?").encode().replace(b"?", b"\xff"), 6, "byte 0xff"),
        (Record(5).encode(), Record(5).encode(), 6, "the record of offset 5 follows"),
        (Record(5).encode(), Record(-1).encode(), 6, "the record of offset -1 follows"),
    ],
)
def test_invalid_records_are_refused_with_their_place(
    first: bytes, second: bytes, due: int, why: str
) -> None:
    with pytest.raises(GarbledRecords, match=why) as raised:
        batches(first + second)
    assert f"topic 'orders', qid 'broker-a_3', at or after offset {due}: " in str(raised.value)


def many_records(body: bytes) -> list[bytes]:
    """Return records of 100 bytes to 8 kB, random with a fixed seed."""
    chooser = random.Random(5)
    return [Record(n, body * chooser.choice([1, 2, 3, 700])).encode() for n in range(2_000)]


def starts_of(some: list[bytes]) -> list[int]:
    return [0, *accumulate(map(len, some))][:-1]


def test_records_are_found_in_lanes_whatever_their_sizes() -> None:
    some = many_records(b"0123456789")
    with mock.patch.object(columns, "one_by_one", side_effect=AssertionError):
        assert columns.find_starts(b"".join(some)).tolist() == starts_of(some)


def test_bodies_that_look_like_records_are_not_split() -> None:
    """Such as parked records: a lane that starts inside a body does not end at the next record."""
    some = many_records(Record(1).encode() + b"between")
    assert columns.find_starts(b"".join(some)).tolist() == starts_of(some)


def _stored(*, checked: bool) -> bytes:
    """Return ten records, with checksums of records as of the embedded broker, or without."""
    host = encode_host("127.0.0.1", 10911)
    pieces: list[bytes] = []
    entries = [
        BatchEntry(0, b"body %d" % each, encode_properties({"KEYS": f"k{each}", "own": "x"}))
        for each in range(10)
    ]
    envelope = Envelope(Topic("orders"), 0, host, host)
    encode_run(envelope, entries, pieces, queue_offset=0, place=0, store_ms=5, checked=checked)
    return b"".join(pieces)


def _rows_of(data: bytes) -> list[dict[str, object]]:
    batches = record_batches(
        [data], Slice("orders", "q", 0, 10), column_names(include_headers=True)
    )
    return [row for batch in batches for row in batch.to_pylist()]


def test_checksums_of_records_are_no_properties() -> None:
    checked, plain = _rows_of(_stored(checked=True)), _rows_of(_stored(checked=False))
    for rows in (checked, plain):
        for row in rows:
            del row["messageId"]  # of the place in the log, which differs
    assert checked == plain
    assert [row["value"] for row in checked] == [b"body %d" % each for each in range(10)]
    assert checked[3]["properties"] == [("own", "x")]


def test_a_body_that_its_broker_did_not_verify_is_verified() -> None:
    data = _stored(checked=False).replace(b"body 7", b"bodY 7")
    with pytest.raises(GarbledRecords, match="offset 7 does not match its checksum"):
        _rows_of(data)


# ---- chosen columns ------------------------------------------------------------------------------


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize("names", [["timestamp", "offset"], ["key", "headers"], ["qid", "value"]])
def test_chosen_columns_are_those_of_all_columns(names: list[str], checked: bool) -> None:
    data, part = _stored(checked=checked), Slice("orders", "q", 2, 9)
    chosen = [row for batch in record_batches([data], part, names) for row in batch.to_pylist()]
    assert chosen == [
        {name: row[name] for name in names} for row in _rows_of(data) if 2 <= row["offset"] < 9
    ]
    assert len(chosen) == 7


def test_positions_are_known_without_records() -> None:
    part = Slice("orders", "q", 5, 5 + MAX_ROWS + 1)
    names = ["offset", "qid"]
    batches = list(position_batches(part, names))
    assert [batch.num_rows for batch in batches] == [MAX_ROWS, 1]
    assert batches[0].schema.equals(arrow_schema(names))
    assert batches[1].to_pylist() == [{"offset": 5 + MAX_ROWS, "qid": "q"}]
    assert not need_records(names)
    assert need_records([*names, "timestamp"])


def test_a_chosen_schema_has_columns_of_the_source_in_any_order() -> None:
    names = ("headers", "offset", "key")
    assert chosen_columns(arrow_schema(names)) == names


@pytest.mark.parametrize(
    ("name", "kind", "sentence"),
    [
        ("amount", pa.int64(), "schema() names the column 'amount': expected some of key, value"),
        ("offset", pa.int32(), "schema() gives the column 'offset' another type: expected BIGINT"),
    ],
)
def test_other_columns_are_refused(name: str, kind: pa.DataType, sentence: str) -> None:
    with pytest.raises(OptionError, match=re.escape(sentence)):
        chosen_columns(pa.schema([(name, kind)]))
