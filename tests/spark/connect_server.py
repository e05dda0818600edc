"""A server of Spark Connect on this machine, the one that PySpark brings along."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from testkit.missing_tools import without
from testkit.processes import ROOT, wait_until
from testkit.spark_site import spark_settings
from tests.spark.spark_cluster import Processes, processes, spark_home

_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
_START_S, _JOB_S = 180, 300
_HEAP = "1g"
_PACKAGES = ("grpc", "grpc_status", "pandas")


@dataclass(slots=True)
class ConnectServer:
    """A server, and the jobs that its clients run: each in a process, as for users."""

    running: Processes
    address: str = ""

    def start(self) -> None:
        """Start the server on a free port; its Python has this package."""
        settings = {
            **spark_settings(self.running.folder),
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": "0",
            "spark.log.level": "INFO",
        }
        conf = [text for pair in settings.items() for text in ("--conf", "=".join(pair))]
        process, output = self.running.start(
            "server",
            # spark-submit takes this server for a daemon, whose memory is not that of a driver.
            *("env", f"PYTHONPATH={ROOT}", f"SPARK_DAEMON_MEMORY={_HEAP}"),
            spark_home() / "bin/spark-submit",
            *("--master", "local[2]", "--class", _CLASS, *conf, "spark-internal"),
        )
        pattern = r"Spark Connect server started at: \S*:(\d+)"
        wait_until(
            lambda: re.search(pattern, output.read_text(errors="replace")) or process.poll(),
            within_s=_START_S,
            what=f"a server of Spark Connect, which wrote to {output}",
        )
        text = output.read_text(errors="replace")
        assert process.poll() is None, text[-6000:]
        (port,) = re.findall(pattern, text)
        self.address = f"sc://127.0.0.1:{port}"

    def run(self, verb: str, *arguments: object, code: int = 0) -> Any:
        """Return the output of a verb of ``orderlane spark``, parsed as JSON."""
        text = self._output(verb, *arguments, code=code)
        return orjson.loads(text[text.index("{") :])

    def refusal(self, verb: str, *arguments: object) -> str:
        """Return the sentence with which a verb of ``orderlane spark`` ends."""
        return self._output(verb, *arguments, code=2).strip()

    def _output(self, verb: str, *arguments: object, code: int) -> str:
        process, output = self.running.start(
            verb,
            *("env", f"PYTHONPATH={ROOT}", sys.executable, "-W", "ignore", "-m", "proxy.cli"),
            *("spark", verb, *arguments, "--master", self.address),
        )
        ended = process.wait(timeout=_JOB_S)
        text = output.read_text(errors="replace")
        assert ended == code, text[-6000:]
        return text


@contextmanager
def connect_server(folder: Path) -> Iterator[ConnectServer]:
    """Yield a running server; skip the test if the client's packages are not installed."""
    if lacking := [name for name in _PACKAGES if importlib.util.find_spec(name) is None]:
        named = ", ".join(lacking)
        without(f"Spark Connect needs {named}: install requirements/spark-connect.txt")
    with processes(folder) as running:
        server = ConnectServer(running)
        server.start()
        yield server
