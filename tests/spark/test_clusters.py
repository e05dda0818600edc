"""Executors without our packages, like those on other machines, simulated on one machine."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from testkit.spark_site import SparkGateway
from tests.spark.spark_cluster import (
    bare_python,
    cluster_settings,
    processes,
    start_standalone,
    submit,
)
from thin_client.spark.package import write_package

LOCAL_CLUSTER = "local-cluster[2,1,700]"
MESSAGES = 2000


@dataclass(frozen=True, slots=True)
class Bare:
    """A topic, and an interpreter with only Spark installed."""

    options: dict[str, str]
    python: Path
    package: Path


@pytest.fixture
def bare(gateway: SparkGateway, tmp_path: Path) -> Bare:
    topic = gateway.a_topic(queues=4)
    gateway.send(topic, [b"%d" % number for number in range(MESSAGES)])
    options = {"servers": gateway.servers, "group": gateway.a_group(), "subscribe": topic}
    package = tmp_path / "orderlane.zip"
    write_package(package)
    return Bare(options, bare_python(tmp_path / "bare"), package)


@pytest.mark.timeout(400)
def test_a_program_reads_on_a_cluster_with_the_package_as_a_zip(bare: Bare, tmp_path: Path) -> None:
    """Run a batch and a stream in the executors of two workers, with the source found
    automatically.
    """
    archive = str(tmp_path / "archive")
    options = bare.options | {"startingOffsets": "earliest"}
    with processes(tmp_path / "cluster") as running:
        said = submit(
            running,
            master=start_standalone(running, workers=2),
            python=bare.python,
            package=bare.package,
            parameters={"options": options, "archive": archive},
        )
    assert said["counted"] == {f"broker-a_{number}": MESSAGES // 4 for number in range(4)}
    assert sorted(map(tuple, said["archived"])) == [
        (f"broker-a_{number}", offset) for number in range(4) for offset in range(MESSAGES // 4)
    ]
    executors, files, codecs = (set(each) for each in zip(*said["places"], strict=True))
    assert len(executors) == 2
    assert all("orderlane.zip" in file for file in files)
    assert codecs == {False}


@pytest.mark.full
@pytest.mark.timeout(400)
def test_a_job_runs_on_a_cluster_with_the_package_as_a_zip(
    spark: Any, bare: Bare, tmp_path: Path
) -> None:
    archive = str(tmp_path / "archive")
    settings = cluster_settings(tmp_path, bare.python) | {"spark.submit.pyFiles": str(bare.package)}
    conf = [text for pair in settings.items() for text in ("--conf", "=".join(pair))]
    with processes(tmp_path / "cluster") as running:
        job, output = running.start(
            "archive",
            *(sys.executable, "-m", "proxy.cli", "spark", "archive", bare.options["subscribe"]),
            *(archive, "--group", bare.options["group"], "--proxy", bare.options["servers"]),
            *("--master", LOCAL_CLUSTER, *conf),
        )
        assert job.wait(timeout=300) == 0, output.read_text(errors="replace")[-6000:]
    rows = spark.read.parquet(archive).select("qid", "offset")
    assert (rows.count(), rows.distinct().count()) == (MESSAGES, MESSAGES)
