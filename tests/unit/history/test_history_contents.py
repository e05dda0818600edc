"""I1: a handler receives the bytes that were sent."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.histories import LANE, QUEUE, Story
from tests.support.history_parts import found_both_ways


def sent(*, digest: str | None = "aa") -> Story:
    """Return a story with a message and its owner."""
    story = Story().add("send", msg="m0", topic="orders", key="k", digest=digest)
    return story.add("send_ok", msg="m0", **QUEUE, offset=0).own(1)


def handled(story: Story, *, digest: str | None, **others: Any) -> Story:
    lease = story.deliver(0)
    about = {**LANE, "offset": 0, "msg": "m0", "order": "k", "attempt": 1, "lease": lease}
    about |= {"consumer": "c", **others}
    story.add("handle_start", **about, digest=digest)
    return story.add("handle_end", **about, outcome="ok").ack(0, lease)


def found(story: Story) -> set[str]:
    return found_both_ways(story.events)


def test_i1_other_bytes_than_were_sent() -> None:
    story = handled(sent(), digest="bb")
    assert found(story) == {"I1"}
    assert story.report().violations["I1"].examples == [
        "group billing, orders/broker-a_0: key 'k': message m0 at offset 0 was handled with other"
        " bytes than were sent"
    ]


def test_the_same_bytes() -> None:
    assert found(handled(sent(), digest="aa")) == set()


@pytest.mark.parametrize(("before", "after"), [(None, "bb"), ("aa", None), (None, None)])
def test_unknown_contents_are_not_judged(before: str | None, after: str | None) -> None:
    assert found(handled(sent(digest=before), digest=after)) == set()


@pytest.mark.parametrize(("digest", "ids"), [("aa", set()), ("bb", {"I1"})])
def test_i1_a_message_without_an_id_is_judged_by_its_place(digest: str, ids: set[str]) -> None:
    assert found(handled(sent(), digest=digest, msg=None, lease=None)) == ids


@pytest.mark.parametrize("msg", ["m0", None, "copy"])
@pytest.mark.parametrize(("digest", "ids"), [("aa", set()), ("bb", {"I1"})])
def test_i1_a_parked_copy_has_the_bytes_of_its_message(
    msg: str | None, digest: str, ids: set[str]
) -> None:
    story = handled(sent(), digest=None)
    copy = {
        **LANE,
        "queue": "broker-a_0p",
        "offset": 7,
        "origin_offset": 0,
        "msg": msg,
        "order": "k",
    }
    story.add("handle_start", **copy, attempt=1, lease=9, consumer="c", digest=digest)
    assert found(story) - {"L2"} == ids


def test_i1_each_group_is_judged() -> None:
    story = handled(sent(), digest="aa")
    other = {**LANE, "group": "audit", "offset": 0, "msg": "m0", "order": "k", "attempt": 1}
    story.add("handle_start", **other, lease=1, consumer="d", digest="bb")
    story.add("handle_end", **other, lease=1, consumer="d", outcome="ok")
    assert found(story) == {"I1"}


def test_a_redriven_dead_letter_is_another_message() -> None:
    story = handled(sent(), digest="aa")
    story.add("send", msg="again", topic="orders", key="k")
    story.add("send_ok", msg="again", **QUEUE, offset=1)
    lease = story.deliver(1, msg="again")
    about = {**LANE, "offset": 1, "msg": "again", "order": "k", "lease": lease, "consumer": "c"}
    story.add("handle_start", **about, attempt=1, digest="cc")
    story.add("handle_end", **about, attempt=1, outcome="ok")
    assert found(story.ack(1, lease)) == set()


@pytest.mark.parametrize(("digest", "ids"), [("aa", set()), ("bb", {"I1"})])
def test_a_dead_letter_that_was_sent_back_has_the_bytes_of_its_message(
    digest: str, ids: set[str]
) -> None:
    story = handled(sent(), digest="aa")
    story.add("send", msg="m1", topic="orders", key="k", first="m0")
    story.add("send_ok", msg="m1", **QUEUE, offset=1)
    lease = story.deliver(1)
    about = {**LANE, "offset": 1, "msg": "m1", "order": "k", "attempt": 1, "lease": lease}
    story.add("handle_start", **about, consumer="c", digest=digest)
    story.add("handle_end", **about, consumer="c", outcome="ok").ack(1, lease)
    assert found(story) == ids
