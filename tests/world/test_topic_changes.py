"""The history of a world records changes of topics where they happened, also at a broker that was
away.
"""

from __future__ import annotations

import pytest

from testkit.explorer.plan import Action, ConsumerPlan, FlowPlan, Plan
from testkit.explorer.player import Outcome, play
from testkit.simulation.history import Event
from tests.support.variants import first_of

KEYS: list[str | None] = [f"k{number}" for number in range(8)]
BROKERS = ("broker-a", "broker-b")


def plan(*actions: Action, brokers: int = 1, queues: int = 2) -> Plan:
    """Return a plan in which messages are sent in the first seconds, and again from second 45
    on.
    """
    return Plan(
        seed=5,
        seconds=60.0,
        brokers={name: {} for name in BROKERS[:brokers]},
        topics={"orders": queues},
        groups=[{"name": "billing", "topics": [{"name": "orders", "order_key": "KEY"}]}],
        proxies=1,
        proxy_settings={},
        producers=1,
        consumers=[ConsumerPlan("billing", None, 0)],
        flows=[FlowPlan(at_s, 0, "orders", KEYS, 40, 0.1) for at_s in (0.0, 45.0)],
        actions=list(actions),
    )


def recreate(at_s: float, for_s: float = 5.0, queues: int = 2) -> Action:
    """Delete the topic 8 s after *at_s*, once sends have ended."""
    return Action(at_s, "recreate", {"topic": "orders", "queues": queues, "for_s": for_s})


def queues(at_s: float, count: int) -> Action:
    return Action(at_s, "queues", {"topic": "orders", "read": count, "write": count})


def away(kind: str, at_s: float, for_s: float, broker: str = "broker-a") -> Action:
    return Action(at_s, kind, {"node": broker, "for_s": for_s})


def said(outcome: Outcome, what: str) -> dict[str, float]:
    """Return when the topic was *what* at each broker, in seconds of the world."""

    def at_s(event: Event) -> float:
        return float(event["t_ns"] - outcome.events[0]["t_ns"]) / 1e9

    return {
        each["broker"]: at_s(each)
        for each in outcome.events
        if each["e"] == "topic" and each["what"] == what
    }


def all_sent_and_kept(outcome: Outcome) -> bool:
    """Check that nothing is broken, and the topic existed for every send."""
    assert (outcome.violations, outcome.errors) == ({}, [])
    return not any(each["e"] in ("send_fail", "send_info") for each in outcome.events)


@first_of("kind", ["kill", "power", "stop", "freeze"])
def test_a_topic_is_not_deleted_where_the_broker_is_away(kind: str) -> None:
    """Its queues return with the broker, and continue in the same life."""
    outcome = play(plan(recreate(2), away(kind, 8, for_s=10)))
    assert all_sent_and_kept(outcome)
    assert said(outcome, "deleted")["broker-a"] >= 18


@pytest.mark.slow
@first_of("kind", ["kill", "power", "stop", "freeze"])
def test_a_topic_is_not_created_where_the_broker_is_away(kind: str) -> None:
    outcome = play(plan(recreate(2), away(kind, 12, for_s=15)))
    assert all_sent_and_kept(outcome)
    assert said(outcome, "created")["broker-a"] >= 27


@pytest.mark.slow
@first_of("kind", ["kill", "freeze"])
def test_a_life_ends_at_each_broker_when_that_has_deleted_the_topic(kind: str) -> None:
    outcome = play(plan(recreate(2), away(kind, 8, 10, "broker-b"), brokers=2))
    assert all_sent_and_kept(outcome)
    deleted = said(outcome, "deleted")
    assert deleted["broker-a"] < 11
    assert deleted["broker-b"] >= 18


@pytest.mark.slow
@first_of("kind", ["kill", "freeze"])
def test_a_life_begins_at_each_broker_when_that_has_created_the_topic(kind: str) -> None:
    outcome = play(plan(recreate(2), away(kind, 12, 15, "broker-b"), brokers=2))
    assert all_sent_and_kept(outcome)
    created = said(outcome, "created")
    assert created["broker-a"] < 16
    assert created["broker-b"] >= 27
    assert {each["queue"] for each in outcome.events if each["e"] == "own+"} >= {
        f"{broker}_{number}" for broker in BROKERS for number in range(2)
    }


@pytest.mark.slow
def test_a_topic_that_somebody_makes_again_too_early_has_a_life_of_its_own() -> None:
    """It is deleted at one broker, not yet at the other, and created with more queues meanwhile."""
    acts = (recreate(2), away("freeze", 8, 12, "broker-b"), queues(14, 3))
    outcome = play(plan(*acts, brokers=2))
    assert all_sent_and_kept(outcome)
    begins = [
        each["begin"]
        for each in outcome.events
        if each["e"] == "own+" and each["queue"] == "broker-a_2"
    ]
    assert begins
    assert set(begins) == {0}


@pytest.mark.slow
@first_of("kind", ["kill", "freeze"])
def test_queues_that_were_taken_away_are_read_again_once_their_broker_is_back(kind: str) -> None:
    fewer = {"topic": "orders", "read": 1, "write": 1, "all": 4, "for_s": 8.0}
    slow = Action(0.0, "work", {"seconds": 3.0})  # leaves unread messages there
    acts = (slow, Action(3.0, "fewer queues", fewer), away(kind, 10, for_s=15))
    assert play(plan(*acts, queues=4)).violations == {}


@pytest.mark.slow
def test_queues_are_read_again_also_if_a_broker_does_not_answer_that_they_are_taken_away() -> None:
    fewer = {"topic": "orders", "read": 1, "write": 1, "all": 4, "for_s": 8.0}
    slow = Action(0.0, "work", {"seconds": 3.0})
    disk = Action(2.0, "slow disk", {"node": "broker-b", "by_s": 6.0, "for_s": 15.0})
    outcome = play(plan(slow, disk, Action(3.0, "fewer queues", fewer), brokers=2, queues=4))
    assert outcome.violations == {}
    assert outcome.done["fewer queues"] == 1


@pytest.mark.slow
@first_of("before", [recreate(2, queues=4), queues(1, 4)], ids=lambda act: act.kind)
def test_more_queues_are_never_fewer_than_the_topic_has(before: Action) -> None:
    """Messages in removed queues would never be read."""
    slow = Action(40.0, "work", {"seconds": 3.0})
    assert play(plan(before, slow, queues(50, 2), queues=1)).violations == {}
