"""Conversion of rows to messages: columns of a sink, names of messages, rate of a task."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from thin_client.delivery import UNIQUE_ID, Outgoing
from thin_client.spark.option_values import OptionError
from thin_client.spark.outgoing import (
    Origin,
    Pace,
    RowRefused,
    check_columns,
    portions,
    sharding_key,
)
from thin_client.spark.records import arrow_schema, column_names, values_of
from thin_client.spark.tombstones import value_of

ORIGIN = Origin("query/7", 3, "orders", "batchId")
VALUE = ("value", "binary")


def one(origin: Origin = ORIGIN, *, row: int = 0, **columns: Any) -> Outgoing:
    """Return the message of a single row."""
    (message,) = origin.messages({name: [cell] for name, cell in columns.items()}, first=row)
    return message


def name_of(message: Outgoing) -> str:
    return message.properties["batchId"]


# ---- columns -------------------------------------------------------------------------------------


def test_all_columns_of_a_message_may_be_there() -> None:
    names = ("key", "tag", "topic", "qid", "shardingKey", "messageId")
    texts = [(name, "string") for name in names]
    check_columns([VALUE, ("properties", "map<string,string>"), *texts], topic=None)


def test_all_columns_that_are_read_can_be_written() -> None:
    columns = arrow_schema(column_names(include_headers=True))
    kinds = [(each.name, each.dataType.simpleString()) for each in from_arrow_schema(columns)]
    check_columns(kinds, topic=None)


def test_other_columns_are_ignored_on_request() -> None:
    check_columns([VALUE, ("amount", "bigint")], topic="orders", ignore_others=True)


def test_the_encoding_of_keys_is_for_binary_keys() -> None:
    check_columns([VALUE, ("key", "binary")], topic="orders", key_encoding="hex")
    with pytest.raises(OptionError, match="keyEncoding has no effect without a binary column"):
        check_columns([VALUE, ("key", "string")], topic="orders", key_encoding="hex")


@pytest.mark.parametrize("kind", ["string", "binary", "varchar(20)", "string collate UNICODE_CI"])
def test_a_value_is_text_or_bytes(kind: str) -> None:
    check_columns([("value", kind)], topic="orders")


@pytest.mark.parametrize(
    ("columns", "topic", "sentence"),
    [
        ([("key", "string")], "orders", "column 'value' is missing"),
        ([VALUE], None, "set the option topic, or add the column 'topic'"),
        ([("value", "bigint")], "orders", "column 'value' is bigint: cast it to string or binary"),
        ([VALUE, ("key", "int")], "orders", "column 'key' is int: cast it to string or binary"),
        ([VALUE, ("properties", "map<string,int>")], "orders", "cast it to map<string,string>"),
        ([VALUE, ("amount", "bigint")], "orders", "column 'amount' cannot be written"),
        ([VALUE, VALUE], "orders", "column 'value' occurs twice"),
    ],
)
def test_what_cannot_be_written_is_refused_in_a_sentence(
    columns: list[tuple[str, str]], topic: str | None, sentence: str
) -> None:
    with pytest.raises(OptionError) as refused:
        check_columns(columns, topic=topic)
    assert sentence in str(refused.value)


# ---- messages ------------------------------------------------------------------------------------


def test_a_row_becomes_a_message() -> None:
    message = one(
        value="text", key="k", tag="t", properties=[("a", "1")], shardingKey="s", topic="other"
    )
    assert (message.topic, message.body, message.key) == ("orders", b"text", "k")
    assert (message.sharding_key, message.tag) == ("s", "t")
    assert message.properties["a"] == "1"


def test_without_the_option_the_column_says_where_a_row_goes() -> None:
    origin = replace(ORIGIN, topic=None)
    assert one(origin, value=b"x", topic="refunds").topic == "refunds"
    with pytest.raises(RowRefused, match="row 0 of partition 3 has no topic"):
        one(origin, value=b"x", topic=None)


def test_empty_texts_are_none_and_missing_columns_too() -> None:
    message = one(value=b"x", key="", tag="")
    assert (message.key, message.tag, message.sharding_key) == (None, None, None)


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"key": b"\xff"}, r"row 5 of partition 3 has the key b'\\xff', which is not UTF-8: set"),
        ({"headers": [{"key": "h", "value": b"\xff"}]}, "header 'h', whose value is not UTF-8"),
    ],
)
def test_a_row_that_cannot_become_a_message_is_named(columns: dict[str, Any], why: str) -> None:
    with pytest.raises(RowRefused, match=why):
        one(row=5, value=b"x", **columns)


@pytest.mark.parametrize(
    ("value", "body", "tombstone"),
    [(None, b"null", "null"), (b"", b" ", "empty"), ("", b" ", "empty"), (b" ", b" ", None)],
)
def test_a_row_without_a_value_is_a_tombstone(
    value: bytes | str | None, body: bytes, tombstone: str | None
) -> None:
    message = one(value=value)
    assert (message.body, message.properties.get("tombstone")) == (body, tombstone)
    read = b"" if value == "" else value
    assert isinstance(message.body, bytes)
    assert value_of(message.body, tombstone) == read
    found = values_of(pa.array([message.body, b"x"]), pa.array([tombstone, None], pa.string()))
    assert found.to_pylist() == [read, b"x"]


def test_a_body_that_only_claims_to_be_a_tombstone_is_kept() -> None:
    claims = pa.array(["null", "empty", "other"])
    assert values_of(pa.array([b"a", b"b", b"null"]), claims).to_pylist() == [b"a", b"b", b"null"]
    assert value_of(b"a", "null") == b"a"


@pytest.mark.parametrize(
    ("encoding", "key"), [("utf8", "k\u00e9"), ("hex", "6bc3a9"), ("base64", "a8Op")]
)
def test_a_binary_key_becomes_text(encoding: str, key: str) -> None:
    origin = replace(ORIGIN, key_encoding=encoding)
    assert one(origin, value=b"x", key="k\u00e9".encode()).key == key


def test_headers_and_properties_are_the_properties() -> None:
    headers = [
        {"key": "a", "value": b"header"},
        {"key": "b", "value": b"1"},
        {"key": "b", "value": b"2"},
        {"key": "none", "value": None},
        None,
    ]
    message = one(value=b"x", headers=headers, properties=[("a", "property")])
    own = {"a": "property", "b": "2"}
    assert {name: message.properties.get(name) for name in ("a", "b", "none")} == {
        **own,
        "none": None,
    }


@pytest.mark.parametrize("name", ["", "KEYS", "DELAY", "__SHARDINGKEY", "__RMQ.TRANSIENT.X"])
def test_properties_that_only_brokers_set_are_left_out(name: str) -> None:
    message = one(value=b"x", properties=[(name, "1"), ("own", "2"), ("empty", "")])
    assert set(message.properties) == {"own", "batchId", UNIQUE_ID}


def test_a_queue_given_by_name_is_kept() -> None:
    assert one(value=b"x", key="k", qid="broker-a_1").queue == "broker-a_1"
    assert one(value=b"x", key="k", qid=None).queue is None
    assert one(value=b"x", key="k").queue is None


# ---- repeats -------------------------------------------------------------------------------------


def test_the_same_rows_have_the_same_names_when_a_task_runs_again() -> None:
    columns: dict[str, Any] = {"value": [b"a", b"b", b"a"], "key": ["1", "2", "1"]}
    first, again = (ORIGIN.messages(columns, first=0) for _ in range(2))
    assert first == again
    assert len({message.properties[UNIQUE_ID] for message in first}) == 3
    assert len({name_of(message) for message in first}) == 3


def test_a_name_contains_query_batch_partition_and_row() -> None:
    assert name_of(one(row=11, value=b"x")).startswith("query/7/3/11/")


def test_names_do_not_depend_on_how_rows_are_cut_into_requests() -> None:
    whole = ORIGIN.messages({"value": [b"a", b"b", b"c"]}, first=0)
    cut = ORIGIN.messages({"value": [b"a"]}, first=0)
    cut += ORIGIN.messages({"value": [b"b", b"c"]}, first=1)
    assert whole == cut


@pytest.mark.parametrize(
    "change",
    [
        {"value": b"y"},
        {"key": "other"},
        {"tag": "other"},
        {"shardingKey": "other"},
        {"properties": [("a", "2")]},
        {"qid": "broker-a_1"},
    ],
)
def test_another_row_in_the_same_place_is_no_repeat(change: dict[str, Any]) -> None:
    """A source with another order of rows must not make consumers drop a message."""
    row: dict[str, Any] = {"value": b"x", "key": "k", "tag": "t", "shardingKey": "s"}
    row["properties"] = [("a", "1")]
    before, after = one(**row), one(**row | change)
    assert before.properties[UNIQUE_ID] != after.properties[UNIQUE_ID]
    assert name_of(before) != name_of(after)


def test_another_batch_or_partition_gives_other_names() -> None:
    messages = [
        one(origin, value=b"x")
        for origin in (ORIGIN, replace(ORIGIN, batch="query/8"), replace(ORIGIN, partition=4))
    ]
    assert len({message.properties[UNIQUE_ID] for message in messages}) == 3


def test_a_message_id_of_the_row_is_kept() -> None:
    assert one(value=b"x", messageId="ABC").properties[UNIQUE_ID] == "ABC"
    assert len(one(value=b"x", messageId=None).properties[UNIQUE_ID]) == 32


# ---- pace ----------------------------------------------------------------------------------------


def test_portions_cover_all_rows() -> None:
    cut = list(portions(7, 3, rows_per_second=None))
    assert [(part.start, part.stop) for part in cut] == [(0, 3), (3, 6), (6, 7)]


def test_a_rate_makes_requests_smaller() -> None:
    assert [part.stop for part in portions(20, 100, rows_per_second=50)] == [10, 20]
    assert [part.stop for part in portions(2, 100, rows_per_second=0.5)] == [1, 2]


def test_a_task_waits_until_its_rows_are_due() -> None:
    pace = Pace(10.0, began_s=100.0)
    assert pace.wait_s(5, now_s=100.1) == pytest.approx(0.4)
    assert pace.wait_s(5, now_s=100.5) == pytest.approx(0.5)
    assert pace.wait_s(5, now_s=107.0) == 0.0


# ---- sharding keys -------------------------------------------------------------------------------


def test_a_sharding_key_is_found_as_producers_find_it() -> None:
    assert sharding_key("$.order.id", b'{"order": {"id": 7.0}}') == "7"
    assert sharding_key("$.order.id", '{"order": {}}') is None
    assert sharding_key("$.order.id", None) is None


def test_a_value_in_which_no_path_can_be_followed_is_refused() -> None:
    with pytest.raises(RowRefused, match="not valid JSON"):
        sharding_key("$.order.id", b"plain text")
