"""Files of Spark's file systems, used from the driver.

PySpark has no public API for them; these functions call Hadoop's classes in Spark's Java process.
So they take every path that Spark reads and writes, with the same settings and credentials. A
session of Spark Connect has no such process: there Spark lists and reads files as data, and cannot
rename, replace or delete them.
"""

from __future__ import annotations

import re
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from thin_client.spark.connected import is_connected
from thin_client.spark.error_lines import line_of
from thin_client.spark.lake.names import StoredFile
from thin_client.spark.option_values import OptionError

#: Spark's condition for a path at which there is nothing.
_NOTHING = "PATH_NOT_FOUND"


def qualified(spark: SparkSession, path: str) -> str:
    """Return *path* with its file system; a plain absolute path if it is the local one.

    Raises OptionError for a relative path at a server of Spark Connect, whose folder is not known.
    """
    if is_connected(spark):
        if "://" not in path and not path.startswith(("/", "file:/")):
            raise OptionError(
                f"{path} is relative to a folder of the server of Spark Connect: expected an"
                " absolute path, or one with a scheme"
            )
        return _plain(path)
    files, place = _place(spark, path)
    return _plain(str(files.makeQualified(place).toString()))


def files_below(spark: SparkSession, folder: str) -> list[StoredFile]:
    """Return the files below *folder* whose names and folders have no leading ``.`` or ``_``; none
    if it does not exist.
    """
    if is_connected(spark):
        return _listed(spark, folder)
    files, place = _place(spark, folder)
    if not files.exists(place):
        return []
    root = str(files.makeQualified(place).toString()).rstrip("/") + "/"
    found, statuses = [], files.listFiles(place, True)
    while statuses.hasNext():
        status = statuses.next()
        path = str(status.getPath().toString()).removeprefix(root)
        if not any(name.startswith((".", "_")) for name in path.split("/")):
            found.append(StoredFile(path, status.getLen(), status.getModificationTime()))
    return sorted(found, key=lambda each: each.path)


def children(spark: SparkSession, folder: str) -> list[StoredFile]:
    """Return what is directly in *folder*, folders too; nothing if it does not exist."""
    files, place = _place(spark, folder)
    if not files.exists(place):
        return []
    return sorted(
        (
            StoredFile(each.getPath().getName(), each.getLen(), each.getModificationTime())
            for each in files.listStatus(place)
        ),
        key=lambda each: each.path,
    )


def exists(spark: SparkSession, path: str) -> bool:
    """Return whether there is a file or folder at *path*."""
    files, place = _place(spark, path)
    return bool(files.exists(place))


def delete(spark: SparkSession, path: str) -> None:
    """Delete the file or folder at *path*, if it exists. Raises OptionError if that fails."""
    files, place = _place(spark, path)
    if not files.delete(place, True) and files.exists(place):
        raise OptionError(f"cannot delete {path}")


def move(spark: SparkSession, source: str, target: str) -> None:
    """Rename a file or folder; *target* must not exist. Raises OptionError."""
    files, place = _place(spark, source)
    there = _place(spark, target)[1]
    files.mkdirs(there.getParent())
    # A rename to an existing folder would move into it.
    if files.exists(there) or not files.rename(place, there):
        raise OptionError(f"cannot rename {source} to {target}")


def read_text(spark: SparkSession, path: str) -> str | None:
    """Return the content of a small file; None if it does not exist."""
    if is_connected(spark):
        return _content(spark, path)
    files, place = _place(spark, path)
    if not files.exists(place):
        return None
    stream = files.open(place)
    try:
        return bytes(stream.readAllBytes()).decode()
    finally:
        stream.close()


def read_lines(spark: SparkSession, folder: str) -> list[str]:
    """Return the lines of the text files in *folder*; none if it does not exist."""
    try:
        return [row[0] for row in spark.read.text(folder).collect()]
    except AnalysisException as error:
        if error.getCondition() == _NOTHING:
            return []
        raise


def replace_text(spark: SparkSession, path: str, text: str) -> None:
    """Replace the content of a file: a reader finds the old or the new one (if the file system
    renames atomically).

    Raises OptionError if that fails.
    """
    hadoop, configuration = _hadoop(spark)
    files, place = _place(spark, path)
    new = _place(spark, f"{path}.new")[1]
    try:
        stream = files.create(new, True)
        try:
            stream.write(text.encode())
            stream.hsync()
        finally:
            stream.close()
        # Unlike a FileSystem, a FileContext replaces a file in one step.
        rename = getattr(hadoop.fs, "Options$Rename")
        how = spark.sparkContext._gateway.new_array(rename, 1)
        how[0] = rename.OVERWRITE
        whole = files.makeQualified(place)
        hadoop.fs.FileContext.getFileContext(whole.toUri(), configuration).rename(
            files.makeQualified(new), whole, how
        )
    except Py4JJavaError as error:
        raise OptionError(f"cannot write {path}: {line_of(error)}") from None


@dataclass(frozen=True, slots=True)
class SparkFile:
    """A small file at the Spark path *path*."""

    spark: SparkSession
    path: str

    def __str__(self) -> str:
        return self.path

    def read(self) -> str | None:
        """Return the content; None if there is no file."""
        return read_text(self.spark, self.path)

    def replace(self, text: str) -> None:
        """Replace the content in one step. Raises OptionError."""
        replace_text(self.spark, self.path, text)

    def held(self) -> AbstractContextManager[None]:
        """Do nothing: Spark's file systems have no locks."""
        return nullcontext()


def _listed(spark: SparkSession, folder: str) -> list[StoredFile]:
    """Return ``files_below`` of a session of Spark Connect; Spark leaves hidden files out."""
    files = spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(folder)
    columns = ("path", "length", "unix_millis(modificationTime)")
    try:
        rows = files.selectExpr(*columns).collect()
    except AnalysisException as error:
        if error.getCondition() == _NOTHING:
            return []
        raise
    root = f"{_plain(folder).rstrip('/')}/"
    found = [StoredFile(_plain(path).removeprefix(root), *rest) for path, *rest in rows]
    return sorted(found, key=lambda each: each.path)


def _content(spark: SparkSession, path: str) -> str | None:
    lines = read_lines(spark, path)
    return "\n".join(lines) if lines else None


def _plain(path: str) -> str:
    return re.sub(r"^file:(//)?(?=/)", "", path)


def _place(spark: SparkSession, path: str) -> tuple[Any, Any]:
    hadoop, configuration = _hadoop(spark)
    place = hadoop.fs.Path(path)
    return place.getFileSystem(configuration), place


def _hadoop(spark: SparkSession) -> tuple[Any, Any]:
    """Return Hadoop's Java package and its configuration. Raises OptionError without them."""
    if is_connected(spark):
        raise OptionError(
            "Spark Connect cannot rename, replace or delete files: run this job in a session of its"
            " own, with --master spark://…, yarn or local[*]"
        )
    context = spark.sparkContext
    return context._jvm.org.apache.hadoop, context._jsc.hadoopConfiguration()
