"""The benchmarks' competitors do the same work, and are judged by the same record."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.frame.context import RunContext
from bench.frame.figures import Figures
from bench.frame.peer import Work
from bench.peers.registry import PEERS
from testkit.rocketmq import VERSIONS

pytestmark = [
    pytest.mark.parametrize("version", VERSIONS[:1]),
    pytest.mark.slow,
    pytest.mark.timeout(400),  # Maven may have to fetch Kafka
]


def _run(name: str, folder: Path) -> Figures:
    work = Work(messages=400, keys=10, work_ms=5.0, concurrency=16, body_bytes=128)
    context = RunContext(folder=folder, seed=1, round=0, scale="short")
    return PEERS[name].run(context, work)


@pytest.mark.feature("peers of the benchmarks keep the order that they promise")
@pytest.mark.parametrize("name", ["rocketmq-orderly", "parallel-consumer", "orderlane-java"])
def test_an_ordered_peer_is_found_in_order(name: str, version: str, tmp_path: Path) -> None:
    figures = _run(name, tmp_path)
    assert figures["faults"] == 0
    assert 0 < float(figures["per_s"]) < 16 * 1000 / 5
    assert figures["settings"]
    assert figures["version"]


def test_an_unordered_peer_is_found_out_of_order(version: str, tmp_path: Path) -> None:
    """With ten keys and sixteen threads, two messages of some key are handled in parallel."""
    assert int(_run("rocketmq-concurrent", tmp_path)["faults"]) > 0
