from __future__ import annotations

from proxy.core.ownership.trust import Trust

SECOND = 1_000_000_000


def test_a_lock_is_trusted_until_its_time_is_over() -> None:
    trust = Trust(5 * SECOND)
    assert trust.holds(5 * SECOND - 1)
    assert not trust.holds(5 * SECOND)
    trust.granted(7 * SECOND, now_ns=2 * SECOND)
    trust.granted(6 * SECOND, now_ns=3 * SECOND)  # a late answer
    assert trust.until_ns == 7 * SECOND
    assert trust.holds(6 * SECOND)


def test_a_grant_after_a_lapse_or_a_lost_connection_is_in_doubt_until_the_records_are_seen() -> (
    None
):
    lapsed, cut = Trust(5 * SECOND), Trust(5 * SECOND)
    lapsed.granted(12 * SECOND, now_ns=7 * SECOND)
    cut.connection_lost()
    cut.granted(12 * SECOND, now_ns=2 * SECOND)
    for trust in (lapsed, cut):
        assert trust.doubtful
        assert not trust.holds(8 * SECOND)
        trust.cleared()
        assert trust.holds(8 * SECOND)
