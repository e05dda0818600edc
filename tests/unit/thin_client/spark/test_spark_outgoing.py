"""Conversion of rows to messages: columns of a sink, names of messages, rate of a task."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

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
    texts = [(name, "string") for name in ("key", "tag", "topic", "shardingKey", "messageId")]
    check_columns([VALUE, ("properties", "map<string,string>"), *texts], topic=None)


@pytest.mark.parametrize("kind", ["string", "binary", "varchar(20)", "string collate UNICODE_CI"])
def test_a_value_is_text_or_bytes(kind: str) -> None:
    check_columns([("value", kind)], topic="orders")


@pytest.mark.parametrize(
    ("columns", "topic", "sentence"),
    [
        ([("key", "string")], "orders", "column 'value' is missing"),
        ([VALUE], None, "set the option topic, or add the column 'topic'"),
        ([("value", "bigint")], "orders", "column 'value' is bigint: cast it to string or binary"),
        ([VALUE, ("key", "binary")], "orders", "column 'key' is binary: cast it to string"),
        ([VALUE, ("properties", "map<string,int>")], "orders", "cast it to map<string,string>"),
        ([VALUE, ("offset", "bigint")], "orders", "column 'offset' cannot be written"),
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
        ({"value": None}, "row 5 of partition 3 has no value"),
        ({"value": b""}, "row 5 of partition 3 has an empty value"),
        ({"value": b"x", "properties": [("colour", None)]}, "property 'colour' without a value"),
        ({"value": b"x", "properties": [("colour", "")]}, "property 'colour' without a value"),
    ],
)
def test_a_row_that_no_broker_takes_is_named(columns: dict[str, Any], why: str) -> None:
    with pytest.raises(RowRefused, match=why):
        one(row=5, **columns)


# ---- repeats -------------------------------------------------------------------------------------


def test_the_same_rows_have_the_same_names_when_a_task_runs_again() -> None:
    columns = {"value": [b"a", b"b", b"a"], "key": ["1", "2", "1"]}
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
    ],
)
def test_another_row_in_the_same_place_is_no_repeat(change: dict[str, Any]) -> None:
    """A source with another order of rows must not make consumers drop a message."""
    row = {"value": b"x", "key": "k", "tag": "t", "shardingKey": "s", "properties": [("a", "1")]}
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
