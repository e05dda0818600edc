"""Topics that are created again while several groups, brokers and proxies use them."""

from __future__ import annotations

from typing import Any

import pytest

from testkit.explorer.plan import Action, ConsumerPlan, FlowPlan, Plan
from testkit.explorer.player import play

KEYS = [f"k{number}" for number in range(16)]


def _group(name: str, topic: str, **rules: Any) -> dict[str, Any]:
    settings = {
        "name": topic,
        "order_key": "KEY",
        "on_exhausted": "park",
        "max_deliveries": 3,
        "retry_intervals_ms": [200, 400],
        "visibility_timeout_s": 5.0,
        **rules,
    }
    return {"name": name, "topics": [settings]}


def _flow(at_s: float, topic: str, count: int, *, native: bool = False) -> FlowPlan:
    return FlowPlan(at_s, 0, topic, list(KEYS), count, 0.02, native=native)


def _plan(*actions: Action, flows: list[FlowPlan], queues: int = 6, seed: int = 1) -> Plan:
    """Return a plan of two brokers, two proxies, two groups of one topic and a third one of
    another.
    """
    groups = [
        _group("billing", "orders"),
        _group("audit", "orders", on_exhausted="dead_letter"),
        _group("mail", "letters"),
    ]
    return Plan(
        seed=seed,
        seconds=100.0,
        brokers={"broker-a": {}, "broker-b": {}},
        topics={"orders": queues, "letters": 3},
        groups=groups,
        proxies=2,
        proxy_settings={},
        producers=1,
        consumers=[
            ConsumerPlan(group["name"], None, proxy) for group in groups for proxy in range(2)
        ],
        flows=flows,
        actions=list(actions),
    )


def _recreate(at_s: float, queues: int, *, for_s: float = 0.5) -> Action:
    return Action(at_s, "recreate", {"topic": "orders", "queues": queues, "for_s": for_s})


TWICE = [_flow(1, "orders", 120), _flow(1, "letters", 200), _flow(40, "orders", 120)]


@pytest.mark.slow
@pytest.mark.parametrize(("queues", "native"), [(2, False), (9, False), (2, True)])
def test_a_topic_may_come_back_with_fewer_or_more_queues(queues: int, native: bool) -> None:
    flows = [*TWICE[:2], _flow(40, "orders", 120, native=native)]
    outcome = play(_plan(_recreate(20, queues), flows=flows))
    assert outcome.violations == {}
    assert outcome.done["recreate"] == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault",
    [
        Action(27.5, "kill", {"node": "proxy-1", "for_s": 6.0}),
        Action(27.9, "kill", {"node": "broker-a", "for_s": 4.0}),
        Action(29.5, "power", {"node": "broker-b", "for_s": 4.0}),
        Action(26.0, "freeze", {"node": "proxy-0", "for_s": 12.0}),
        Action(22.0, "fail", {"group": "billing", "key": "k3", "for_s": 30.0}),
        Action(5.0, "fail", {"group": "audit", "key": "k3", "for_s": 40.0}),
    ],
    ids=lambda fault: fault.kind,
)
def test_a_fault_at_the_change_of_lives_costs_no_message(fault: Action) -> None:
    outcome = play(_plan(_recreate(20, 4), fault, flows=TWICE))
    assert outcome.violations == {}
    assert outcome.done["recreate"] == 1


@pytest.mark.slow
def test_several_deletions_in_a_row_leave_every_life_whole() -> None:
    flows = [_flow(at, "orders", 60) for at in (1, 26, 52, 78)]
    actions = [_recreate(at, queues) for at, queues in ((10, 5), (35, 3), (60, 7))]
    outcome = play(_plan(*actions, flows=flows))
    assert outcome.violations == {}
    assert outcome.done["recreate"] == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("queues", "for_s"), [(6, 0.5), (6, 15.0), (3, 1.0)], ids=["at once", "later", "fewer queues"]
)
def test_a_topic_deleted_at_one_broker_goes_on_at_the_other(queues: int, for_s: float) -> None:
    """``mqadmin deleteTopic -b``: the other broker's queues continue, and these start over."""
    action = _recreate(20, queues, for_s=for_s)
    action.args["broker"] = "broker-b"
    flows = [_flow(1, "orders", 160), _flow(60, "orders", 160), _flow(1, "letters", 100)]
    outcome = play(_plan(action, flows=flows))
    assert outcome.violations == {}
    assert outcome.done["recreate"] == 1
    told = [event for event in outcome.events if event["e"] == "topic"]
    assert [event["broker"] for event in told] == ["broker-b"] * 2
    ended_ns = told[0]["t_ns"]
    stood = {e["queue"] for e in outcome.events if e["e"] == "deliver" and e["t_ns"] > ended_ns}
    assert {queue.rpartition("_")[0] for queue in stood} == {"broker-a", "broker-b"}
