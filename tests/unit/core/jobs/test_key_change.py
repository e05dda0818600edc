"""Changes of the order key: messages that wait, and messages that do not."""

from __future__ import annotations

import pytest

from broker_core.remoting.message import StoredMessage
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.errors import WrongState
from proxy.lane.history import rules_in_history
from testkit.messages import message
from testkit.pipelines import lease, offsets, pipeline, rules
from tests.support.rekeyed_site import RekeyedSite


def sent(offset: int, key: str, ident: str) -> StoredMessage:
    return message(offset, key=key, body=f'{{"id":"{ident}"}}'.encode())


OLDER = [sent(0, "a", "x"), sent(1, "b", "y")]


def changed(*, counted: bool = True) -> QueuePipeline:
    """Return a pipeline with two leased older messages and a changed order key."""
    here = pipeline(rules("KEY"), messages=OLDER)
    assert offsets(lease(here)) == [0, 1]
    here.change_rules(rules("$.id"))
    here.plan_key_change()
    here.key_change_recorded()
    if counted:
        here.older_counted([0, 1], dict(enumerate(OLDER)))
    return here


def finish(here: QueuePipeline, offset: int) -> None:
    each = here.leases.at(offset)
    assert each is not None
    here.settle(acked=[each.lease_id], now_ns=0)


def test_only_keys_with_unfinished_older_messages_wait() -> None:
    here = changed()
    here.on_messages([sent(2, "c", "x"), sent(3, "c", "z")], next_offset=4)
    assert offsets(lease(here)) == [3]
    finish(here, 1)
    assert offsets(lease(here)) == []
    finish(here, 0)
    assert offsets(lease(here)) == [2]


def test_nothing_newer_is_handed_out_before_the_older_ones_are_counted() -> None:
    here = changed(counted=False)
    here.on_messages([sent(2, "c", "z")], next_offset=3)
    assert offsets(lease(here)) == []
    here.older_counted([0, 1], dict(enumerate(OLDER)))
    assert offsets(lease(here)) == [2]


def test_nothing_is_read_until_a_record_names_the_switch() -> None:
    here = pipeline(rules("KEY"))
    here.change_rules(rules("$.id"))
    here.plan_key_change()
    here.on_messages(OLDER, next_offset=2)
    assert (here.room(), here.position) == (0, 0)


def test_a_history_names_the_rule_before_until_a_record_names_the_switch() -> None:
    """Otherwise the checker would use a rule that no delivery follows yet."""
    here = pipeline(rules("KEY"), messages=OLDER)
    here.change_rules(rules("$.id"))
    here.plan_key_change()
    assert rules_in_history(here)["order_key"] == "KEY"
    here.key_change_recorded()
    assert rules_in_history(here)["order_key"] == "$.id"


def test_a_second_change_begins_when_the_first_is_through() -> None:
    here = changed()
    here.change_rules(rules("QID"))
    assert not here.key_change_due
    finish(here, 0)
    finish(here, 1)
    assert here.key_change_due
    assert here.statistics().older == 0


def test_messages_in_memory_are_counted_without_reading() -> None:
    """Even if retention deleted it, it is known, and only its new key waits."""
    here = changed(counted=False)
    change = here.jobs.change
    assert change is not None
    assert (change.to_count(9), change.to_read([0, 1])) == ([0, 1], [])
    here.older_counted([0, 1], {})
    here.on_messages([sent(2, "c", "x"), sent(3, "c", "z")], next_offset=4)
    assert offsets(lease(here)) == [3]
    finish(here, 0)
    assert offsets(lease(here)) == [2]


def test_a_deleted_spilled_message_is_not_waited_for() -> None:
    """It is never delivered, so nothing can precede it."""
    here = pipeline(
        rules("KEY", max_jobs=4, max_jobs_per_key=1),
        messages=[sent(offset, "a", f"{offset}") for offset in range(4)],
    )
    assert offsets(lease(here)) == [0]
    here.room(demand=True)  # the rest of the chain is spilled
    here.change_rules(rules("$.id", max_jobs=4, max_jobs_per_key=1))
    here.plan_key_change()
    here.key_change_recorded()
    change = here.jobs.change
    assert change is not None
    spilled = change.to_read(change.to_count(9))
    assert 3 in spilled
    here.older_counted(change.to_count(9), {})
    here.on_messages([sent(4, "c", "3"), sent(5, "c", "0")], next_offset=6)
    assert offsets(lease(here)) == [4]


def test_the_switch_is_above_all_copied_messages_even_unrecorded_ones() -> None:
    """Otherwise message and copy would have keys by different rules."""
    site = RekeyedSite()
    site.send([("a", "x")] * 4)
    site.read()
    site.park("a")
    site.record_parked()  # that is the last record
    said = site.pipeline.position
    for _ in range(4):
        site.read()
        site.refill()
        site.copy(heard=True)
    assert len(site.copies) == 4
    site.begin()
    site.open_twin()
    site.want("$.id")
    assert site.twin is not None
    assert site.pipeline.jobs.read <= said < 4
    assert not site.pipeline.key_change_due
    assert site.pipeline.key_change_in_words.endswith("copies of parked messages are being read")
    for _ in range(4):
        site.read_twin()
    assert site.pipeline.key_change_due
    site.plan()
    assert site.pipeline.keys.record.since == 4
    site.finish()


def test_a_message_that_waits_for_older_ones_is_not_retried() -> None:
    """Otherwise it would be offered in addition to the lease that it gets afterwards."""
    here = changed()
    here.on_messages([sent(2, "c", "x")], next_offset=3)
    job = here.head(b"x")
    assert job is not None
    with pytest.raises(WrongState, match="message 2 of key 'x' waits for older messages while"):
        here.retry(job, reset_attempts=True)


def parked_while_the_order_key_changes() -> RekeyedSite:
    """Return a site with parked older messages 0 and 1 of "a", with the ids 1 and 2, not recorded
    in the twin. 2 is handled, and the newer 3 has the id 1.
    """
    site = RekeyedSite()
    site.send([("a", "1"), ("a", "2"), ("b", "3")])
    for _ in range(2):
        site.read()
    site.record()
    site.want("$.id")
    site.refill()  # the change begins
    site.park("a")
    site.record_parked()
    site.copy(heard=True)
    site.pull()
    site.settle()
    assert (site.done, len(site.copies), site.pipeline.keys.record.since) == ({2}, 2, 3)
    site.send([("z", "1")])
    return site


def check_wait_for_parked_messages(site: RekeyedSite) -> None:
    """Check that the change lasts until "a" is redriven, without losses or overtaking."""
    assert site.pipeline.keys.record.before is not None
    for _ in range(4):
        for step in (site.read, site.read_twin, site.refill, site.pull, site.settle):
            step()
    assert site.done == {2}
    assert site.twin is not None
    assert site.twin.jobs.unfinished == 2
    site.finish()


@pytest.mark.parametrize("twin_is_recorded", [False, True])
def test_older_messages_found_parked_are_waited_for(twin_is_recorded: bool) -> None:
    site = parked_while_the_order_key_changes()
    if twin_is_recorded:
        site.read_twin()
        site.write_record(1)
    site.commit()
    site.damage(0, 0, records=1)
    assert site.pipeline.parked[b"a"].by == "recovery"
    check_wait_for_parked_messages(site)


@pytest.mark.parametrize("is_free", [False, True])
def test_older_messages_that_are_parked_are_waited_for_over_a_reset(is_free: bool) -> None:
    site = parked_while_the_order_key_changes()
    site.reset(3, is_free=is_free)
    assert set(site.pipeline.parked) == {b"a"}
    check_wait_for_parked_messages(site)


def test_a_reset_past_the_switch_ends_a_change_if_parked_messages_are_newer() -> None:
    site = RekeyedSite()
    site.send([("a", "1")])
    site.read()
    site.want("$.id")
    site.refill()
    site.send([("a", "2")])
    site.read()
    site.park("2")
    site.record_parked()
    assert site.pipeline.keys.record.before is not None
    site.reset(2)
    assert set(site.pipeline.parked) == {b"2"}
    assert site.pipeline.keys.record.before is None
    site.finish()
