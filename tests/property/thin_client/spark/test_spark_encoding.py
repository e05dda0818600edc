"""Rows that are encoded directly are the messages that they would be otherwise."""

from __future__ import annotations

import json
import struct
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.names import Topic
from broker_core.remoting.message import OutgoingMessage, decode_properties
from broker_core.remoting.message_batch import decode_batch, encode_batch
from thin_client.delivery import UNIQUE_ID, Outgoing
from thin_client.key_hash import key_hash, plain_key
from thin_client.spark.encoding import Part, Rows, id_of
from thin_client.spark.outgoing import Origin, RowRefused

ORIGIN = Origin("query/7", 3, "orders", "sparkBatchId")
QUEUES = [f"broker-a_{number}" for number in range(5)]
VECTORS = json.loads(
    (Path(__file__).parents[3] / "conformance" / "key_hash_vectors.json").read_bytes()
)

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), max_size=6)
KEY = st.none() | TEXT | st.sampled_from(["", " ", " k ", "k", "ü", "\x00", "x" * 255, "x" * 256])
VALUE = st.binary(min_size=1, max_size=9)
CELLS: dict[str, tuple[pa.DataType, Any]] = {
    "value": (pa.binary(), VALUE),
    "key": (pa.string(), KEY),
    "tag": (pa.string(), st.none() | TEXT),
    "topic": (pa.string(), st.sampled_from(["a", "b", "ü"])),
    "messageId": (pa.string(), st.none() | st.just("") | st.just("own id")),
}


@st.composite
def columns(draw: st.DrawFn) -> dict[str, pa.Array]:
    """Generate usual columns, which may be parts of longer ones."""
    names = ["value", *draw(st.lists(st.sampled_from([*CELLS][1:]), unique=True))]
    size, before = draw(st.integers(1, 6)), draw(st.integers(0, 2))
    found = {}
    for name in names:
        kind, cell = CELLS[name]
        cells = draw(st.lists(cell, min_size=size + before, max_size=size + before))
        found[name] = pa.array(cells, kind).slice(before)
    if "key" in found and draw(st.booleans()):
        found["key"] = found["key"].cast(pa.binary())
    return found


def by_message(messages: list[Outgoing]) -> list[bytes]:
    """Return the messages as the proxy encodes them for a broker."""
    return [
        encode_batch(
            [
                OutgoingMessage(
                    Topic(each.topic),
                    each.body if isinstance(each.body, bytes) else each.body.encode(),
                    key=each.key,
                    tag=each.tag,
                    properties=each.properties,
                )
            ]
        )
        for each in messages
    ]


@given(columns(), st.integers(0, 3), st.sampled_from(["sparkBatchId", None, "UNIQ_KEY", "näme"]))
def test_encoded_rows_are_the_bytes_of_their_messages(
    cells: dict[str, pa.Array], first: int, name_property: str | None
) -> None:
    origin = Origin("query/7", 3, None if "topic" in cells else "orders", name_property)
    rows = Rows(origin, cells, first)
    encoded = rows.encoded()
    messages = rows.messages()
    assert encoded.entries == by_message(messages)
    topics = list(encoded.topics)
    assert topics * (len(messages) // len(topics)) == [each.topic for each in messages]
    texts = [plain_key(each.key or "") for each in messages]
    assert encoded.hashes.tolist() == [key_hash(text) for text in texts]
    assert encoded.keyed.tolist() == [bool(text) for text in texts]
    assert [id_of(entry) for entry in encoded.entries] == [
        each.properties[UNIQUE_ID] for each in messages
    ]


@given(columns(), st.integers(1, 4), st.integers(1, 3))
def test_a_request_has_rows_of_one_queue_in_order(
    cells: dict[str, pa.Array], most: int, lanes: int
) -> None:
    rows = Rows(Origin("job", 0, None if "topic" in cells else "orders", "b"), cells, 0)
    encoded, messages = rows.encoded(), rows.messages()
    parts = list(encoded.parts(lambda topic: QUEUES, most=most, lanes=lanes))
    assert all(0 < len(part.entries) <= most for part in parts)
    sent = [message for part in parts for message in part.messages()]
    assert sorted(map(repr, sent)) == sorted(map(repr, messages))
    found: dict[tuple[str, str | None], list[bytes]] = defaultdict(list)
    for part in parts:
        assert part.entries == by_message(part.messages())
        found[part.place.topic, part.place.qid] += part.entries
    expected: dict[tuple[str, str | None], list[bytes]] = defaultdict(list)
    for entry, message in zip(encoded.entries, messages, strict=True):
        key = plain_key(message.key or "")
        qid = QUEUES[abs(key_hash(key)) % 5] if key else None
        expected[message.topic, qid].append(entry)
    assert found == expected


def one(part: Part) -> tuple[str, str | None, list[bytes]]:
    (batch,) = [decode_batch(b"".join(part.entries))]
    return part.place.topic, part.place.qid, [entry.body for entry in batch]


def test_rows_of_any_columns_are_encoded() -> None:
    cells: dict[str, pa.Array] = {
        "value": pa.array([b"1", None, b"3", b"4"]),
        "key": pa.array(["k", "k", None, "k"]),
        "topic": pa.array(["a", "a", "a", "b"]),
        "qid": pa.array([None, "broker-a_3", None, None]),
        "shardingKey": pa.array(["s", None, None, None]),
        "properties": pa.array([[("p", "1")]] * 4, pa.map_(pa.string(), pa.string())),
    }
    rows = Rows(Origin("job", 0, None, "b"), cells, 0)
    parts = list(rows.encoded().parts(lambda topic: QUEUES, most=9, lanes=2))
    queue_of = {text: QUEUES[abs(key_hash(text)) % 5] for text in "ks"}
    assert [one(part) for part in parts] == [
        ("a", queue_of["s"], [b"1"]),
        ("a", "broker-a_3", [b"null"]),
        ("a", None, [b"3"]),
        ("b", queue_of["k"], [b"4"]),
    ]
    (entry,) = decode_batch(parts[1].entries[0])
    assert decode_properties(entry.properties)["tombstone"] == "null"
    assert [part.place.lane for part in parts if part.place.qid] == [
        QUEUES.index(part.place.qid) for part in parts if part.place.qid
    ]


def test_a_column_with_numbers_of_queues_names_them() -> None:
    rows = Rows(ORIGIN, {"value": pa.array([b"1", b"2"])}, 0, ["broker-a_4", None])
    parts = list(rows.encoded().parts(lambda topic: QUEUES, most=9, lanes=2))
    assert [one(part)[1] for part in parts] == ["broker-a_4", None]


def test_rows_without_a_key_are_spread_over_the_lanes() -> None:
    rows = Rows(ORIGIN, {"value": pa.array([b"x"] * 10)}, 0)
    parts = list(rows.encoded().parts(lambda topic: QUEUES, most=100, lanes=4))
    assert [len(part.entries) for part in parts] == [3, 3, 3, 1]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: repr(vector["key"]))
def test_hashes_agree_with_java(vector: dict[str, Any]) -> None:
    """Also beside others: all keys of a column are hashed together."""
    for others in (["k"], ["ü", "key-17", ""]):
        keys = pa.array([vector["key"], *others])
        encoded = Rows(ORIGIN, {"value": pa.array([b"x"] * len(keys)), "key": keys}, 0).encoded()
        if plain_key(vector["key"]) == vector["key"]:
            assert encoded.hashes[0] == vector["hash"]
            assert {n: abs(int(encoded.hashes[0])) % int(n) for n in vector["queue"]} == (
                vector["queue"]
            )
        assert encoded.hashes.dtype == np.int64


def test_requests_have_about_a_million_bytes_and_a_message_is_not_cut() -> None:
    values = [bytes([n]) * 600_000 for n in range(3)] + [bytes(2_000_000)]
    rows = Rows(ORIGIN, {"value": pa.array(values), "key": pa.array(["k"] * 4)}, 0)
    parts = list(rows.encoded().parts(lambda topic: QUEUES, most=9, lanes=2))
    assert [len(part.entries) for part in parts] == [1, 1, 1, 1]
    small = Rows(ORIGIN, {"value": pa.array([bytes(400_000)] * 5), "key": pa.array(["k"] * 5)}, 0)
    parts = list(small.encoded().parts(lambda topic: QUEUES, most=9, lanes=2))
    assert [len(part.entries) for part in parts] == [2, 2, 1]


@pytest.mark.parametrize(
    ("cells", "why"),
    [
        ({"value": [b"x", bytes(5_000_000)]}, "row 8 of partition 3 has 5000"),
        ({"value": [b"x", b"y"], "key": ["k", "a\x02b"]}, "row 8 of partition 3 cannot be sent: "),
        ({"value": [b"x", b"y"], "tag": ["k", "a\x01b"]}, "characters 0x01 and 0x02"),
        ({"value": [b"x", b"y"], "key": [b"k", b"\xff"]}, "row 8 of partition 3 has the key"),
    ],
)
def test_a_row_that_cannot_be_sent_is_named(cells: dict[str, list[Any]], why: str) -> None:
    rows = Rows(ORIGIN, {name: pa.array(column) for name, column in cells.items()}, 7)
    with pytest.raises(RowRefused) as refused:
        rows.encoded()
    assert why in str(refused.value)


def test_a_reserved_property_for_names_is_refused() -> None:
    rows = Rows(Origin("job", 0, "orders", "KEYS"), {"value": pa.array([b"x"])}, 0)
    with pytest.raises(RowRefused, match="'KEYS' is reserved by the broker: set batchIdProperty"):
        rows.encoded()


def test_the_size_of_a_message_is_its_first_field() -> None:
    (entry,) = Rows(ORIGIN, {"value": pa.array([b"xyz"])}, 0).encoded().entries
    assert struct.unpack_from(">i", entry) == (len(entry),)
