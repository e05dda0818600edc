"""Which producer gets a broker's question about a transaction, and what is held meanwhile."""

from __future__ import annotations

from dataclasses import dataclass

from broker_core.names import Group, Topic
from proxy.downstream.transaction_checks import (
    HELD_NS,
    MOST_HELD,
    MOST_HELD_BYTES,
    Question,
    TransactionChecks,
)

GROUP, OTHER = Group("billing"), Group("shipping")


@dataclass(frozen=True, eq=False)
class Poll:
    group: Group
    topics: frozenset[Topic]


def poll(*topics: str, group: Group = GROUP) -> Poll:
    return Poll(group, frozenset(map(Topic, topics)))


def question(number: int, topic: str = "a", *, size_bytes: int = 100) -> Question:
    return Question(Topic(topic), f"id {number}", size_bytes, number)


def taken(checks: TransactionChecks[Poll], *topics: str, now_ns: int = 0) -> list[int]:
    return [each.check for each in checks.take(GROUP, set(map(Topic, topics)), now_ns=now_ns)]


def test_the_producer_that_waits_longest_and_knows_the_topic_is_asked() -> None:
    checks: TransactionChecks[Poll] = TransactionChecks()
    of_b, first, second = poll("b"), poll("a", "b"), poll("a")
    for each in (of_b, first, second, poll("a", group=OTHER)):
        checks.wait(each)
    assert checks.taker(GROUP, Topic("a")) is first
    assert checks.taker(GROUP, Topic("a")) is second
    assert checks.taker(GROUP, Topic("a")) is None
    assert checks.remove(of_b)
    assert not checks.remove(of_b)
    assert len(checks.all()) == 1


def test_a_held_question_goes_to_the_next_one_that_knows_its_topic() -> None:
    checks: TransactionChecks[Poll] = TransactionChecks()
    for number, topic in enumerate("abab"):
        assert checks.hold(GROUP, question(number, topic), now_ns=0)
    assert taken(checks, "b") == [1, 3]
    assert taken(checks, "a", "b") == [0, 2]
    assert checks.held == 0


def test_a_question_that_comes_again_replaces_the_first_one() -> None:
    checks: TransactionChecks[Poll] = TransactionChecks()
    checks.hold(GROUP, question(1), now_ns=0)
    checks.hold(GROUP, question(1)._replace(check="again"), now_ns=HELD_NS - 1)
    assert taken(checks, "a", now_ns=HELD_NS) == ["again"]


def test_questions_are_held_for_a_limited_time() -> None:
    checks: TransactionChecks[Poll] = TransactionChecks()
    checks.hold(GROUP, question(1), now_ns=0)
    checks.hold(GROUP, question(2), now_ns=5)
    assert taken(checks, "a", now_ns=HELD_NS) == [2]
    checks.hold(GROUP, question(3), now_ns=0)
    checks.forget(GROUP)
    assert checks.held == 0


def test_what_is_held_is_limited_in_number_and_in_bytes() -> None:
    checks: TransactionChecks[Poll] = TransactionChecks()
    for number in range(MOST_HELD):
        assert checks.hold(GROUP, question(number, size_bytes=1), now_ns=0)
    assert not checks.hold(OTHER, question(MOST_HELD, size_bytes=1), now_ns=0)
    assert checks.hold(GROUP, question(0, size_bytes=MOST_HELD_BYTES - MOST_HELD), now_ns=0)
    checks.forget(GROUP)
    assert checks.hold(GROUP, question(1, size_bytes=MOST_HELD_BYTES), now_ns=0)
    assert not checks.hold(GROUP, question(2, size_bytes=1), now_ns=0)


def test_an_answer_has_a_limit_which_one_question_may_exceed() -> None:
    checks: TransactionChecks[Poll] = TransactionChecks()
    for number in range(3):
        checks.hold(GROUP, question(number, size_bytes=3 * 1024 * 1024), now_ns=0)
    assert [taken(checks, "a") for _ in range(3)] == [[0], [1], [2]]
    for number in range(100):
        checks.hold(GROUP, question(number), now_ns=0)
    assert [len(taken(checks, "a")) for _ in range(2)] == [64, 36]
