"""Warnings caused by strangers are few, and report the number omitted."""

from __future__ import annotations

import pytest
import structlog

from broker_core import rare_warnings
from broker_core.rare_warnings import RareWarnings


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    times = [0]
    monkeypatch.setattr(rare_warnings, "now_ns", lambda: times[0])
    return times


def test_one_a_minute_and_host_with_the_number_of_those_left_out(clock: list[int]) -> None:
    with structlog.testing.capture_logs() as logs:
        warnings = RareWarnings("remoting")
        for port in range(10):
            warnings.warn("broken", peer=f"10.0.0.1:{port}", error="e")
        warnings.warn("broken", peer="[::1]:5")
        warnings.warn("other", peer="10.0.0.1:5")
        clock[0] += 60_000_000_000
        warnings.warn("broken", peer="10.0.0.1:99", error="f")
        warnings.warn("other", peer="10.0.0.1:5")
    assert [(line["event"], line["peer"], line.get("more")) for line in logs] == [
        ("broken", "10.0.0.1:0", None),
        ("broken", "[::1]:5", None),
        ("other", "10.0.0.1:5", None),
        ("broken", "10.0.0.1:99", 9),
        ("other", "10.0.0.1:5", None),
    ]


def test_what_it_remembers_is_bounded(clock: list[int]) -> None:
    with structlog.testing.capture_logs() as logs:
        warnings = RareWarnings("remoting")
        for host in range(3000):
            warnings.warn("broken", peer=f"{host}:1")
        assert len(logs) == 3000
        for host in (2999, 1976, 1975):
            warnings.warn("broken", peer=f"{host}:2")
    assert [line["peer"] for line in logs[3000:]] == ["1975:2"], "it remembers the last 1024"
