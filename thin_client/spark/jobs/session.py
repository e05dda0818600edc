"""A Spark session for one job, and the conversion of its errors to one sentence."""

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

#: Default settings of a job, which runs in a terminal, not on a server.
_DEFAULTS = {
    # Errors are shown as one sentence; --conf spark.log.level=WARN shows their context.
    "spark.log.level": "OFF",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # For other readers of Parquet; Spark's older type has no time zone.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}


@contextmanager
def job_session(
    name: str, *, master: str | None, settings: Mapping[str, str]
) -> Iterator[SparkSession]:
    """Yield a session that ends with the context. *master*: None leaves it to *settings* or
    spark-submit. Raises OptionError if Java is missing.
    """
    if master is not None:
        _check_java()
    if master is not None and master.startswith("local"):
        # Spark's default is the python3 on the path, which may lack this package.
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
def errors_as_sentences() -> Iterator[None]:
    """Convert Spark's exceptions to OptionErrors with one sentence."""
    try:
        yield
    except PySparkException as error:
        raise OptionError(sentence(error)) from error


def _show_helpers(files: str) -> None:
    """Put the executors' Python files on the path of Spark's processes beside the driver.

    spark-submit does so; a session alone omits the processes of streams.
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
        raise OptionError(f"no Java found {where}: install Java 17 or newer, or set JAVA_HOME")
