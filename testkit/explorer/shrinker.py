"""Shrinks a failing plan to a shorter one that fails in the same way."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from testkit.explorer.plan import Plan
from testkit.explorer.player import Outcome, play

T = TypeVar("T")


def shrink(
    outcome: Outcome,
    *,
    within_s: float,
    run: Callable[[Plan], Outcome] = play,
    now_s: Callable[[], float] = time.monotonic,
) -> Outcome:
    """Return the outcome of the shortest plan found in *within_s* that breaks one of the same
    promises.
    """
    until_s = now_s() + within_s
    wanted = set(outcome.signature)
    best = outcome
    while True:
        for plan in _shorter(best.plan):
            if now_s() > until_s:
                return best
            tried = run(plan)
            if wanted & set(tried.signature):
                best = tried
                break
        else:
            return best


def _shorter(plan: Plan) -> Iterator[Plan]:
    """Yield shorter plans, the shortest first."""
    for actions in _without_parts(plan.actions):
        yield plan.changed(actions=actions)
    for flows in _without_parts(plan.flows):
        if flows:
            yield plan.changed(flows=flows)
    for number in range(len(plan.consumers) - 1, -1, -1):
        if len(plan.consumers) > 1 and not _is_named(plan, f"consumer-{number}", number):
            rest = [*plan.consumers[:number], *plan.consumers[number + 1 :]]
            if number == len(plan.consumers) - 1 or not _names_consumers(plan):
                yield plan.changed(consumers=rest)
    yield from _without_groups(plan)
    yield from _without_topics(plan)
    for number, flow in enumerate(plan.flows):
        smaller: list[dict[str, Any]] = []
        if flow.count > 4:
            smaller.append({"count": flow.count // 2})
        if len(flow.keys) > 1:
            smaller.append({"keys": flow.keys[: len(flow.keys) // 2]})
        for change in smaller:
            flows = list(plan.flows)
            flows[number] = replace(flow, **change)
            yield plan.changed(flows=flows)
    if plan.seconds > 20:
        last_s = max([0.0, *(each.at_s for each in plan.actions)])
        shorter_s = max(last_s + 1, plan.seconds / 2)
        if shorter_s < plan.seconds:
            yield plan.changed(seconds=shorter_s)


def _without_parts(parts: Sequence[T]) -> Iterator[list[T]]:
    """Yield *parts* without a half, a quarter, … one of them."""
    size = len(parts)
    while size:
        for begin in range(0, len(parts), size):
            yield [*parts[:begin], *parts[begin + size :]]
        size //= 2


def _names_consumers(plan: Plan) -> bool:
    return any(
        "consumer" in each.args or "consumer" in str(each.args.values()) for each in plan.actions
    )


def _is_named(plan: Plan, name: str, number: int) -> bool:
    return any(
        each.args.get("consumer") == number or name in each.args.values() for each in plan.actions
    )


def _without_groups(plan: Plan) -> Iterator[Plan]:
    used = {each.group for each in plan.consumers} | {
        each.args.get("group") for each in plan.actions
    }
    for group in plan.groups:
        if len(plan.groups) > 1 and group["name"] not in used:
            yield plan.changed(groups=[each for each in plan.groups if each is not group])


def _without_topics(plan: Plan) -> Iterator[Plan]:
    used = {flow.topic for flow in plan.flows} | {each.args.get("topic") for each in plan.actions}
    used |= {topic for each in plan.consumers for topic in each.topics or ()}
    for topic in plan.topics:
        if topic in used or any(len(group["topics"]) == 1 for group in plan.groups):
            continue
        groups = [
            {**group, "topics": [each for each in group["topics"] if each["name"] != topic]}
            for group in plan.groups
        ]
        rest = {name: queues for name, queues in plan.topics.items() if name != topic}
        yield plan.changed(topics=rest, groups=groups)
