"""Typed columns of JSON bodies in archives of each format, and their evolution."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from testkit.spark_site import SparkGateway
from tests.spark.lakes import FORMATS, Lake
from tests.spark.test_compaction import archived
from tests.spark.test_lakes import options
from thin_client.spark.jobs.archive import archive
from thin_client.spark.jobs.compact import compact
from thin_client.spark.lake.schemas import BodySchema
from thin_client.spark.lake.typed import TypedColumns
from thin_client.spark.options import OptionError


def typed(lake: Lake, spark: Any, *names: str) -> list[tuple[Any, ...]]:
    """Return the body of each message, with the columns *names*."""
    rows = lake.rows(spark)
    return sorted((row["value"], *(row[name] for name in names)) for row in rows)


@pytest.mark.parametrize("format", FORMATS)
def test_bodies_become_typed_columns_and_later_schemas_add_some(
    spark: Any, gateway: SparkGateway, tmp_path: Path, format: str
) -> None:
    lake, topic = Lake(format, tmp_path), gateway.a_topic(queues=1)
    given = options(gateway, topic)
    bodies = [
        b'{"amount": 7, "customer": {"id": "c1"}}',
        b'{"amount": "seven"}',
        b"[1]",
        b"no JSON",
        b"\xff\xfe",
    ]
    gateway.send(topic, bodies)
    first = json.dumps({topic: "amount bigint, customer struct<id: string>"})
    archive(spark, given, lake.path, **lake.settings, schemas=first)
    found = {row["value"]: row for row in lake.rows(spark)}
    assert sorted(found) == sorted(bodies)
    fit = found[bodies[0]]
    customer = fit["customer"]
    assert (fit["amount"], fit["bodyFits"]) == (7, True)
    assert (customer if isinstance(customer, dict) else customer.asDict()) == {"id": "c1"}
    for body in bodies[1:]:
        assert (found[body]["amount"], found[body]["bodyFits"]) == (None, False), body

    # By example: one more column, and one less.
    gateway.send(topic, [b'{"amount": 8, "paid": 1.5}'])
    second = json.dumps({topic: {"example": {"amount": 1, "paid": 0.5}}})
    archive(spark, given, lake.path, **lake.settings, schemas=second)
    gateway.send(topic, [b'{"amount": 9}'])
    archive(spark, given, lake.path, **lake.settings)  # without a schema
    rows = {row["value"]: row for row in lake.rows(spark)}
    assert len(rows) == len(bodies) + 2
    last = rows[b'{"amount": 8, "paid": 1.5}']
    assert (last["amount"], last["paid"], last["customer"]) == (8, 1.5, None)
    plain = rows[b'{"amount": 9}']
    assert (plain["amount"], plain["bodyFits"]) == (None, None)

    changed = json.dumps({topic: "amount string"})
    with pytest.raises(OptionError, match="has the column amount as bigint, not as string"):
        archive(spark, given, lake.path, **lake.settings, schemas=changed)
    assert len(lake.rows(spark)) == len(bodies) + 2


def test_columns_may_have_the_names_of_intermediate_ones(
    spark: Any, gateway: SparkGateway, tmp_path: Path
) -> None:
    lake, topic = Lake("parquet", tmp_path), gateway.a_topic(queues=1)
    gateway.send(topic, [b'{"_parsed0": 7, "_again0": 8}'])
    schemas = json.dumps({topic: "_parsed0 bigint, _again0 bigint"})
    archive(spark, options(gateway, topic), lake.path, **lake.settings, schemas=schemas)
    (row,) = lake.rows(spark)
    assert (row["_parsed0"], row["_again0"], row["bodyFits"]) == (7, 8, True)


def test_topics_with_schemas_and_without_share_a_table(
    spark: Any, gateway: SparkGateway, tmp_path: Path
) -> None:
    lake = Lake("delta", tmp_path)
    orders, refunds, plain = (gateway.a_topic(queues=1) for _ in range(3))
    given = options(gateway, f"{orders},{refunds},{plain}")
    gateway.send(orders, [b'{"sum": 1, "by": "a"}'])
    gateway.send(refunds, [b'{"sum": 2, "why": "b"}'])
    gateway.send(plain, [b'{"sum": 3}'])
    schemas = json.dumps({orders: "sum bigint, by string", refunds: "sum bigint, why string"})
    archive(spark, given, lake.path, **lake.settings, schemas=schemas)
    assert typed(lake, spark, "sum", "by", "why", "bodyFits") == [
        (b'{"sum": 1, "by": "a"}', 1, "a", None, True),
        (b'{"sum": 2, "why": "b"}', 2, None, "b", True),
        (b'{"sum": 3}', None, None, None, None),
    ]


def test_a_merge_of_folders_keeps_the_columns_of_later_batches(spark: Any, tmp_path: Path) -> None:
    lake = Lake("parquet", tmp_path)
    archived(spark, lake, batches=2, more=("'v' AS tag",), from_batch=2)
    compact(spark, lake.path)
    tags = sorted(str(row["tag"]) for row in lake.rows(spark))
    assert tags == ["None", "None", "v", "v"]


def test_a_decimal_with_a_huge_exponent_does_not_stop_the_archive(spark: Any) -> None:
    """Spark would write out all 600 million digits. Other decimals are exact."""
    columns = "n decimal(38,2), few array<decimal(4,1)>, by map<string,struct<n: decimal(4,1)>>"
    exact = Decimal("1234567890123456.79")
    some = {
        '{"n": 1234567890123456.785, "few": [1, "2.5"], "by": {"a": {"n": -3}}}': (
            (exact, [1, Decimal("2.5")], {"a": {"n": Decimal(-3)}}, True)
        ),
        '{"n": 1234567890123456.785, "id": "3c12e4567"}': (exact, None, None, True),
        '{"n": "1e3"}': (Decimal(1000), None, None, True),
        '{"n": 1e600000000}': (None, None, None, False),
        '{"n": "1e-600000000"}': (None, None, None, False),
        r'{"n": "1\\u00656\\uff10\\u0030000000"}': (None, None, None, False),
        r'{"n": "1e6\\uff10\\uff10\\uff10\\uff10\\uff10\\uff10"}': (None, None, None, False),
        r'{"n": "\\uff11e600000000"}': (None, None, None, False),
        '{"n": "1e6,0000,0000"}': (None, None, None, False),
        '{"n": "1e6\u0660\u0660\u0660\u0660\u0660\u0660\u0660\u0660"}': (None, None, None, False),
        '{"n": 1.5, "few": [1e600000000, 2]}': (Decimal("1.5"), [None, 2], None, False),
        '{"by": {"a": {"n": 1e600000000}, "b": null}}': (
            (None, None, {"a": {"n": None}, "b": None}, False)
        ),
        # The text is no number, but looks like one; the number would go by way of a double.
        '{"n": 1234567890123456.785, "id": "12e4567"}': (None, None, None, False),
        '{"n": 12345678901234.5, "id": "12e4567"}': (Decimal("12345678901234.5"), None, None, True),
        '{"n": true, "id": "12e4567"}': (None, None, None, False),
        '["12e4567"]': (None, None, None, False),
    }
    texts = ", ".join(f"'{body}'" for body in some)
    rows = spark.sql(f"SELECT 't' AS topic, explode(array({texts})) AS value")
    typed = TypedColumns.of(spark, [BodySchema("t", columns, None)], reserved=()).added_to(rows)
    found = [row.asDict(recursive=True) for row in typed.collect()]
    results = [(row["n"], row["few"], row["by"], row["bodyFits"]) for row in found]
    assert results == list(some.values())
    kinds = [field.dataType.simpleString() for field in typed.schema]
    assert kinds[2:5] == [
        "decimal(38,2)",
        "array<decimal(4,1)>",
        "map<string,struct<n:decimal(4,1)>>",
    ]


def test_a_value_beyond_the_range_of_its_type_does_not_fit(spark: Any) -> None:
    """Spark would wrap numbers around, or make them infinite or times of the year 55840."""
    columns = (
        "t timestamp, b tinyint, d date, n timestamp_ntz, f float, g double, a array<timestamp>,"
        " m map<string,struct<t: timestamp, b: tinyint, x: decimal(38,2)>>"
    )
    fits = {
        '{"t": 1700000000}': ("t", "2023-11-14 22:13:20"),
        '{"t": "1700-01-01", "id": 1234567890123456}': ("t", "1700-01-01 00:00:00"),
        '{"t": "2026", "id": 1234567890123456}': ("t", "2026-01-01 00:00:00"),
        '{"t": -62135596800}': ("t", "0001-01-01 00:00:00"),
        '{"b": -128, "id": 999}': ("b", "-128"),
        '{"b": 127}': ("b", "127"),
        '{"d": "9999-12-31"}': ("d", "9999-12-31"),
        '{"f": 3e38}': ("f", "3.0E38"),
        '{"g": 1e300, "id": 1234567890123456}': ("g", "1.0E300"),
    }
    beyond = [
        '{"t": 1700000000000}',
        '{"t": -62135596801}',
        '{"t": 18446744073709552}',
        '{"t": -9223372036854775808}',
        '{"t": "12345-01-01"}',
        '{"b": 200}',
        '{"d": "20260131"}',
        '{"d": "0000-01-01"}',
        '{"n": "99999-01-01T00:00:00"}',
        '{"f": 1e39}',
        '{"g": -1e400}',
        '{"a": [5, 18446744073709552]}',
        '{"m": {"k": {"t": 18446744073709552, "x": 1}}}',
        '{"m": {"k": {"t": 0, "x": 1}, "l": {"b": 255}}}',
    ]
    texts = ", ".join(f"'{text}'" for text in (*fits, *beyond))
    rows = spark.sql(f"SELECT 't' AS topic, explode(array({texts})) AS value")
    typed = TypedColumns.of(spark, [BodySchema("t", columns, None)], reserved=()).added_to(rows)
    shown = typed.selectExpr(
        "value", "bodyFits", *(f"string({name}) AS {name}" for name in "tbdnfgam")
    )
    found = {
        row.pop("value"): (row.pop("bodyFits"), {name: text for name, text in row.items() if text})
        for row in (each.asDict() for each in shown.collect())
    }
    assert found == {text: (True, dict([value])) for text, value in fits.items()} | {
        text: (False, {}) for text in beyond
    }


def test_a_topic_that_is_not_read_has_no_schema(spark: Any, tmp_path: Path) -> None:
    given = {"servers": "proxy", "group": "lake", "subscribe": "orders"}
    with pytest.raises(OptionError, match=r"^the schema file names the topic 'order', which is"):
        archive(spark, given, str(tmp_path / "x"), schemas='{"order": "n bigint"}')


@pytest.mark.parametrize(
    "kind",
    [
        "array<struct<>>",
        "struct<a:int,A:int>",
        "map<string,void>",
        "variant",
        "interval day to second",
    ],
)
def test_a_type_that_no_archive_stores_is_refused(spark: Any, kind: str) -> None:
    sentence = f"^the schema of topic t: n is {re.escape(kind)}: expected numbers, texts"
    with pytest.raises(OptionError, match=sentence):
        TypedColumns.of(spark, [BodySchema("t", f"n {kind}", None)], reserved=())


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ("bigint", "is 'bigint': expected columns"),
        ("n bigintt", "the schema of topic "),
        ("offset bigint", "has a column offset of its own"),
        ("headers string", "has a column headers of its own"),
        ("date date", "has a column date of its own"),
        ("bodyFits boolean", "has a column bodyFits of its own"),
    ],
)
def test_a_wrong_schema_is_refused_in_a_sentence(
    spark: Any, gateway: SparkGateway, tmp_path: Path, columns: str, sentence: str
) -> None:
    topic = gateway.a_topic()
    given = options(gateway, topic)
    with pytest.raises(OptionError, match=sentence) as refused:
        archive(spark, given, str(tmp_path / "x"), schemas=json.dumps({topic: columns}))
    assert "\n" not in str(refused.value)
