from __future__ import annotations

from broker_core.broker.groups.notice_pace import NoticePace
from broker_core.names import Group

MS = 1_000_000
BILLING, OTHER = Group("billing"), Group("other")


def test_the_first_change_is_announced_at_once_and_the_last_of_many_a_moment_later() -> None:
    pace = NoticePace()
    assert pace.changed(BILLING, now_ns=0) == 0
    pace.notified(BILLING, 500, now_ns=0)
    assert pace.changed(BILLING, now_ns=100 * MS) == 400 * MS
    assert pace.changed(BILLING, now_ns=200 * MS) is None, "it is announced with the one before"
    pace.notified(BILLING, 501, now_ns=500 * MS)
    assert pace.changed(BILLING, now_ns=5000 * MS) == 0


def test_small_groups_hardly_wait_and_large_ones_a_second_at_most() -> None:
    pace = NoticePace()
    pace.notified(BILLING, 3, now_ns=0)
    pace.notified(OTHER, 10**6, now_ns=0)
    assert pace.changed(BILLING, now_ns=MS) == 2 * MS
    assert pace.changed(OTHER, now_ns=MS) == 999 * MS


def test_a_group_without_members_is_forgotten() -> None:
    pace = NoticePace()
    pace.notified(BILLING, 900, now_ns=0)
    pace.notified(BILLING, 0, now_ns=MS)
    assert pace.changed(BILLING, now_ns=2 * MS) == 0
