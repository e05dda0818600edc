"""Held bytes, and callbacks when there is room again."""

from __future__ import annotations

from proxy.downstream.port.load import DROPPING, REFUSING, Load
from proxy.settings.proxy_settings import LimitSettings


def test_room_is_signalled_once_each_time_it_returns() -> None:
    told: list[int] = []
    load = Load(100)
    load.on_room = lambda: told.append(load.used)
    for by, over in ((100, False), (1, True), (50, True), (-51, False), (-100, False), (200, True)):
        load.change(by)
        assert load.is_over is over
    assert told == [100]
    load.change(-200)
    assert told == [100, 0]


def test_a_refusal_names_its_setting_and_is_counted() -> None:
    load = Load(100, used=150)
    told = load.over()
    assert (told.limit, load.refused["max_inflight_bytes"]) == ("max_inflight_bytes", 1)
    assert "150 bytes" in str(told)
    assert "limits.max_inflight_bytes (100)" in str(told)


def test_counts_are_named_after_settings_and_exist_from_the_start() -> None:
    """So that an alert on an increase sees the first one."""
    figures = Load(100).figures()
    assert figures == {"refused": dict.fromkeys(REFUSING, 0), "dropped": dict.fromkeys(DROPPING, 0)}
    assert set(LimitSettings.model_fields) >= {*REFUSING, *DROPPING}
