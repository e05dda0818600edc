"""Output of jobs: text files beside the tables, and the refusal to overwrite."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from thin_client.spark.connected import is_connected
from thin_client.spark.lake.names import local_path
from thin_client.spark.options import OptionError


@contextmanager
def refusing_existing(out: str, what: str) -> Iterator[None]:
    """Raise OptionError if Spark finds an existing folder in *out*, which then holds *what*."""
    try:
        yield
    except AnalysisException as error:
        if error.getCondition() != "PATH_ALREADY_EXISTS":
            raise
        raise OptionError(
            f"{out} already holds {what}: choose another folder, or set overwrite"
        ) from None


def write_text(spark: SparkSession, path: str, text: str) -> None:
    """Write *text* to *path*: a file if the path is local; elsewhere, and at a server of Spark
    Connect, Spark writes a folder of that name with one text file in it.
    """
    local = local_path(path)
    if local is not None and not is_connected(spark):
        file = Path(local)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return
    # Spark ends each row with a line feed.
    rows = spark.createDataFrame([(text.removesuffix("\n"),)], "value string").coalesce(1)
    rows.write.mode("overwrite").text(path)
