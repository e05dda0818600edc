"""Plays, judges, shrinks and saves one plan after another, and adds up the results."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from testkit.explorer.generator import draw
from testkit.explorer.player import Outcome, play
from testkit.explorer.shrinker import shrink
from testkit.simulation.history import save

_OUT = Path("build/explored")


@dataclass(slots=True)
class Summary:
    """A worker's result for one plan."""

    seed: int
    virtual_s: float
    cpu_s: float
    messages: int
    events: int
    done: Counter[str]
    parts: tuple[int, int, int]
    """Topics, groups and proxies."""
    failure: str = ""


@dataclass(slots=True)
class Totals:
    """Sums over all plans so far."""

    plans: int = 0
    virtual_s: float = 0.0
    combined_s: float = 0.0
    """Seconds with several topics, groups and proxies."""
    cpu_s: float = 0.0
    messages: int = 0
    done: Counter[str] = field(default_factory=Counter)
    failures: list[Summary] = field(default_factory=list)

    def add(self, summary: Summary) -> None:
        """Add one plan."""
        self.plans += 1
        self.virtual_s += summary.virtual_s
        self.cpu_s += summary.cpu_s
        self.messages += summary.messages
        self.done += summary.done
        if min(summary.parts) > 1:
            self.combined_s += summary.virtual_s
        if summary.failure:
            self.failures.append(summary)


def be_quiet() -> None:
    """Disable logging: clients' messages about injected faults are expected."""
    logging.disable(logging.CRITICAL)


def explore(
    seed: int, shrink_s: float, always: Collection[str] = (), never: Collection[str] = ()
) -> Summary:
    """Play the plan that ``draw`` returns; shrink a failure for at most *shrink_s* seconds."""
    plan = draw(seed, always=always, never=never)
    outcome = play(plan)
    summary = Summary(
        seed=seed,
        virtual_s=outcome.virtual_s,
        cpu_s=outcome.cpu_s,
        messages=plan.messages,
        events=len(outcome.events),
        done=outcome.done,
        parts=(len(plan.topics), len(plan.groups), plan.proxies),
    )
    if outcome.failed:
        if shrink_s:
            outcome = shrink(outcome, within_s=shrink_s)
        summary.failure = _report(seed, outcome)
    return summary


def _report(seed: int, outcome: Outcome) -> str:
    _OUT.mkdir(parents=True, exist_ok=True)
    path = _OUT / f"{seed}.json"
    found = sorted(outcome.violations) or ["error"]
    path.write_bytes(
        orjson.dumps(
            {"breaks": found, "plan": orjson.loads(outcome.plan.to_json())},
            option=orjson.OPT_INDENT_2,
        )
    )
    save(outcome.events, _OUT / f"{seed}.jsonl")
    sentences = [f"  {name}: {text}" for name, text in outcome.violations.items()]
    sentences += [f"  error: {text}" for text in outcome.errors[:3]]
    return "\n".join([*sentences, as_test(seed, outcome)])


def as_test(seed: int, outcome: Outcome) -> str:
    """Return the plan as a test for ``tests/world``."""
    text = outcome.plan.to_json().decode()
    return (
        f"def test_explored_{seed}() -> None:\n"
        f"    plan = Plan.from_json(rb'''{text}''')\n"
        "    assert play(plan).violations == {}\n"
    )
