"""The explorer: plans are data, drawn by seed, shrunk to the essential actions."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from testkit.explorer.generator import FAULTS, FEATURES, draw
from testkit.explorer.plan import Action, Plan
from testkit.explorer.player import LIMITS, Outcome, limits_of, outruns_retention
from testkit.explorer.shrinker import shrink


def outcome_of(plan: Plan, broken: bool) -> Outcome:
    return Outcome(
        plan=plan,
        violations={"O1": "broken"} if broken else {},
        errors=[],
        events=[],
        virtual_s=0.0,
        cpu_s=0.0,
        done=Counter(),
    )


def test_the_same_seed_draws_the_same_plan_and_another_one_does_not() -> None:
    assert draw(7) == draw(7)
    assert draw(7) != draw(8)


def test_a_plan_is_the_same_after_a_file() -> None:
    for seed in range(20):
        assert Plan.from_json(draw(seed).to_json()) == draw(seed)


def test_features_can_be_had_and_left_out() -> None:
    never = [name for name in FEATURES if name not in ("kills", "several proxies")]
    plan = draw(3, always=["kills", "several proxies"], never=never)
    assert {action.kind for action in plan.actions} == {"kill"}
    assert plan.proxies > 1


def test_some_worlds_are_calm() -> None:
    assert set(FEATURES) > FAULTS
    faults = {"kill", "power", "stop", "freeze", "cut", "delay", "reset link", "client"}
    kinds = [{action.kind for action in draw(seed).actions} & faults for seed in range(60)]
    assert 10 < sum(not each for each in kinds) < 50


def test_shrinking_keeps_the_actions_that_the_failure_needs() -> None:
    """A plan fails here if it stops proxy-1 after a message for payments was sent."""
    plan = next(
        each
        for each in map(draw, range(500))
        if len(each.actions) > 8 and each.topics.keys() >= {"orders", "payments"}
    )
    needed = Action(30.0, "stop", {"node": "proxy-1", "for_s": 1.0})
    plan = plan.changed(actions=[*plan.actions, needed])

    def run(tried: Plan) -> Outcome:
        to_payments = any(flow.topic == "payments" for flow in tried.flows)
        return outcome_of(tried, needed in tried.actions and to_payments)

    found = shrink(run(plan), within_s=60, run=run).plan
    assert found.actions == [needed]
    assert [flow.topic for flow in found.flows] == ["payments"]
    assert found.flows[0].count <= 4
    assert run(found).failed


def test_shrinking_ends_with_its_time() -> None:
    plan = draw(1)
    times = iter(range(1000))
    kept = shrink(
        outcome_of(plan, broken=True),
        within_s=3,
        run=lambda tried: outcome_of(tried, broken=False),
        now_s=lambda: float(next(times)),
    )
    assert kept.plan == plan
    assert next(times) < 10


def test_a_failure_of_another_kind_is_no_shorter_form_of_it() -> None:
    first = replace(outcome_of(draw(1), broken=True), violations={"D1": "lost"})
    assert shrink(first, within_s=9, run=lambda tried: outcome_of(tried, broken=True)) is first


def test_only_unordered_messages_wait_for_little_memory() -> None:
    """Found by exploring: 100 of them, of 40 KB, went through 100 KB of memory in 20 s."""
    features = ["little memory", "slow handlers", "large bodies"]
    plan = draw(19107, always=features)
    (group, *_) = plan.groups
    ordered = {**group, "topics": [{**each, "order_key": "KEY"} for each in group["topics"]]}
    unordered = {**group, "topics": [{**each, "order_key": None} for each in group["topics"]]}
    assert limits_of(plan.changed(groups=[ordered])) == LIMITS
    assert limits_of(plan.changed(groups=[unordered])).delivery_s > LIMITS.delivery_s
    ample = plan.changed(groups=[unordered], proxy_settings={})
    assert limits_of(ample) == LIMITS


def test_properties_use_memory_as_bodies_do() -> None:
    """Found by exploring: seed 50744, with properties of 30 KB."""
    plan = draw(50744, always=["little memory", "slow handlers", "long properties"])
    group = {"name": "billing", "topics": [{"name": "orders", "order_key": None}]}
    wide = [replace(each, properties={"long": "x" * 30_000}) for each in plan.flows]
    narrow = [replace(each, properties={}) for each in plan.flows]
    limits = [limits_of(plan.changed(groups=[group], flows=flows)) for flows in (narrow, wide)]
    assert limits[1].delivery_s > limits[0].delivery_s


def test_brokers_that_retain_seconds_keep_no_state() -> None:
    """Found by exploring: 100 KB a second went into a log of 1 MB while a queue had no owner."""
    plan = draw(3)
    fast = replace(plan.flows[0], count=100, every_s=0.4, body_bytes=40_000)
    slow = replace(fast, body_bytes=60)
    plan = plan.changed(brokers={"broker-a": {"retention_bytes": 1_000_000}})
    assert outruns_retention(plan.changed(flows=[fast]))
    assert not outruns_retention(plan.changed(flows=[slow]))
    assert not outruns_retention(plan.changed(flows=[fast], brokers={"broker-a": {}}))
