"""Dates of the log's files while the wall clock was behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from broker_core.store.write_times import WriteTimes

NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Return two files, written long ago."""
    made = [tmp_path / "1", tmp_path / "2"]
    for each in made:
        written(each, NOW_MS - 50 * HOUR_MS)
    return made


def written(file: Path, at_ms: int) -> None:
    """Write to *file* while the wall clock says *at_ms*."""
    file.touch()
    os.utime(file, ns=(at_ms * 1_000_000, at_ms * 1_000_000))


def dated(file: Path) -> int:
    return file.stat().st_mtime_ns // 1_000_000


def test_a_file_written_by_a_clock_that_is_behind_is_dated_now(files: list[Path]) -> None:
    times = WriteTimes(files[:1])
    for hours in (80, 79):
        written(files[0], NOW_MS - hours * HOUR_MS)
        written(files[1], NOW_MS - hours * HOUR_MS)  # new since the last look
        times.correct(files, now_ms=NOW_MS, tolerance_ms=300_000)
        assert [dated(each) for each in files] == [NOW_MS, NOW_MS]


def test_other_dates_stay(files: list[Path]) -> None:
    old, slow = files
    ahead = old.with_name("3")
    times = WriteTimes(files)
    written(slow, NOW_MS - 200_000)
    written(ahead, NOW_MS + 80 * HOUR_MS)
    for _ in range(2):
        times.correct([old, slow, ahead], now_ms=NOW_MS, tolerance_ms=300_000)
    assert [dated(each) - NOW_MS for each in (old, slow, ahead)] == [
        -50 * HOUR_MS,
        -200_000,
        80 * HOUR_MS,
    ]


def test_a_file_that_was_deleted_meanwhile_does_not_count(files: list[Path]) -> None:
    times = WriteTimes(files)
    files[0].unlink()
    written(files[1], 0)
    times.correct(files, now_ms=NOW_MS, tolerance_ms=300_000)
    assert dated(files[1]) == NOW_MS
