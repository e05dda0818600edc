"""``python -m testkit.explorer.hour``: cost of simulating one busy hour.

Three proxies, four groups, eight queues, 50 clients, and a fault every 30 s. Prints the processor
time in seconds and the verdict; ``--json`` for programs.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from typing import Any

from testkit.explorer.exploring import be_quiet
from testkit.explorer.plan import Action, ConsumerPlan, FlowPlan, Plan
from testkit.explorer.player import play

_PROXIES, _GROUPS, _QUEUES, _PRODUCERS, _CONSUMERS = 3, 4, 8, 22, 28
_LEASES_S = (5.0, 8.0, 12.0, 20.0)
_FAULT_EVERY_S = 30.0


def hour_plan(seed: int, *, seconds: float = 3600.0, every_s: float = 22.0) -> Plan:
    """Return the plan of a busy world; each producer sends a message every *every_s* seconds on
    average.
    """
    chance = random.Random(f"hour {seed}")
    topics = {"orders": _QUEUES // 2, "payments": _QUEUES // 2}
    consumers = [
        ConsumerPlan(f"group-{number % _GROUPS}", None, number % _PROXIES)
        for number in range(_CONSUMERS)
    ]
    flows = [
        FlowPlan(
            1.0,
            number,
            list(topics)[number % 2],
            [f"k{number}-{key}" for key in range(8)],
            int(seconds / every_s),
            every_s,
        )
        for number in range(_PRODUCERS)
    ]
    return Plan(
        seed=seed,
        seconds=seconds,
        brokers={"broker-a": {}},
        topics=topics,
        groups=_groups(topics),
        proxies=_PROXIES,
        proxy_settings={},
        producers=_PRODUCERS,
        consumers=consumers,
        flows=flows,
        actions=_faults(chance, seconds),
    )


def _groups(topics: dict[str, int]) -> list[dict[str, Any]]:
    """Return groups that each read all topics, with different leases."""
    return [
        {
            "name": f"group-{number}",
            "topics": [
                {
                    "name": topic,
                    "order_key": "KEY",
                    "retry_intervals_ms": [100, 500],
                    "visibility_timeout_s": _LEASES_S[number],
                }
                for topic in topics
            ],
        }
        for number in range(_GROUPS)
    ]


def _faults(chance: random.Random, seconds: float) -> list[Action]:
    """Return faults one after the other, the last one a minute before the end."""
    nodes = [*(f"proxy-{number}" for number in range(_PROXIES)), "broker-a", "nameserver"]
    links = [(f"proxy-{number}", "broker-a") for number in range(_PROXIES)]
    actions = []
    at_s = _FAULT_EVERY_S
    while at_s < seconds - 60:
        for_s = {"for_s": round(chance.uniform(1, 12), 1)}
        source, target = chance.choice(links)
        kind, args = chance.choice(
            [
                ("kill", {"node": chance.choice(nodes), **for_s}),
                ("power", {"node": "broker-a", **for_s}),
                ("freeze", {"node": chance.choice(nodes), **for_s}),
                ("stop", {"node": chance.choice(nodes[:_PROXIES]), **for_s}),
                ("cut", {"source": source, "target": target, **for_s}),
                ("reset link", {"source": source, "target": target}),
                (
                    "client",
                    {"consumer": chance.randrange(_CONSUMERS), "how": "kill", "proxy": 0, **for_s},
                ),
            ]
        )
        actions.append(Action(at_s, kind, args))
        at_s += _FAULT_EVERY_S * chance.uniform(0.5, 1.5)
    return actions


def main() -> int:
    """Play the plan; return 1 if a promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    be_quiet()
    plan = hour_plan(options.seed, seconds=options.seconds)
    outcome = play(plan)
    found = {
        "seed": options.seed,
        "simulated_s": round(outcome.virtual_s, 1),
        "cpu_s": round(outcome.cpu_s, 1),
        "messages": plan.messages,
        "events": len(outcome.events),
        "actions": sum(outcome.done.values()),
        "violations": outcome.violations,
        "errors": outcome.errors,
    }
    if options.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name}: {value}")
    return 1 if outcome.failed else 0


if __name__ == "__main__":
    sys.exit(main())
