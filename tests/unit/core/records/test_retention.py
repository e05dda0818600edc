from __future__ import annotations

import pytest

from proxy.core.records.retention import (
    LogRange,
    is_to_be_renewed,
    keeps_everything,
    nears_the_end_before_ms,
)

HOUR = 3_600_000


@pytest.mark.parametrize(
    ("kept_ms", "margin_s", "near_ms"),
    [
        pytest.param(72 * HOUR, 6 * 3600, 6 * HOUR, id="the margin of the settings"),
        pytest.param(8 * HOUR, 6 * 3600, 2 * HOUR, id="a quarter of what is kept"),
        pytest.param(0, 6 * 3600, 0, id="nothing older than now"),
        pytest.param(-HOUR, 6 * 3600, 0, id="the broker's clock is ahead"),
    ],
)
def test_how_near_is_near(kept_ms: int, margin_s: float, near_ms: float) -> None:
    oldest_ms = 1_000 * HOUR
    found = nears_the_end_before_ms(oldest_ms, now_ms=oldest_ms + kept_ms, margin_s=margin_s)
    assert found == oldest_ms + near_ms


@pytest.mark.parametrize(
    ("place", "renewed"),
    [
        pytest.param(99, True, id="deleted already"),
        pytest.param(100, True, id="in the first file"),
        pytest.param(299, True, id="at the end of the last but one"),
        pytest.param(300, False, id="at the beginning of the last"),
        pytest.param(349, False, id="at its end"),
        pytest.param(400, False, id="written since the broker was asked"),
    ],
)
def test_records_in_the_last_file_are_safe(place: int, renewed: bool) -> None:
    assert is_to_be_renewed(place, LogRange(begin=100, end=350, file_bytes=100)) is renewed


@pytest.mark.parametrize(("place", "renewed"), [(99, True), (399, True), (400, False)])
def test_a_full_file_is_the_last_until_the_next_one_begins(place: int, renewed: bool) -> None:
    log = LogRange(begin=100, end=500, file_bytes=100)
    assert is_to_be_renewed(place, log) is renewed


@pytest.mark.parametrize(("place", "renewed"), [(99, True), (399, True), (400, False)])
def test_where_files_are_of_unknown_length_the_newest_quarter_is_safe(
    place: int, renewed: bool
) -> None:
    assert is_to_be_renewed(place, LogRange(begin=100, end=500, file_bytes=None)) is renewed


@pytest.mark.parametrize(
    ("log", "young"),
    [
        pytest.param(LogRange(begin=0, end=0, file_bytes=100), True, id="empty"),
        pytest.param(LogRange(begin=0, end=100, file_bytes=100), True, id="one full file"),
        pytest.param(LogRange(begin=0, end=101, file_bytes=100), False, id="a second file"),
        pytest.param(LogRange(begin=100, end=150, file_bytes=100), False, id="a deleted file"),
        pytest.param(LogRange(begin=0, end=100, file_bytes=None), False, id="unknown length"),
    ],
)
def test_only_a_log_that_never_had_two_files_keeps_everything(log: LogRange, young: bool) -> None:
    assert keeps_everything(log) is young


def test_a_log_that_is_empty_deletes_nothing() -> None:
    assert not is_to_be_renewed(0, LogRange(begin=0, end=0, file_bytes=100))
