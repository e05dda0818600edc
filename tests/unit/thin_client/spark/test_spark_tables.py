"""Options of a catalog's tables: Spark passes them only when a table is created."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from thin_client.spark.option_table import READ, STREAM, WRITE
from thin_client.spark.option_values import OptionError
from thin_client.spark.tables import OPTIONS, effective, for_operation, new_table

GIVEN = {"servers": "proxy", "group": "lake", "subscribe": "orders", "startingoffsets": "earliest"}


def created(options: dict[str, str]) -> dict[str, str]:
    """Return the properties of a table that is being created, as Spark passes them."""
    prefixed = {f"option.{name}": value for name, value in options.items()}
    return {"provider": "orderlane", "owner": "root", **options, **prefixed}


def fields(options: dict[str, str] | None) -> list[Any]:
    """Return the columns of a table with *options*."""
    metadata = {} if options is None else {OPTIONS: options}
    return [
        SimpleNamespace(name="key", metadata={}),
        SimpleNamespace(name="value", metadata=metadata),
    ]


def test_only_the_properties_of_a_new_table_name_its_format() -> None:
    assert new_table(created(GIVEN)) == GIVEN
    assert new_table(GIVEN) is None


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "group is missing|servers is missing|no topic to read"),
        ({**GIVEN, "subscrib": "x"}, "did you mean subscribe"),
        ({**GIVEN, "subscribepattern": "x"}, "exclude each other"),
        ({**GIVEN, "startingoffsets": "soon"}, "startingOffsets"),
        ({"servers": "proxy", "topic": "orders", "batchsize": "many"}, "batchSize"),
    ],
)
def test_a_table_that_cannot_be_read_is_refused_when_it_is_created(
    options: dict[str, str], sentence: str
) -> None:
    with pytest.raises(OptionError, match=sentence):
        new_table(created(options))


def test_a_table_may_have_options_of_all_operations() -> None:
    table = GIVEN | {"batchsize": "7", "maxoffsetspertrigger": "9", "jobid": "j"}
    assert new_table(created(table)) == table
    assert for_operation(table, READ) == GIVEN
    assert for_operation(table, STREAM) == GIVEN | {"maxoffsetspertrigger": "9"}
    assert for_operation(table, WRITE) == {
        "servers": "proxy",
        "batchsize": "7",
        "jobid": "j",
        "topic": "orders",
    }


@pytest.mark.parametrize(
    ("table", "topic"),
    [
        ({"subscribe": "a, b"}, None),
        ({"subscribepattern": "a.*"}, None),
        ({"subscribe": "a,b", "topic": "c"}, "c"),
        ({"subscribe": " a "}, "a"),
        ({"topic": "c"}, "c"),
    ],
)
def test_rows_go_to_the_topic_that_a_table_reads(table: dict[str, str], topic: str | None) -> None:
    assert for_operation(table, WRITE).get("topic") == topic


def test_options_of_a_query_replace_those_of_its_table() -> None:
    assert effective(fields(GIVEN), {}, READ) == GIVEN
    assert effective(fields(GIVEN), {"startingOffsets": "latest"}, READ) == GIVEN | {
        "startingoffsets": "latest"
    }
    assert effective(fields(None), {"servers": "x"}, READ) == {"servers": "x"}


@pytest.mark.parametrize("where", [READ, STREAM, WRITE])
def test_a_table_that_was_created_without_its_options_is_refused(where: str) -> None:
    with pytest.raises(OptionError, match=r"CREATE TABLE name USING orderlane OPTIONS"):
        effective(fields(None), {}, where)
