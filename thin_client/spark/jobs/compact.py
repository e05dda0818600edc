"""Merge the small files of an archive, day by day, and delete what is no longer kept."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, date, datetime

from pyspark.sql import SparkSession

from thin_client.spark.jobs.archive import file_size
from thin_client.spark.jobs.session import errors_as_sentences
from thin_client.spark.lake.compaction import Compacted
from thin_client.spark.lake.formats import checked, compaction
from thin_client.spark.options import OptionError

#: Least retention: the files of an attempt that is being written belong to no version yet.
_LEAST_HOURS = 24


def compact(
    spark: SparkSession,
    path: str,
    *,
    format: str = "parquet",
    catalog: Mapping[str, str] | None = None,
    before: str | None = None,
    delete_before: str | None = None,
    target_file_size: str = "128m",
    retention_hours: int | None = None,
    checkpoint: str | None = None,
) -> Compacted:
    """Replace small files by larger ones, also while the archive runs.

    Args:
        spark: the session of the job.
        path: the archive, as of ``archive``.
        format: ``parquet``, ``delta`` or ``iceberg``.
        catalog: options of the Iceberg catalog, beside the user's configuration of ``pyiceberg``.
        before: only days before this one, as in ``"2026-01-31"``; default: today, in UTC.
        delete_before: first delete all rows of the days before this one, at most today; None:
            none.
        target_file_size: approximate size of a file, 64k to 16g; files of three quarters of it or
            more stay.
        retention_hours: then delete the files of a Delta table that no version of these last hours
            needs, or the snapshots of an Iceberg table before them; at least 24, because a running
            archive and readers need newer ones. None: delete nothing. Refused for Parquet
            folders, which have no earlier versions.
        checkpoint: the checkpoint of an archive of Parquet folders, if it is not in *path*.

    Raises OptionError, with one sentence, if the job fails. A repeated job continues.
    """
    now = today(time.time_ns() // 1_000_000)
    target, limit = file_size(target_file_size), before or now
    _check_day("before", before)
    _check_day("delete_before", delete_before)
    if delete_before is not None and delete_before > now:
        raise OptionError(f"delete_before is {delete_before}: expected today, {now}, or earlier")
    if retention_hours is not None and retention_hours < _LEAST_HOURS:
        raise OptionError(
            f"the retention is {retention_hours} hours: expected at least {_LEAST_HOURS}"
        )
    if retention_hours is not None and checked(format, catalog or {}) == "parquet":
        raise OptionError(
            "the retention is for the formats delta and iceberg: folders of Parquet files have no"
            " earlier versions, and merged batches are deleted at once"
        )
    done = Compacted()
    with (
        errors_as_sentences(),
        closing(
            compaction(spark, path, format=format, catalog=catalog or {}, checkpoint=checkpoint)
        ) as lake,
    ):
        days = lake.days()
        if delete_before is not None and (old := [day for day in days if day < delete_before]):
            lake.drop(delete_before)
            done += Compacted(days=len(old))
        for day in days:
            if (delete_before or "") <= day < limit:
                done += lake.merge(day, target)
        if retention_hours is not None:
            done += Compacted(deleted=lake.clean(retention_hours))
    return done


def today(now_ms: int) -> str:
    """Return the UTC day of a time in milliseconds since 1970."""
    return datetime.fromtimestamp(now_ms / 1000, UTC).date().isoformat()


def _check_day(name: str, text: str | None) -> None:
    try:
        if text is None or date.fromisoformat(text).isoformat() == text:
            return
    except ValueError:
        pass
    raise OptionError(f"{name} is {text!r}: expected a day, as in 2026-01-31")
