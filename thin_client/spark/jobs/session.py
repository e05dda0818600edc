"""A Spark session for one job, and what went wrong in it as a sentence."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from thin_client.spark.jobs.words import sentence
from thin_client.spark.options import OptionError

#: What a job sets unless it is told otherwise: a terminal, not a server, looks at what it writes.
_DEFAULTS = {
    # What goes wrong is told as a sentence; --conf spark.log.level=WARN shows what led to it.
    "spark.log.level": "OFF",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # What other readers of Parquet understand; the older type of Spark's has no time zone.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}


@contextmanager
def job_session(
    name: str, *, master: str | None, settings: Mapping[str, str]
) -> Iterator[SparkSession]:
    """A session that ends with the context. *master*: None leaves it to *settings*, or to what
    spark-submit said. Raises OptionError where Spark cannot run.
    """
    if master is not None:
        _check_java()
    if master is not None and master.startswith("local"):
        # Spark looks for python3 on the path, which need not be where this package is installed.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    _show_helpers(settings.get("spark.submit.pyFiles", ""))
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    for key, value in (_DEFAULTS | dict(settings)).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()


@contextmanager
def failing_in_words() -> Iterator[None]:
    """What Spark raises becomes an OptionError with one sentence."""
    try:
        yield
    except PySparkException as error:
        raise OptionError(sentence(error)) from error


def _show_helpers(files: str) -> None:
    """Put what goes to executors on the path of the processes that Spark runs beside the driver,
    as spark-submit does; by itself a session forgets those of streams.
    """
    paths = [str(Path(file).absolute()) for file in filter(None, files.split(","))]
    if paths:
        there = filter(None, [os.environ.get("PYTHONPATH")])
        os.environ["PYTHONPATH"] = os.pathsep.join([*paths, *there])


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java: Any = Path(home, "bin", "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        where = f"at JAVA_HOME, {home}" if home else "on the path"
        raise OptionError(
            f"there is no Java {where}: Spark needs version 17 or newer; install one, or set"
            " JAVA_HOME"
        )
