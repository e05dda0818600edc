"""Recent activity of keys: bounded, and including the most important ones."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.core.pipeline.recent_keys import HotKeys, KeyEvent, KeyEvents

MINUTE_NS = 60 * 1_000_000_000


@given(st.lists(st.integers(0, 2000).map(lambda n: b"%d" % (n if n % 3 else 0)), max_size=2000))
def test_no_count_is_too_high_and_none_too_low_by_more_than_a_256th_of_all(
    keys: list[bytes],
) -> None:
    hot = HotKeys()
    hot.note(keys, now_ns=1)
    counts, total = hot.counts(now_ns=2)
    assert total == len(keys)
    assert len(counts) <= 256
    for key in set(keys):
        assert 0 <= keys.count(key) - counts.get(key, 0) <= total / 256


def test_deliveries_older_than_two_minutes_are_forgotten() -> None:
    hot = HotKeys()
    hot.note([b"a", None], now_ns=0)
    hot.note([b"a", b"b"], now_ns=MINUTE_NS)
    assert hot.counts(now_ns=MINUTE_NS + 1) == ({b"a": 2, b"b": 1}, 3)
    assert hot.counts(now_ns=2 * MINUTE_NS + 1) == ({b"a": 1, b"b": 1}, 2)
    assert hot.counts(now_ns=9 * MINUTE_NS) == ({}, 0)


def test_of_the_keys_of_late_the_last_events_are_kept() -> None:
    events = KeyEvents()
    for at in range(600):
        events.note(b"%d" % at, KeyEvent(at, "failed", offset=at))
        events.note(b"always", KeyEvent(at, "failed"))
    assert len(events.keys) == 512
    assert [event.at_ns for event in events.of(b"always")] == list(range(568, 600))
    assert [event.offset for event in events.of(b"599")] == [599]
    assert events.of(b"0") == []


def test_many_keys_with_many_events_are_as_many_as_a_queue_may_keep() -> None:
    """Keys that fail and recover, one after the other: the events of the last ones, bounded."""
    events = KeyEvents()
    for at in range(10_000):
        events.note(b"%d" % (at // 40), KeyEvent(at, "delivered"))
    kept = [len(events.of(key)) for key in events.keys if key is not None]

    assert sum(kept) == 2_048
    assert kept == [32] * 64
    assert [event.at_ns for event in events.of(b"249")] == list(range(9_968, 10_000))


def test_events_of_few_keys_are_all_there() -> None:
    """However often the oldest ones were dropped."""
    events = KeyEvents()
    for at in range(64 * 100):
        events.note(b"%d" % (at % 64), KeyEvent(at, "failed"))

    assert [len(events.of(b"%d" % key)) for key in range(64)] == [32] * 64
