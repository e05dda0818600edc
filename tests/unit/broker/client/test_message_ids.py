"""Message ids are unique, in a layout from which RocketMQ's tools read the time."""

from __future__ import annotations

import os
from datetime import datetime

import pytest

from broker_core.client import message_ids
from broker_core.client.message_ids import MessageIds


def test_ids_are_32_upper_case_hex_digits_and_all_different() -> None:
    ids = MessageIds()
    made = [ids.new() for _ in range(10_000)]
    assert len(set(made)) == len(made)
    assert all(len(text) == 32 and text == text.upper() for text in made)
    assert not set(made) & {MessageIds().new() for _ in range(100)}


def test_the_time_is_counted_from_the_start_of_the_local_month(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    month = datetime(2026, 3, 1).timestamp() * 1000  # local time is the point
    monkeypatch.setattr(message_ids, "wall_ms", lambda: int(month) + 12_345)
    raw = bytes.fromhex(MessageIds().new())
    assert int.from_bytes(raw[10:14], "big") == 12_345
    assert int.from_bytes(raw[4:6], "big") == os.getpid() & 0xFFFF


def test_a_clock_set_back_repeats_no_id(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = MessageIds()
    made = []
    for now_ms in (1_700_000_000_000, 1_700_000_001_000, 1_700_000_000_000):
        monkeypatch.setattr(message_ids, "wall_ms", lambda now_ms=now_ms: now_ms)
        made += [ids.new() for _ in range(3)]
        for _ in range(0x10000 - 3):
            ids.new()  # the counter wraps around
    assert made[0][20:28] < made[3][20:28] == made[6][20:28]
    assert len(set(made[:6])) == 6


def test_a_forked_process_makes_other_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = MessageIds()
    before = ids.new()
    monkeypatch.setattr(os, "getpid", lambda: 4711)
    after = ids.new()
    assert (before[:8], before[12:20]) != (after[:8], after[12:20])
