"""A Spark session for one job, and the conversion of its errors to one sentence."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from thin_client.spark.jobs.settings import (
    PYTHON_FILES,
    afterwards,
    at_server,
    at_start,
    master_of,
    remote_of,
    without_secrets,
)
from thin_client.spark.jobs.words import foreign_sentence, sentence
from thin_client.spark.options import OptionError

#: Set by spark-submit for the program that it runs, whose Java process then exists already.
_SUBMITTED = "PYSPARK_GATEWAY_PORT"

#: Port of Spark Connect by default, and the time to wait for a connection.
_CONNECT_PORT, _ANSWER_S = 15002, 10.0
#: Variables that make gRPC connect through a proxy for HTTP.
_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")


@contextmanager
def job_session(
    name: str, *, master: str | None, settings: Mapping[str, str]
) -> Iterator[SparkSession]:
    """Yield a session that ends with the context. *master*: None for the default, empty to leave it
    to *settings*, ``sc://…`` for a server of Spark Connect. Raises OptionError if Java or a package
    is missing.
    """
    submitted = _SUBMITTED in os.environ
    if (remote := remote_of(master, settings, os.environ)) is not None:
        with _remote_session(remote, settings, submitted=submitted) as session:
            yield session
        return
    master = master_of(master, submitted=submitted)
    if master is not None:
        _check_java()
    if master is not None and master.startswith("local"):
        # Spark's default is the python3 on the path, which may lack this package.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    _show_helpers(settings.get(PYTHON_FILES, ""))
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
def _remote_session(
    address: str, settings: Mapping[str, str], *, submitted: bool
) -> Iterator[SparkSession]:
    """Yield a session at the server of Spark Connect at *address*."""
    given = at_server(address, settings, submitted=submitted)
    _check_answer(address)
    try:
        session = SparkSession.builder.remote(address).getOrCreate()
    except ImportError as error:
        raise OptionError(
            "Spark Connect needs packages that are not installed, the extra 'spark-connect', as in"
            " pip install 'orderlane[server,spark-connect]'"
        ) from error
    try:
        for key, value in given.items():
            session.conf.set(key, value)
        known = session.conf.getAll
        for key, value in afterwards(given, known.__contains__).items():
            session.conf.set(key, value)
        yield session
    finally:
        session.stop()


@contextmanager
def errors_as_sentences() -> Iterator[None]:
    """Convert exceptions of Spark, stores and catalogs to OptionErrors with one sentence."""
    try:
        yield
    except PySparkException as error:
        raise OptionError(sentence(error)) from error
    except Exception as error:
        if (said := foreign_sentence(error)) is None:
            raise
        raise OptionError(said) from error


def _show_helpers(files: str) -> None:
    """Put the executors' Python files on the path of Spark's processes beside the driver.

    spark-submit does so; a session alone omits the processes of streams.
    """
    paths = [str(Path(file).absolute()) for file in filter(None, files.split(","))]
    if paths:
        there = filter(None, [os.environ.get("PYTHONPATH")])
        os.environ["PYTHONPATH"] = os.pathsep.join([*paths, *there])


def _check_answer(address: str) -> None:
    """Raise OptionError if nothing accepts connections there: Spark would try for ten minutes."""
    if any(name in os.environ for name in _PROXIES):
        return
    shown = without_secrets(address)
    place = urlsplit(shown)
    try:
        host, port = place.hostname or "", place.port or _CONNECT_PORT
        socket.create_connection((host, port), timeout=_ANSWER_S).close()
    except (OSError, ValueError) as error:
        raise OptionError(f"no server of Spark Connect at {shown}: {error}") from None


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java: Any = Path(home, "bin", "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        where = f"at JAVA_HOME, {home}" if home else "on the path"
        raise OptionError(f"no Java found {where}: install Java 17 or newer, or set JAVA_HOME")
