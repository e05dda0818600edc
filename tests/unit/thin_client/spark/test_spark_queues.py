"""Queues that a query finds or waits for; the proxy is a list of answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from thin_client.errors import Refused
from thin_client.spark import queues
from thin_client.spark.bulk_client import BulkClient
from thin_client.spark.offsets import QueueState
from thin_client.spark.queues import Queues
from thin_client.spark.selection import Selection

A0, A1, B0 = (QueueState(*name, 0, 9) for name in (("a", "x_0"), ("a", "x_1"), ("b", "x_0")))
BOTH = Selection(subscribe=("a", "b"))
AT_A0_A1, AT_A0_B0 = {"a": {"x_0": 4, "x_1": 4}}, {"a": {"x_0": 4}, "b": {"x_0": 4}}


class Proxy:
    """Returns successive lists of queues; a topic without queues is unknown."""

    def __init__(self, *there: list[QueueState]) -> None:
        self.there = list(there)
        self.deleted: list[str] = []  # since the last list of topics
        self.asked = 0
        self.group = True
        self.left_out: set[str] = set()  # topics that exist, but not in the group's settings

    def check_group(self) -> None:
        if not self.group:
            raise Refused(404, "no group 'lake' here")

    def topics(self) -> list[str]:
        return [*{state.topic for state in self.there[0]}, *self.deleted]

    def ranges(self, topics: list[str], timestamp_ms: int | None = None) -> list[QueueState]:
        now = self.there[0]
        if outside := self.left_out.intersection(topics):
            raise Refused(400, f"the group has no topic {outside.pop()}, which exists")
        if missing := set(topics) - {state.topic for state in now}:
            raise Refused(404, f"there is no topic {missing.pop()}")
        self.asked += 1
        if len(self.there) > 1:
            del self.there[0]
        return [state for state in now if state.topic in topics]


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "LOOK_S", 0.0)


def of(proxy: Any, selection: Selection, *, patience_s: float = 60.0) -> Queues:
    return Queues(cast(BulkClient, proxy), selection, patience_s=patience_s)


def test_a_queue_that_was_read_before_is_waited_for() -> None:
    proxy = Proxy([A0], [A0], [A0, A1])
    assert of(proxy, Selection(subscribe=("a",))).states(since=AT_A0_A1) == [A0, A1]
    assert proxy.asked == 3


class Clock:
    """Replaces ``time`` in the queues: sleeping takes no time."""

    now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def test_a_queue_that_stays_away_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "time", Clock())
    monkeypatch.setattr(queues, "LOOK_S", 1.0)
    proxy = Proxy([A0])
    found = of(proxy, Selection(subscribe=("a",)), patience_s=60.0)
    for times in (61, 62):
        assert found.states(since=AT_A0_A1) == [A0]
        assert proxy.asked == times
    proxy.there = [[A0, A1], [A0]]
    assert found.states(since=AT_A0_A1) == [A0, A1]
    proxy.there = [[A0], [A0, A1]]
    assert found.states(since=AT_A0_A1) == [A0, A1], "back, it is waited for again"


def test_what_is_no_longer_asked_for_is_not_waited_for() -> None:
    proxy = Proxy([A0])
    assert of(proxy, Selection(subscribe=("a",))).states(since=AT_A0_B0) == [A0]
    assert proxy.asked == 1


def test_a_topic_that_vanished_keeps_no_other_from_being_read() -> None:
    proxy = Proxy([A0, A1])
    assert of(proxy, BOTH, patience_s=0).states(since=AT_A0_B0) == [A0, A1]
    pattern = Selection(pattern="a|b")
    assert of(proxy, pattern, patience_s=0).states(since=AT_A0_B0) == [A0, A1]


def test_a_topic_that_never_was_there_is_refused() -> None:
    for since in ({}, {"a": {"x_0": 4}}):
        with pytest.raises(Refused, match="there is no topic b"):
            of(Proxy([A0]), BOTH).states(since=since)


def test_a_planned_batch_waits_for_its_own_queues() -> None:
    proxy = Proxy([A0, B0], [A0, A1, B0])
    found = of(proxy, Selection(subscribe=("b",)))
    assert found.of([A1.queue]) == [A1]
    assert of(Proxy([B0]), BOTH, patience_s=0).of([A1.queue, B0.queue]) == [B0]
    assert found.of([]) == []


def test_queues_of_a_group_that_is_gone_are_not_given_up() -> None:
    """With ``failOnDataLoss`` false, a planned batch would be skipped."""
    proxy = Proxy([])
    proxy.group = False
    found = of(proxy, BOTH, patience_s=0)
    for ask in (lambda: found.of([A0.queue]), lambda: found.states(since=AT_A0_B0)):
        with pytest.raises(Refused, match="no group 'lake' here"):
            ask()


def test_queues_of_a_topic_that_the_group_no_longer_has_are_not_given_up() -> None:
    """Also among others: their messages exist."""
    proxy = Proxy([A0, B0])
    proxy.left_out = {"b"}
    found = of(proxy, BOTH, patience_s=0)
    for ask in (lambda: found.of([A0.queue, B0.queue]), lambda: found.states(since=AT_A0_B0)):
        with pytest.raises(Refused, match="no topic b, which exists"):
            ask()


def test_a_queue_that_a_topic_was_created_again_without_is_not_waited_for() -> None:
    new = replace(A0, life=9)
    proxy = Proxy([new])
    since = {"": {"version": 2, "a/x_0": 3, "a/x_1": 3}, **AT_A0_A1}
    assert of(proxy, Selection(subscribe=("a",))).states(since=since) == [new]
    assert proxy.asked == 1


def test_a_pattern_reads_the_topics_that_exist() -> None:
    proxy = Proxy([A0, B0])
    assert of(proxy, Selection(pattern="a|c")).states() == [A0]
    proxy.deleted = ["c"]
    assert of(proxy, Selection(pattern="a|c")).states() == [A0]
    assert of(proxy, Selection(pattern="c")).states() == []
