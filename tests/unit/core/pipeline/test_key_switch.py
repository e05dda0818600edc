"""When another order key takes effect, and from which offset."""

from __future__ import annotations

from proxy.core.jobs.jobs import Jobs
from proxy.core.jobs.tracked_dict import TrackedDict
from proxy.core.jobs.window import Budget, FlowWindow
from proxy.core.keys.key_rules import KeyRecord
from proxy.core.pipeline.key_switch import KeySwitch
from testkit.messages import message
from testkit.pipelines import rules

OLD, NEW = rules("KEY"), rules("$.id")


def switch(*, read: int = 0, record: KeyRecord | None = None, is_twin: bool = False) -> KeySwitch:
    """Return the switch of a queue that was read up to *read*, with all messages finished."""
    jobs = Jobs(read, window=FlowWindow(8, Budget(1000)), max_jobs_per_key=2)
    return KeySwitch(jobs, OLD, record, TrackedDict(), is_twin=is_twin)


def test_the_first_rules_are_no_change() -> None:
    keys = switch()

    assert not keys.is_due(OLD)
    assert keys.is_due(NEW)
    assert keys.in_words(OLD) == ""


def test_the_queue_decides_for_its_twin() -> None:
    twin = switch(is_twin=True)

    assert not twin.is_due(NEW)
    assert twin.recorded is None


def test_the_switch_lies_behind_all_that_was_read_or_copied() -> None:
    for read, copied_below, since in ((5, 3, 5), (5, 9, 9)):
        keys = switch(read=read)
        keys.plan(NEW, copied_below=copied_below)

        assert (keys.record.since, keys.planned) == (since, True)
        assert not keys.is_due(NEW), "one at a time"
        assert keys.in_words(NEW).endswith("about to begin")


def test_messages_below_the_switch_keep_their_rule_until_the_change_is_through() -> None:
    keys = switch(read=5)
    keys.plan(NEW, copied_below=0)
    keys.planned_is_recorded()
    assert not keys.waits_for_parked
    keys.begin()
    assert keys.waits_for_parked, "no older message is left in the queue itself"

    assert [keys.rule_of(message(at, key="k")).text for at in (4, 5)] == ["KEY", "$.id"]
    assert keys.settle(), "no older message is unfinished"
    assert keys.rule_of(message(4, key="k")).text == "$.id"
    assert not keys.settle()
    assert not keys.waits_for_parked


def test_a_change_that_an_owner_before_began_goes_on() -> None:
    keys = switch(read=5, record=KeyRecord.first(OLD).changed(NEW, since=3))

    assert keys.record.before is not None
    assert keys.settle()
    assert keys.record.before is None
