"""Killing the archive's driver at random points leaves every message in the archive once."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from broker_core.client import SendReceipt
from testkit.processes import wait_until
from testkit.spark_site import SparkGateway, spark_settings
from tests.spark.lakes import FORMATS, Lake
from tests.spark.process_tree import kill_tree

MESSAGES = 900
BATCH = 60  # small batches, so that the next one is always near
MOMENT_S = 1.5  # shorter than a batch takes


def command(gateway: SparkGateway, topic: str, group: str, lake: Lake) -> list[object]:
    settings = spark_settings(lake.folder / "spark")
    return [
        *("spark", "archive", topic, lake.path, "--group", group, "--proxy", gateway.servers),
        *("--master", "local[2]", *lake.flags),
        *(word for name, text in settings.items() for word in ("--conf", f"{name}={text}")),
    ]


def offsets(receipts: Sequence[SendReceipt]) -> list[tuple[str, int]]:
    return [(each.queue.qid, each.offset) for each in receipts]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("format", FORMATS)
def test_an_archive_survives_kills_of_its_driver(
    spark: Any, gateway: SparkGateway, tmp_path: Path, kills: int, format: str
) -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    topic, group, lake = gateway.a_topic(queues=4), gateway.a_group(), Lake(format, tmp_path)
    planned = lake.root / "_checkpoint" / "offsets"
    words = command(gateway, topic, group, lake)
    sent: list[SendReceipt] = []

    def plans() -> int:
        return len([each for each in planned.glob("*") if each.name.isdigit()])

    for _ in range(kills):
        sent += gateway.send(topic, [b"%d" % n for n in range(MESSAGES)])
        before = plans()
        driver = gateway.children.start(*words, "--option", f"maxOffsetsPerTrigger={BATCH}")
        wait_until(
            lambda: plans() > before or not driver.running,  # noqa: B023  # called at once
            within_s=120,
            what="a batch",
        )
        time.sleep(chance.uniform(0, MOMENT_S))  # any point of this batch or a later one
        assert driver.running, driver.err
        kill_tree(driver.process.pid)
        driver.kill()
        found = lake.places(spark)
        assert len(found) == len(set(found)), f"repeats after a kill; seed {seed}"

    ends = {qid: max(n for each, n in offsets(sent) if each == qid) + 1 for qid, _ in offsets(sent)}
    last = gateway.children.start(*words, "--continuous", "--every", "1 second")
    wait_until(
        lambda: gateway.committed(group, topic) == ends or not last.running,
        within_s=300,
        what="the group at the ends of its queues",
    )
    assert last.terminate(within_s=60) == 0, last.err
    assert 0 < last.ended_with["archived"] <= len(sent)
    assert lake.places(spark) == sorted(offsets(sent)), f"seed {seed}"
