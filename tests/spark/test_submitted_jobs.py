"""Jobs of ``orderlane spark`` that spark-submit runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from testkit.processes import ROOT
from testkit.spark_site import SparkGateway, spark_settings
from tests.spark.spark_cluster import processes, spark_home

#: The log of the UI at the level INFO: two settings that jobs in a terminal turn off.
_SETTINGS = {"spark.log.level": "INFO", "spark.ui.enabled": "true", "spark.ui.port": "0"}


@pytest.mark.full
@pytest.mark.timeout(400)
def test_settings_of_spark_submit_take_effect(gateway: SparkGateway, tmp_path: Path) -> None:
    """Runs the program that docs/spark.md shows."""
    topic = gateway.a_topic(queues=1)
    gateway.send(topic, [b"x"] * 5)
    page = (ROOT / "docs/spark.md").read_text()
    (program,) = re.findall(r"`orderlane_job\.py`:\n\n```python\n(.*?)```", page, flags=re.S)
    job = tmp_path / "orderlane_job.py"
    job.write_text(program)
    settings = {**spark_settings(tmp_path), "spark.driver.memory": "512m", **_SETTINGS}
    conf = [text for pair in settings.items() for text in ("--conf", "=".join(pair))]
    with processes(tmp_path / "submit") as running:
        process, output = running.start(
            "submit",
            *("env", f"PYTHONPATH={ROOT}", spark_home() / "bin/spark-submit"),
            *("--master", "local[1]", "--name", "nightly"),
            *(*conf, job, "spark", "archive", topic, tmp_path / "lake"),
            *("--group", gateway.a_group(), "--proxy", gateway.servers),
        )
        code = process.wait(timeout=300)
        said = output.read_text(errors="replace")
    assert code == 0, said[-6000:]
    assert re.search(r'"archived": ?5', said)
    assert "Submitted application: nightly" in said
    assert re.search(r"INFO .*SparkUI", said)
