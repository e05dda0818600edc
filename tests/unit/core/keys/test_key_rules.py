"""Outdated settings, and the rule of each message."""

from __future__ import annotations

from proxy.core.keys.ids import Epoch
from proxy.core.keys.key_rules import KeyRecord, KeyRule
from proxy.core.keys.order_key import MissingKey
from proxy.core.records.record import Snapshot
from testkit.pipelines import pipeline, rules

UNORDERED = MissingKey.UNORDERED
FIRST = KeyRecord.first(rules("KEY"))


def test_a_rule_that_the_queue_never_had_is_newer() -> None:
    assert FIRST.wants_change(rules("$.id"))
    assert not FIRST.is_newer_than(rules("$.id"))


def test_a_rule_that_the_queue_had_before_is_older() -> None:
    """So proxies with an old file do not revert a change."""
    changed = FIRST.changed(rules("$.id"), since=7).completed()
    assert changed.is_newer_than(rules("KEY"))
    assert not changed.wants_change(rules("KEY"))


def test_a_return_to_a_former_rule_needs_a_higher_version() -> None:
    changed = FIRST.changed(rules("$.id"), since=7).completed()
    back = rules("KEY", order_key_version=1)
    assert changed.wants_change(back)
    again = changed.changed(back, since=9).completed()
    assert not again.is_newer_than(rules("KEY"))
    assert again.is_newer_than(rules("$.id"))


def test_a_message_has_the_rule_of_its_place_until_the_change_is_through() -> None:
    changed = FIRST.changed(rules("QID"), since=7)
    assert [changed.rule_at(offset).text for offset in (6, 7)] == ["KEY", "QID"]
    assert KeyRecord.from_json(changed.to_json()) == changed


def test_the_policy_for_missing_keys_is_part_of_a_rule_where_keys_can_be_missing() -> None:
    assert KeyRule.of(rules("KEY")).missing is not None
    assert FIRST.wants_change(rules("KEY", missing_key=UNORDERED))
    assert not KeyRecord.first(rules("QID")).wants_change(rules("QID", missing_key=UNORDERED))


def test_a_pipeline_with_older_rules_goes_on_by_the_newer_ones_and_says_so() -> None:
    newer = FIRST.changed(rules("$.id"), since=0).completed()
    here = pipeline(rules("KEY"), resume=Snapshot(Epoch(1), 0, 0, (), keys=newer))
    assert not here.key_change_due
    assert "older than the order key in use, $.id" in here.statistics().key_change


def test_a_default_key_changes_no_recorded_one_and_is_not_older_than_it() -> None:
    default, named = rules("KEY", has_default_key=True), KeyRecord.first(rules("$.id"))
    assert not named.wants_change(default)
    assert not FIRST.changed(rules("$.id"), since=5).completed().is_newer_than(default)
    assert KeyRecord.first(default).wants_change(rules("$.id")), "settings do name one"


def test_settings_that_come_back_are_not_older_than_the_default_key_in_between() -> None:
    named, default = rules("$.id"), rules("KEY", has_default_key=True)
    first = pipeline(named)
    between = pipeline(default, epoch=2, resume=first.snapshot())
    assert between.keys.record.rule.text == "$.id"
    assert not between.key_change_due
    again = pipeline(named, epoch=3, resume=between.snapshot())
    assert again.statistics().key_change == ""
