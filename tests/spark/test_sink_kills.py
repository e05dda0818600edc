"""Killing the driver of a write at random points: without the repeats, which have the same ids,
each row is in the topic once, and those of a key are in order.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from testkit.processes import ROOT, wait_until
from testkit.spark_site import SparkGateway, spark_environment, spark_settings
from tests.spark.process_tree import kill_tree

ROWS, KEYS = 600, 12
#: Rows added before each run of a query, at least as many as it copies until it is killed.
MORE = 240
#: Rows a second of each of two tasks, and of a request: a write takes two seconds or more.
SLOWLY = {"maxRowsPerSecond": "150", "batchSize": "5", "concurrentRequests": "3"}
MOMENT_S = 1.5


@pytest.mark.timeout(3600)
def test_a_batch_survives_kills_of_its_driver(
    spark: Any, gateway: SparkGateway, tmp_path: Path, kills: int
) -> None:
    topic = gateway.a_topic(queues=4)
    sink = {"servers": gateway.servers, "topic": topic, "jobId": "load", **SLOWLY}
    parameters = {"kind": "batch", "sink": sink, "rows": ROWS, "keys": KEYS}
    with told() as chance:
        for _ in range(kills):
            write_and_kill(gateway, topic, parameters, tmp_path, chance.uniform(0, MOMENT_S))
        write(parameters, tmp_path)
        assert repeats_in(spark, gateway, topic, ROWS) > 0


@pytest.mark.timeout(3600)
def test_a_query_survives_kills_of_its_driver(
    spark: Any, gateway: SparkGateway, tmp_path: Path, kills: int
) -> None:
    source, topic = gateway.a_topic(queues=2), gateway.a_topic(queues=4)
    parameters = {
        "kind": "stream",
        "sink": {"servers": gateway.servers, "topic": topic, **SLOWLY},
        "source": {
            "servers": gateway.servers,
            "group": gateway.a_group(),
            "subscribe": source,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "60",
        },
    }
    rows = 0

    def add(count: int) -> int:
        for key in range(KEYS):
            bodies = [b"%d" % row for row in range(rows, rows + count) if row % KEYS == key]
            gateway.send(source, bodies, queue=key % 2, key=f"key-{key}")
        return rows + count

    with told() as chance:
        rows = add(ROWS)
        for _ in range(kills):
            rows = add(MORE)
            write_and_kill(gateway, topic, parameters, tmp_path, chance.uniform(0, MOMENT_S))
        write(parameters, tmp_path)
        repeats_in(spark, gateway, topic, rows)


@contextmanager
def told() -> Iterator[random.Random]:
    """Yield a source of chance whose seed is printed if the test fails."""
    seed = random.randrange(2**32)
    try:
        yield random.Random(seed)
    except BaseException:
        sys.stderr.write(f"seed {seed}\n")
        raise


def write_and_kill(
    gateway: SparkGateway, topic: str, parameters: dict[str, Any], folder: Path, after_s: float
) -> None:
    """Kill a driver *after_s* seconds after its first row is in the topic."""
    before = stored_count(gateway, topic)
    driver = start(parameters, folder)
    try:
        wait_until(
            lambda: stored_count(gateway, topic) > before or driver.poll() is not None,
            within_s=200,
            what="a row in the topic",
        )
        time.sleep(after_s)
        assert driver.poll() is None, (folder / "output").read_text()[-3000:]
    finally:
        kill_tree(driver.pid)
        driver.wait()


def write(parameters: dict[str, Any], folder: Path) -> None:
    """Run a driver to its end."""
    assert start(parameters, folder).wait(timeout=300) == 0, (folder / "output").read_text()[-3000:]


def repeats_in(spark: Any, gateway: SparkGateway, topic: str, rows: int) -> int:
    """Check that *topic* has all *rows*, in order within each key; return the number of repeats."""
    found = stored(spark, gateway, topic)
    firsts = {row.messageId: row for row in reversed(found)}  # the first one of each id
    assert sorted(int(row.value) for row in firsts.values()) == list(range(rows))
    for number in range(KEYS):
        mine = [row for row in firsts.values() if row.key == f"key-{number}"]
        assert len({row.qid for row in mine}) == 1
        in_order = [int(row.value) for row in sorted(mine, key=lambda row: row.offset)]
        assert in_order == list(range(number, rows, KEYS)), f"key {number}"
    return len(found) - len(firsts)


def start(parameters: dict[str, Any], folder: Path) -> subprocess.Popen[bytes]:
    settings = {**spark_settings(folder / "spark"), "spark.driver.memory": "512m"}
    given = {**parameters, "folder": str(folder), "settings": settings}
    with (folder / "output").open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.spark.writing_driver", json.dumps(given)],
            cwd=ROOT,
            env=spark_environment(),
            stdout=output,
            stderr=output,
        )


def stored_count(gateway: SparkGateway, topic: str) -> int:
    """Return the number of messages in *topic*."""

    async def look(client: Any) -> int:
        return sum([await client.max_offset(queue) for queue in await client.queues(topic)])

    return gateway.ask(look)


def stored(spark: Any, gateway: SparkGateway, topic: str) -> list[Any]:
    """Return the messages of *topic*, queue by queue in order."""
    options = {"servers": gateway.servers, "group": "look", "subscribe": topic}
    found = spark.read.format("orderlane").options(**options).load().collect()
    return sorted(found, key=lambda row: (row.qid, row.offset))
