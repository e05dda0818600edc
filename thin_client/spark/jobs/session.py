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

from thin_client.spark.jobs.settings import afterwards, at_start, master_of
from thin_client.spark.jobs.words import sentence
from thin_client.spark.options import OptionError

#: Set by spark-submit for the program that it runs, whose Java process then exists already.
_SUBMITTED = "PYSPARK_GATEWAY_PORT"


@contextmanager
def job_session(
    name: str, *, master: str | None, settings: Mapping[str, str]
) -> Iterator[SparkSession]:
    """Yield a session that ends with the context. *master*: None for the default, empty to leave it
    to *settings*. Raises OptionError if Java is missing.
    """
    submitted = _SUBMITTED in os.environ
    master = master_of(master, submitted=submitted)
    if master is not None:
        _check_java()
    if master is not None and master.startswith("local"):
        # Spark's default is the python3 on the path, which may lack this package.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    _show_helpers(settings.get("spark.submit.pyFiles", ""))
    builder = SparkSession.builder
    if master is not None:
        builder = builder.master(master)
    for key, value in at_start(name, settings, submitted=submitted).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    try:
        for key, value in afterwards(settings, session.sparkContext.getConf().contains).items():
            session.conf.set(key, value)
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
