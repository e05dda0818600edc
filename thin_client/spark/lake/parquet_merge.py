"""Merging the batches of a finished day of Parquet folders; ``merging.py`` has the steps.

It needs a file system that renames folders atomically, as an archive of folders does anyway.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from thin_client.spark.lake.compaction import Compacted, small
from thin_client.spark.lake.files import (
    children,
    delete,
    exists,
    files_below,
    move,
    read_text,
    replace_text,
)
from thin_client.spark.lake.kept_format import refuse_table
from thin_client.spark.lake.merging import (
    Merge,
    last_committed,
    mergeable,
    merged_name,
    query_of,
)
from thin_client.spark.lake.names import DATE, TOPIC, files_for
from thin_client.spark.lake.rows import ORDER, as_lake_files
from thin_client.spark.option_values import OptionError

_DAY = f"{DATE}="


@dataclass(slots=True)
class ParquetMerge:
    """The folder *path*, whose archive has its *checkpoint* there."""

    spark: SparkSession
    path: str
    checkpoint: str
    _query: str = field(init=False)
    _last: int = field(init=False)

    def __post_init__(self) -> None:
        refuse_table(self.spark, self.path)
        metadata = read_text(self.spark, f"{self.checkpoint}/metadata")
        names = [each.path for each in children(self.spark, f"{self.checkpoint}/commits")]
        last = last_committed(names)
        if metadata is None or last is None:
            raise OptionError(
                f"{self.checkpoint} is not the checkpoint of an archive with finished batches: only"
                " these can be merged; name the archive's checkpoint"
            )
        self._query, self._last = query_of(metadata), last
        self._finish()

    def days(self) -> list[str]:
        """Return the days that have a folder."""
        names = [each.path for each in children(self.spark, self.path)]
        return [name.removeprefix(_DAY) for name in names if name.startswith(_DAY)]

    def drop(self, before: str) -> None:
        """Delete the folders of the days before *before*."""
        for day in self.days():
            if day < before:
                delete(self.spark, f"{self.path}/{_DAY}{day}")

    def merge(self, day: str, target: int) -> Compacted:
        """Replace the small batches of *day* by one folder."""
        folder = f"{self.path}/{_DAY}{day}"
        files = {
            batch: files_below(self.spark, f"{folder}/{batch}")
            for batch in mergeable(
                (each.path for each in children(self.spark, folder)), self._query, self._last
            )
        }
        sizes = {batch: sum(each.size for each in files[batch]) for batch in files}
        chosen = small(
            # A folder with several files counts as small: its files may be.
            ((name, sizes[name] // max(1, len(files[name]))) for name in files),
            target,
        )
        if not chosen:
            return Compacted()
        count = files_for(sum(sizes[name] for name in chosen), target)
        self._rewrite([f"{folder}/{batch}" for batch in chosen], count)
        plan = Merge(f"{_DAY}{day}", tuple(chosen), merged_name(self._query, uuid.uuid4().hex))
        replace_text(self.spark, self._at("journal.json"), plan.text())
        self._finish()
        after = len(files_below(self.spark, f"{folder}/{plan.target}"))
        return Compacted(sum(len(files[name]) for name in chosen), after)

    def clean(self, hours: int) -> int:
        """Do nothing: merged batches are deleted at once."""
        return 0

    def _rewrite(self, folders: list[str], count: int) -> None:
        with as_lake_files(self.spark, None):
            # Later batches may have more columns.
            rows = self.spark.read.option("mergeSchema", "true").parquet(*folders)
            # Ranges of offsets, so that files of a queue follow each other.
            rows.repartitionByRange(count, TOPIC, *ORDER).sortWithinPartitions(
                TOPIC, *ORDER
            ).write.mode("overwrite").parquet(self._at("new"))

    def _finish(self) -> None:
        """Finish a merge with a journal, and delete what is left of one without."""
        text = read_text(self.spark, self._at("journal.json"))
        if text is not None:
            try:
                self._replace(Merge.read(text))
            except ValueError as error:
                raise OptionError(f"{self._at('journal.json')}: {error}") from None
            except Py4JJavaError as error:
                raise OptionError(
                    f"cannot merge below {self.path}: {error.java_exception.getMessage()}"
                ) from None
            delete(self.spark, self._at("journal.json"))
        delete(self.spark, f"{self.path}/.orderlane-compact")

    def _replace(self, plan: Merge) -> None:
        day = f"{self.path}/{plan.day}"
        if exists(self.spark, self._at("new")):
            for batch in plan.batches:
                if exists(self.spark, f"{day}/{batch}"):
                    move(self.spark, f"{day}/{batch}", self._at(f"old/{batch}"))
            move(self.spark, self._at("new"), f"{day}/{plan.target}")

    def _at(self, name: str) -> str:
        return f"{self.path}/.orderlane-compact/{name}"
