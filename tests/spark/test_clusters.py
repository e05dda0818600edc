"""Executors on other machines, as far as one machine has them: nothing of ours is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.spark_cluster import bare_python, processes, start_standalone, submit
from tests.support.spark_site import SparkGateway
from thin_client.spark.package import write_package

LOCAL_CLUSTER = "local-cluster[2,1,700]"


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "master", ["standalone", pytest.param(LOCAL_CLUSTER, marks=pytest.mark.full)]
)
def test_a_program_reads_on_a_cluster_that_gets_the_package_as_a_zip(
    gateway: SparkGateway, tmp_path: Path, master: str
) -> None:
    """A batch and a stream, in the executors of two workers, with the source found by itself."""
    topic = gateway.a_topic(queues=4)
    gateway.send(topic, [b"%d" % number for number in range(2000)])
    options = {"servers": gateway.servers, "group": gateway.a_group(), "subscribe": topic}
    package = tmp_path / "orderlane.zip"
    write_package(package)
    with processes(tmp_path / "cluster") as running:
        if master == "standalone":
            master = start_standalone(running, workers=2)
        said = submit(
            running,
            master=master,
            python=bare_python(tmp_path / "bare"),
            package=package,
            told={
                "options": options | {"startingOffsets": "earliest"},
                "archive": str(tmp_path / "archive"),
            },
        )
    assert said["counted"] == {f"broker-a_{number}": 500 for number in range(4)}
    assert (said["archived"], said["rows"]) == (2000, 2000)
    executors, files, codecs = (set(each) for each in zip(*said["places"], strict=True))
    assert len(executors) == 2
    assert all("orderlane.zip" in file for file in files)
    assert codecs == {False}
