"""Merging the batches of a finished day of Parquet folders; ``merging.py`` has the steps.

It needs a file system that renames folders atomically, as an archive of folders does anyway.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from thin_client.spark.error_lines import line_of
from thin_client.spark.lake.compaction import Compacted, small_folders
from thin_client.spark.lake.files import (
    children,
    delete,
    exists,
    files_below,
    move,
    read_lines,
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
_WORK, _JOURNAL = ".orderlane-compact", "journal.json"


def refuse_unfinished(spark: SparkSession, path: str) -> None:
    """Raise OptionError while folders of the archive at *path* change places, also if a job died
    meanwhile: rows of a day may be in none of its folders.
    """
    if read_lines(spark, f"{path.rstrip('/')}/{_WORK}/*/{_JOURNAL}"):
        raise OptionError(
            f"a compaction of {path} is under way or was interrupted, and readers may miss rows:"
            f" wait for it, or finish it with orderlane spark compact {path}"
        )


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
        try:
            self._query, self._last = query_of(metadata), last
        except ValueError as error:
            raise OptionError(f"{self.checkpoint}/metadata: {error}") from None
        for each in children(self.spark, self._at("")):
            self._finish(each.path)
        self._tidy()

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
        sizes = {batch: [each.size for each in files[batch]] for batch in files}
        chosen = small_folders(sizes, target)
        if not chosen:
            return Compacted()
        count = files_for(sum(sum(sizes[name]) for name in chosen), target)
        unique = uuid.uuid4().hex
        rows = self._rewrite([f"{folder}/{batch}" for batch in chosen], count, unique)
        plan = Merge(f"{_DAY}{day}", tuple(chosen), merged_name(self._query, unique), rows)
        replace_text(self.spark, f"{self._at(unique)}/{_JOURNAL}", plan.text())
        self._finish(unique)
        self._tidy()
        after = len(files_below(self.spark, f"{folder}/{plan.target}"))
        return Compacted(sum(len(files[name]) for name in chosen), after)

    def clean(self, hours: int) -> int:
        """Do nothing: merged batches are deleted at once."""
        return 0

    def close(self) -> None:
        """Do nothing: there is no connection."""

    def _rewrite(self, folders: list[str], count: int, unique: str) -> int:
        """Write the rows of *folders* to *count* files; return the number of rows."""
        with as_lake_files(self.spark, None):
            # Later batches may have more columns.
            rows = self.spark.read.option("mergeSchema", "true").parquet(*folders)
            # Ranges of offsets, so that files of a queue follow each other.
            rows.repartitionByRange(count, TOPIC, *ORDER).sortWithinPartitions(
                TOPIC, *ORDER
            ).write.parquet(f"{self._at(unique)}/new")
            return int(rows.count())

    def _finish(self, unique: str) -> None:
        """Finish the merge *unique* if it has a journal, and delete what is left of one without.

        Raises OptionError if the merge was undone.
        """
        folder = self._at(unique)
        text = read_text(self.spark, f"{folder}/{_JOURNAL}")
        if text is None:
            # Nothing else: another run may be writing the journal, and then moves batches here.
            delete(self.spark, f"{folder}/new")
            delete(self.spark, f"{folder}/{_JOURNAL}.new")
            if not children(self.spark, folder):
                delete(self.spark, folder)
            return
        try:
            plan = Merge.read(text)
        except ValueError as error:
            raise OptionError(f"{folder}/{_JOURNAL}: {error}") from None
        try:
            whole = self._replace(folder, plan)
        except Py4JJavaError as error:
            raise OptionError(f"cannot merge below {self.path}: {line_of(error)}") from None
        delete(self.spark, f"{folder}/old")
        delete(self.spark, folder)
        if not whole:
            raise OptionError(
                f"batches of {self.path} changed while they were merged, so the merge was undone:"
                " run one compaction of an archive at a time"
            )

    def _replace(self, folder: str, plan: Merge) -> bool:
        """Replace the batches of *plan* by the merged files in *folder*; undo that and return False
        if a batch or a row is missing.
        """
        day = f"{self.path}/{plan.day}"
        if exists(self.spark, f"{folder}/new") and all(
            self._take(f"{day}/{batch}", f"{folder}/old/{batch}") for batch in plan.batches
        ):
            move(self.spark, f"{folder}/new", f"{day}/{plan.target}")
        if self._rows(f"{day}/{plan.target}") == plan.rows:
            return True
        moved = [batch for batch in plan.batches if exists(self.spark, f"{folder}/old/{batch}")]
        if all(batch in moved or exists(self.spark, f"{day}/{batch}") for batch in plan.batches):
            delete(self.spark, f"{day}/{plan.target}")
        for batch in moved:
            move(self.spark, f"{folder}/old/{batch}", f"{day}/{batch}")
        return False

    def _take(self, batch: str, old: str) -> bool:
        """Move *batch* to *old* unless it is there; return whether it is."""
        if not exists(self.spark, old):
            if not exists(self.spark, batch):
                return False
            move(self.spark, batch, old)
        return True

    def _rows(self, folder: str) -> int:
        if not files_below(self.spark, folder):
            return 0
        return int(self.spark.read.parquet(folder).count())

    def _tidy(self) -> None:
        if not children(self.spark, self._at("")):
            delete(self.spark, self._at(""))

    def _at(self, unique: str) -> str:
        return f"{self.path}/{_WORK}/{unique}".rstrip("/")
