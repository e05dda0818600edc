from __future__ import annotations

import pytest

from proxy.core.retention import nears_the_end_before_ms

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
