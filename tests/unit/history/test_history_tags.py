"""Tags in histories: brokers leave unwanted messages out, so these need not finish."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.histories import LANE, Story
from tests.unit.history.action_rules import RULES


def _tagged(*, rules: list[str] | None) -> Story:
    """Return a story with the tags a, b and none, and an owner that wants *rules*."""
    story = Story().sent(0, tag="a").sent(1, tag="b").sent(2)
    return story.own(1, begin=0, **RULES, tags=rules)


def _changed(story: Story, tags: list[str] | None) -> Story:
    rules: dict[str, Any] = {**RULES, "tags": tags}
    return story.add("rules", **LANE, epoch=1, **rules, jobs=0)


def test_unwanted_messages_are_not_lost() -> None:
    assert _tagged(rules=["a"]).through(0).commit(3).found() == set()


def test_wanted_messages_may_be_lost() -> None:
    assert _tagged(rules=["a", "b"]).through(0).found() == {"D1"}
    assert _tagged(rules=None).through(0, 1).found() == {"D1"}
    assert _tagged(rules=["a", "b"]).through(0).commit(3).found() == {"C2", "D1"}


def test_a_group_without_tags_wants_all_messages() -> None:
    story = Story().sent(0, tag="a").sent(1, tag="b").own(1, begin=0, **RULES)
    assert story.through(0).found() == {"D1"}


def test_while_tags_change_a_message_is_owed_only_if_both_rules_want_it() -> None:
    assert _changed(_tagged(rules=["a"]), ["a", "b"]).through(0).commit(3).found() == set()
    assert _changed(_tagged(rules=["a", "b"]), ["b"]).through(0).commit(3).found() == {"C2", "D1"}


def test_nothing_is_delivered_with_a_tag_that_no_rule_accepts() -> None:
    assert _tagged(rules=["a"]).through(0, 1).found() == {"D2"}
    assert _changed(_tagged(rules=["a"]), ["b"]).through(0, 1).found() == set()


def _crashed(tags: list[str] | None) -> Story:
    """Return a story in which the owner delivers one and crashes; the next one wants *tags*."""
    story = _tagged(rules=["a", "b"])
    story.deliver(0)
    rules: dict[str, Any] = {**RULES, "tags": tags}
    return story.wait(20).own(2, begin=0, **rules)


def test_the_next_owner_does_not_read_what_its_tags_exclude() -> None:
    assert _crashed(["b"]).through(1).commit(2).found() == set()
    assert _crashed(["a", "b"]).through(1).commit(2).found() == {"O2", "C2", "D1"}
    assert _crashed(None).through(1).commit(2).found() == {"O2", "C2", "D1"}


@pytest.mark.parametrize(("before", "found"), [(["a"], set()), (["a", "b"], {"O1"})])
def test_an_owner_may_read_late_what_former_tags_left_out(
    before: list[str], found: set[str]
) -> None:
    """The owner crashed before it recorded what it had read, so the next one reads it again."""
    story = Story().sent(0, tag="b").sent(1, tag="a").own(1, begin=0, **RULES, tags=before)
    lease = story.deliver(1)
    story.handle_start(1, lease).handle_end(1, lease).ack(1, lease)
    story.wait(20).own(2, begin=0, **RULES, tags=["a", "b"])
    lease = story.deliver(0)
    story.handle_start(0, lease).handle_end(0, lease).ack(0, lease)
    assert story.found() == found


def test_an_owner_does_not_read_back_when_its_tags_change() -> None:
    story = Story().sent(0, tag="b").sent(1, tag="a").own(1, begin=0, **RULES, tags=["a"])
    assert _changed(story.through(1), ["a", "b"]).through(0).found() == {"O1"}
