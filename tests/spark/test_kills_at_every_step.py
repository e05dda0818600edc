"""A driver is killed at every step of its first three batches, and continues with other options:
each message from the stored start on is in the sink once.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from itertools import cycle, product
from pathlib import Path

import pytest

from testkit.processes import ROOT, wait_until
from testkit.spark_site import SparkGateway, spark_environment, spark_settings
from tests.spark.process_tree import kill_tree
from tests.spark.stepping_driver import REACHED, STEPS

Step = tuple[str, int]
#: Messages in each queue before the first run, and where that run begins.
STORED, STARTS = 40, {"broker-a_0": 25, "broker-a_1": 10}
LIMIT = {"maxOffsetsPerTrigger": "12"}
#: A stored start, then options that would begin elsewhere.
OTHERS = (
    {"startingOffsets": "earliest", **LIMIT},
    {"startingOffsets": "latest", "maxOffsetsPerTrigger": "7"},
    {"startingTimestamp": "1", "minPartitions": "5", **LIMIT},
    {"failOnDataLoss": "false", **LIMIT},
)

_TRIES, _TOO_SLOW = 4, b"Python worker failed to connect back"


def run(folder: Path, options: dict[str, str], stop: Step | None) -> int | None:
    """Run a driver; return its exit code, or None if it was killed at *stop*.

    Spark allows its Python processes 10 s to start. On a busy machine a driver may fail because of
    that: then another one continues, as it has to anyway.
    """
    for _ in range(_TRIES):
        output = folder / "output"
        before = output.stat().st_size if output.exists() else 0
        code = _run(folder, options, stop)
        if code in (None, 0) or _TOO_SLOW not in output.read_bytes()[before:]:
            break
    return code


def _run(folder: Path, options: dict[str, str], stop: Step | None) -> int | None:
    reached = folder / REACHED
    reached.unlink(missing_ok=True)
    settings = {**spark_settings(folder / "spark"), "spark.driver.memory": "512m"}
    parameters = {"options": options, "folder": str(folder), "stop": stop, "settings": settings}
    with (folder / "output").open("ab") as output:
        driver = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.stepping_driver", json.dumps(parameters)],
            cwd=ROOT,
            env=spark_environment(),
            stdout=output,
            stderr=output,
        )
    try:
        wait_until(
            lambda: reached.exists() or driver.poll() is not None,
            within_s=200,
            what=f"the driver at {stop or 'its end'}",
        )
        return driver.poll()
    finally:
        kill_tree(driver.pid)
        driver.wait()


@pytest.mark.timeout(2400)
def test_a_query_that_is_killed_at_every_step_reads_each_message_once(
    gateway: SparkGateway, tmp_path: Path, full: bool
) -> None:
    topic = gateway.a_topic(queues=2)
    options = {"servers": gateway.servers, "group": gateway.a_group(), "subscribe": topic}
    first = {"startingOffsets": json.dumps({topic: STARTS}), **LIMIT}
    expected: list[str] = []

    def send(count: int, name: str) -> None:
        for number, qid in enumerate(STARTS):
            bodies = [f"{name}-{qid}-{each}" for each in range(count)]
            gateway.send(topic, [body.encode() for body in bodies], queue=number)
            expected.extend(bodies[STARTS[qid] :] if name == "stored" else bodies)

    send(STORED, "stored")
    every: list[Step] = [(step, batch) for batch, step in product(range(3), STEPS)]
    kills = every if full else [("logged", 0), ("written", 1)]
    others = cycle(OTHERS)
    for number, kill in enumerate(kills):
        given = first if not any((tmp_path / "checkpoint").glob("offsets/0")) else next(others)
        code = run(tmp_path, {**options, **given}, kill)
        assert code is None, (kill, (tmp_path / "output").read_text()[-3000:])
        send(3, f"after-{number}")
    assert run(tmp_path, {**options, **next(others)}, None) == 0
    batches = sorted(tmp_path.glob("batch-*.json"))
    assert len(batches) > 3
    found = Counter(body for each in batches for body in json.loads(each.read_text()))
    assert found == Counter(expected)
