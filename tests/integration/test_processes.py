"""Whole processes under attack: killed, terminated, stopped; nothing is lost, no key out of order.

``ORDERLANE_KILLS=N`` kills the gateway N times in one run instead of once.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import Child, Children, wait_until

KILLS = int(os.environ.get("ORDERLANE_KILLS", "1"))
SEED = int(os.environ.get("ORDERLANE_SEED", "7"))
RATE = 300

#: Times a tenth of the defaults and less: what they are waited for is the same.
BROKER = "lock_expiry_s: 2\nsegment_bytes: 8388608\n"
SETTINGS = """
lock: {renewal_s: 0.3, trust_s: 1.2, broker_lock_expiry_s: 2, request_timeout_s: 0.4}
commit_every_s: 0.3
groups:
  - name: billing
    topics: [{name: orders, order_key: KEY, visibility_timeout_s: 1.5}]
"""


@pytest.fixture
def children(tmp_path: Path) -> Iterator[Children]:
    (tmp_path / "settings.yaml").write_text(SETTINGS)
    (tmp_path / "broker.yaml").write_text(BROKER)
    with Children(tmp_path) as children:
        yield children


def start_up(children: Children, at: dict[str, str] | None = None) -> tuple[Child, dict[str, str]]:
    """A whole gateway; *at* the ports of an earlier one."""
    names = {"thrift": 0, "http": 0, "nameserver": 0, "broker": 0}
    if at is not None:
        names = {name: int(at[name].rpartition(":")[2]) for name in names}
    ports = [part for name, port in names.items() for part in (f"--{name}-port", port)]
    files = ("--settings", "settings.yaml", "--broker-settings", "broker.yaml")
    up = children.start("up", "--data", "data", "--history", "history", *files, *ports)
    return up, up.ready()


def lag(children: Children, at: dict[str, str]) -> int:
    shown = children.run(
        *("lag", "billing", "--http", at["http"], "--nameserver", at["nameserver"], "-o", "json")
    )
    assert shown.code == 0, shown.err
    return sum(row["lag"] for row in shown.json)


def verdict(children: Children) -> dict[str, Any]:
    judged = children.run("verify-history", "history", "-o", "json")
    assert judged.code == 0, judged.out + judged.err
    return dict(judged.json)


@pytest.mark.slow
@pytest.mark.timeout(60 + 30 * KILLS)
def test_nothing_is_lost_when_everything_is_killed_and_started_again(children: Children) -> None:
    """Done when 4: producer and consumer go on by themselves, and the joined histories are clean."""
    chooser = random.Random(SEED)
    up, at = start_up(children)
    count = RATE * 5 * (KILLS + 1)
    common = ("--proxy", at["thrift"], "--history", "history")
    producer = children.start("produce", "orders", "--count", count, "--rate", RATE, *common)
    consumer = children.start("consume", "billing", "--work-ms", 2, *common)
    for _ in range(KILLS):
        consumer.wait_for(len(consumer.out) + RATE)
        time.sleep(chooser.uniform(0, 2))
        assert producer.running, "the kill has to come in the middle"
        up.kill()
        time.sleep(chooser.uniform(0, 0.5))
        up, _ = start_up(children, at)
    assert producer.wait(within_s=30 + count / RATE) == 0, producer.err
    wait_until(lambda: lag(children, at) == 0, within_s=30, what="everything consumed")
    assert consumer.terminate() == 0
    assert up.terminate() == 0
    report = verdict(children)

    assert (report["acknowledged"], report["lost"]) == (count, 0)
    assert len(consumer.out) >= count
