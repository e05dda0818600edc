"""Changes of a queue's rules while messages are leased or wait."""

from __future__ import annotations

from proxy.core.ownership.recording import Recording
from testkit.messages import keyed
from testkit.pipelines import MS, lease, pipeline, rules


def test_a_longer_lease_counts_once_a_record_says_so() -> None:
    """Otherwise the next owner would not wait long enough after a crash."""
    here = pipeline(rules(visibility_ns=5 * MS), messages=[keyed(0, "a"), keyed(1, "b")])
    here.change_rules(rules(visibility_ns=9 * MS))
    assert lease(here, 1)[0].deadline_ns == 5 * MS
    recording = Recording(here, None)
    recording.written(recording.due(0), at=1)
    assert lease(here, 1)[0].deadline_ns == 9 * MS


def test_a_shorter_lease_counts_at_once_and_ends_none_before_its_time() -> None:
    here = pipeline(rules(visibility_ns=9 * MS), messages=[keyed(0, "a"), keyed(1, "b")])
    lease(here, 1)
    here.change_rules(rules(visibility_ns=5 * MS))
    assert [each.job.offset for each in lease(here)] == [1]
    assert [each.job.offset for each in here.on_time(now_ns=5 * MS).expired] == [1]
    assert [each.job.offset for each in here.on_time(now_ns=9 * MS).expired] == [0]


def test_another_order_key_waits_for_its_switch() -> None:
    """The other rules apply at once."""
    here = pipeline(rules("KEY"))
    here.change_rules(rules("$.id", visibility_ns=5 * MS))
    here.on_messages([keyed(0, "a"), keyed(1, "a")], next_offset=2)
    assert [each.job.key for each in lease(here)] == [b"a"]
