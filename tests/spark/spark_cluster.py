"""Spark clusters on this machine, whose executors have none of our packages installed.

Programs are started by ``spark-submit``, like users' programs. All processes have sessions of their
own and are killed with their children, however a test ends.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testkit.processes import wait_until
from testkit.spark_site import SHORT_LIVED, spark_environment, spark_settings

_PROGRAM = Path(__file__).with_name("cluster_program.py")
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
#: Packages of executors besides PySpark, which Spark provides.
_INSTALLED = ("numpy", "numpy.libs", "pyarrow", "pyarrow.libs")
_START_S, _RUN_S = 90, 300


@dataclass(slots=True)
class Processes:
    """The processes of one test."""

    folder: Path
    environment: Mapping[str, str]
    _started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, name: str, *command: object) -> tuple[subprocess.Popen[bytes], Path]:
        """Start a process and return it with its output file."""
        output = self.folder / f"{len(self._started)}-{name}.out"
        with output.open("wb") as out:
            process = subprocess.Popen(
                list(map(str, command)),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env=dict(self.environment),
                start_new_session=True,
            )
        self._started.append(process)
        return process, output

    def kill(self) -> None:
        """Kill all processes with their children."""
        for process in reversed(self._started):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextmanager
def processes(folder: Path) -> Iterator[Processes]:
    """Yield processes that end with the context."""
    folder.mkdir(parents=True, exist_ok=True)
    environment = {
        **spark_environment(),
        "SPARK_HOME": str(spark_home()),
        "SPARK_DAEMON_MEMORY": "128m",
        "SPARK_DAEMON_JAVA_OPTS": SHORT_LIVED,
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_WORKER_DIR": str(folder / "work"),
        "SPARK_NO_DAEMONIZE": "1",
        # Executors find packages only through bare_python.
        "PYTHONPATH": "",
    }
    running = Processes(folder, environment)
    try:
        yield running
    finally:
        running.kill()


def start_standalone(running: Processes, *, workers: int) -> str:
    """Start a master and its workers on loopback; return the master's address once all workers have
    registered.
    """
    spark_class = spark_home() / "bin/spark-class"
    here = ("--host", "127.0.0.1", "--port", 0, "--webui-port", 0)
    _, output = running.start("master", spark_class, _MASTER, *here)
    found = _wait_for(output, r"Starting Spark master at (spark://\S+)")
    for _ in range(workers):
        with_memory = ("--cores", 1, "--memory", "700m", *here, found[0])
        running.start("worker", spark_class, _WORKER, *with_memory)
    wait_until(
        lambda: len(re.findall("Registering worker", output.read_text())) >= workers,
        within_s=_START_S,
        what=f"{workers} workers at {found[0]}",
    )
    return found[0]


def bare_python(folder: Path) -> Path:
    """Create an interpreter with Spark's packages, numpy and PyArrow, but none of ours."""
    installed = Path(sysconfig.get_paths()["purelib"])
    libraries = folder / "libraries"
    libraries.mkdir(parents=True)
    for name in _INSTALLED:
        if (installed / name).exists():
            (libraries / name).symlink_to(installed / name)
    python = folder / "python3"
    python.write_text(
        "#!/bin/sh\n"
        f'PYTHONPATH="$PYTHONPATH:{libraries}" exec "{Path(sys.executable).resolve()}" -s "$@"\n'
    )
    python.chmod(0o755)
    return python


def cluster_settings(folder: Path, python: Path) -> dict[str, str]:
    """Return Spark settings for a small driver and small executors that run *python*."""
    return {
        **spark_settings(folder),
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.executor.extraJavaOptions": SHORT_LIVED,
        "spark.pyspark.python": str(python),
        "spark.pyspark.driver.python": str(python),
    }


def submit(
    running: Processes, *, master: str, python: Path, package: Path, parameters: Mapping[str, Any]
) -> dict[str, Any]:
    """Run ``cluster_program.py`` with *parameters* and return its results."""
    said = running.folder / "said.json"
    settings = cluster_settings(running.folder, python)
    options = [text for pair in settings.items() for text in ("--conf", "=".join(pair))]
    process, output = running.start(
        "submit",
        *(spark_home() / "bin/spark-submit", "--master", master, "--py-files", package),
        *(*options, _PROGRAM, said, json.dumps(dict(parameters))),
    )
    code = process.wait(timeout=_RUN_S)
    assert code == 0, output.read_text(errors="replace")[-6000:]
    found: dict[str, Any] = json.loads(said.read_text())
    return found


def spark_home() -> Path:
    """Return the folder of the installed Spark."""
    import pyspark

    return Path(pyspark.__file__).parent


def _wait_for(output: Path, pattern: str) -> list[str]:
    wait_until(
        lambda: re.search(pattern, output.read_text()), within_s=_START_S, what=f"{pattern!r}"
    )
    return re.findall(pattern, output.read_text())
