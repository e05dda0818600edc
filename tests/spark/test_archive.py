"""Topics archived as Parquet contain every message once, also after crashes."""

from __future__ import annotations

import os
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from testkit.spark_site import SparkGateway
from thin_client.spark.jobs.archive import archive
from thin_client.spark.options import OptionError


def options(gateway: SparkGateway, topic: str, group: str, **more: str) -> dict[str, str]:
    return {"servers": gateway.servers, "group": group, "subscribe": topic, **more}


def places(spark: Any, path: Path) -> list[tuple[str, int]]:
    """Return the queue and offset of archived messages, as any Parquet reader finds them."""
    rows = spark.read.parquet(str(path)).select("qid", "offset").collect()
    return sorted((row.qid, row.offset) for row in rows)


def expected(*ends: int) -> list[tuple[str, int]]:
    return [(f"broker-a_{n}", offset) for n, end in enumerate(ends) for offset in range(end)]


def test_an_archive_has_each_message_once_and_continues_at_its_end(
    spark: Any, gateway: SparkGateway, tmp_path: Path
) -> None:
    topic, group = gateway.a_topic(), gateway.a_group()
    given = options(gateway, topic, group, maxOffsetsPerTrigger="8")
    gateway.send(topic, [b"%d" % n for n in range(20)], key="k", tag="t", properties={"a": "1"})
    done = archive(spark, given, str(tmp_path / "archive"))
    assert (done.rows, done.batches) == (20, 4)  # the first run records its start
    assert places(spark, tmp_path / "archive") == expected(10, 10)
    assert gateway.committed(group, topic) == {"broker-a_0": 10, "broker-a_1": 10}

    gateway.send(topic, [b"x", b"y"])
    assert archive(spark, given, str(tmp_path / "archive")).rows == 2
    assert places(spark, tmp_path / "archive") == expected(11, 11)
    assert gateway.committed(group, topic) == {"broker-a_0": 11, "broker-a_1": 11}

    row = spark.read.parquet(str(tmp_path / "archive")).where("value = '0'").first()
    assert (row.key, row.tag, row.properties, row.topic) == ("k", "t", {"a": "1"}, topic)
    assert row.date == datetime.now(UTC).date() or row.date == row.timestamp.date()


def test_a_repeated_batch_replaces_its_output(
    spark: Any, gateway: SparkGateway, tmp_path: Path
) -> None:
    """A crash between a batch and Spark's commit of it makes Spark run the batch again."""
    topic, path = gateway.a_topic(), tmp_path / "archive"
    given = options(gateway, topic, gateway.a_group(), maxOffsetsPerTrigger="6")
    gateway.send(topic, [b"%d" % n for n in range(12)])
    archive(spark, given, str(path))
    before = {each.name for each in path.rglob("*.parquet")}
    (path / "_checkpoint" / "commits" / "2").unlink()
    (path / "_checkpoint" / "commits" / ".2.crc").unlink(missing_ok=True)
    gateway.send(topic, [b"z"], queue=0)
    archive(spark, given, str(path))
    assert places(spark, path) == expected(7, 6)
    after = {each.name for each in path.rglob("*.parquet")}
    assert before - after, "the batch was not written again"


def test_unfinished_files_of_killed_jobs_are_deleted_after_a_day(
    spark: Any, gateway: SparkGateway, tmp_path: Path
) -> None:
    old, new = (tmp_path / "archive" / f".spark-staging-{age}" for age in ("old", "new"))
    for folder in (old, new):
        folder.mkdir(parents=True)
        (folder / "part.parquet").write_bytes(b"half a fi")
    two_days_ago = time.time_ns() - 2 * 86_400 * 10**9
    os.utime(old, ns=(two_days_ago, two_days_ago))
    given = options(gateway, gateway.a_topic(), gateway.a_group())
    assert archive(spark, given, str(tmp_path / "archive")).rows == 0
    assert (old.exists(), new.exists()) == (False, True)


@pytest.mark.parametrize(
    ("more", "given", "sentence"),
    [
        ({"endingOffsets": "latest"}, {}, "endingOffsets does not apply to readStream"),
        ({}, {"every": "1 second"}, "set continuous too"),
        ({}, {"continuous": True, "every": "soon"}, "soon"),
        ({"servers": "127.0.0.1:1", "requestTimeout": "nonsense"}, {}, "^requestTimeout"),
        ({"subscribe": "nothing-here"}, {}, r"^127\.0\.0\.1:\d+ refused ranges: "),
    ],
)
def test_invalid_archive_options_are_refused_in_a_sentence(
    spark: Any,
    gateway: SparkGateway,
    tmp_path: Path,
    more: dict[str, str],
    given: dict[str, Any],
    sentence: str,
) -> None:
    read = options(gateway, "orders", "pipeline") | more
    with pytest.raises(OptionError, match=sentence) as refused:
        archive(spark, read, str(tmp_path), **given)
    assert "\n" not in str(refused.value)


def test_a_checkpoint_that_a_vacuum_of_the_table_would_delete_is_refused(
    spark: Any, gateway: SparkGateway, tmp_path: Path
) -> None:
    """Without its checkpoint the archive would start over, and have all messages twice."""
    given = options(gateway, gateway.a_topic(), gateway.a_group())
    table = tmp_path / "table"
    with pytest.raises(OptionError, match=r"checkpoint is in the archive, where cleanups delete"):
        archive(spark, given, str(table), format="delta", checkpoint=f"file:{table}/checkpoint")
    archive(spark, given, str(table), format="delta", checkpoint=f"{table}/_state")
    assert (table / "_state" / "metadata").exists()


def test_a_restarted_archive_keeps_all_earlier_messages(
    spark: Any, gateway: SparkGateway, tmp_path: Path
) -> None:
    topic, path = gateway.a_topic(), tmp_path / "archive"
    given = options(gateway, topic, gateway.a_group())
    gateway.send(topic, [b"a", b"b"])
    archive(spark, given, str(path))
    shutil.rmtree(path / "_checkpoint")
    archive(spark, given | {"startingOffsets": "latest"}, str(path))
    gateway.send(topic, [b"c", b"d"])
    archive(spark, given | {"startingOffsets": "latest"}, str(path))
    assert places(spark, path) == expected(2, 2)
