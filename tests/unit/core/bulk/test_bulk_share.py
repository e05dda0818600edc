"""The rate of bulk readers beside thin clients follows the delay of the event loop."""

from __future__ import annotations

import pytest

from proxy.core.bulk.pace import BulkPace
from proxy.core.bulk.share import WINDOW_NS, AdaptiveShare
from proxy.core.group.token_bucket import SECOND

MS = 1_000_000
LEAST = 8_000_000


def lasts(share: AdaptiveShare, windows: int, *, delays_ms: list[float], now_ns: int = 0) -> int:
    """Let *windows* pass at full use of the rate, with *delays_ms* in turn; return the time."""
    step_ns = 5 * MS
    for at in range(windows * WINDOW_NS // step_ns + 1):
        share.read(int(share.rate * step_ns / SECOND))
        share.delayed(int(delays_ms[at % len(delays_ms)] * MS), now_ns)
        now_ns += step_ns
    return now_ns


def share() -> AdaptiveShare:
    return AdaptiveShare(LEAST, 5 * MS)


def test_the_rate_rises_while_thin_clients_hardly_wait() -> None:
    one = share()
    lasts(one, 10, delays_ms=[0.2])
    assert one.rate == pytest.approx(LEAST * 1.25**10)


def test_the_rate_falls_by_half_above_the_bound_but_not_below_the_least() -> None:
    one = share()
    now_ns = lasts(one, 10, delays_ms=[0.2])
    before = one.rate
    now_ns = lasts(one, 1, delays_ms=[9.0], now_ns=now_ns)
    assert one.rate == pytest.approx(before / 2)
    lasts(one, 10, delays_ms=[9.0], now_ns=now_ns)
    assert one.rate == LEAST


def test_a_single_late_call_in_a_hundred_is_within_the_bound() -> None:
    one = share()
    lasts(one, 2, delays_ms=[50.0, *[0.1] * 199])
    assert one.rate > LEAST
    other = share()
    lasts(other, 2, delays_ms=[50.0, *[0.1] * 19])
    assert other.rate == LEAST


def test_the_rate_stays_near_what_is_read() -> None:
    one = share()
    for at in range(2000):
        one.read(40_000)  # 8 MB/s
        one.delayed(0, at * 5 * MS)
    assert LEAST < one.rate <= 2.02 * LEAST


def test_delays_from_before_a_pause_do_not_count() -> None:
    one = share()
    for at in range(30):
        one.delayed(9 * MS, at * MS)
    one.read(LEAST)
    lasts(one, 1, delays_ms=[0.1], now_ns=100 * SECOND)
    assert one.rate > LEAST


def test_a_pace_with_a_bound_grants_what_is_free() -> None:
    pace = BulkPace(None, LEAST, bound_ns=5 * MS)
    assert pace.adapts
    granted = []
    for second in range(20):
        total = 0
        for at in range(200):
            now_ns = second * SECOND + at * 5 * MS
            taken = pace.take(1 << 22, now_ns, served_ns=now_ns)
            assert taken <= 1 << 20  # a larger answer would delay those of thin clients
            pace.settle(taken, taken)
            total += taken
            pace.delayed(0, now_ns)
        granted.append(total)
    assert granted[0] == pytest.approx(LEAST * 1.2, rel=0.2)
    assert granted[-1] > 10 * LEAST
    assert not BulkPace(None, LEAST).adapts
