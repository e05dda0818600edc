"""Typed columns of JSON bodies in archives of each format, and their evolution."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from testkit.spark_site import SparkGateway
from tests.spark.lakes import FORMATS, Lake
from tests.spark.test_compaction import archived
from tests.spark.test_lakes import options
from thin_client.spark.jobs.archive import archive
from thin_client.spark.jobs.compact import compact
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


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ("bigint", "is 'bigint': expected columns"),
        ("n bigintt", "the schema of topic orders: "),
        ("offset bigint", "has a column offset of its own"),
        ("headers string", "has a column headers of its own"),
        ("date date", "has a column date of its own"),
        ("bodyFits boolean", "has a column bodyFits of its own"),
    ],
)
def test_a_wrong_schema_is_refused_in_a_sentence(
    spark: Any, gateway: SparkGateway, tmp_path: Path, columns: str, sentence: str
) -> None:
    given = options(gateway, gateway.a_topic())
    with pytest.raises(OptionError, match=sentence) as refused:
        archive(spark, given, str(tmp_path / "x"), schemas=json.dumps({"orders": columns}))
    assert "\n" not in str(refused.value)
