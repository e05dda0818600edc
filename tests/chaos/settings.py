"""The settings of a run, and changes of its groups while they are served: a plan made from a seed.
Pure.

Every kind of change comes once before any is repeated. All proxies read the same file at their own
times; one that was stopped has older settings for a while, and must not serve with them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from tests.chaos.schedule import Times
from tests.chaos.workload import DESK, SECOND_GROUP, TOPIC

SETTINGS = "settings.yaml"
#: Kinds of changes.
CHANGES = ("limits", "timeouts", "policies", "order key")

#: A group's topic in the settings.
Rules = dict[str, Any]
Groups = dict[str, Rules]


def first_rules(times: Times, policies: Mapping[str, str]) -> Groups:
    """Return the first settings of each group. *policies*: its ``on_exhausted``."""
    return {
        group: {
            "name": TOPIC,
            "order_key": "KEY",
            "order_key_version": 0,
            "visibility_timeout_s": times.lease_s,
            "retry_intervals_ms": [100, 200, 400, 800],
            "max_deliveries": 4,
            "on_exhausted": policy,
            "max_jobs_in_memory": 100,
            "max_jobs_per_key_in_memory": 8,
        }
        for group, policy in policies.items()
    }


def settings_text(times: Times, groups: Groups) -> str:
    """Return the proxies' settings file."""
    return yaml.safe_dump(
        {
            "lock": {
                "renewal_s": times.renewal_s,
                "trust_s": times.trust_s,
                "broker_lock_expiry_s": times.expiry_s,
                "request_timeout_s": times.request_s,
            },
            "ownership": {"leave_after_s": 3 * times.lease_s},  # 15 by default
            "commit_every_s": times.lease_s,
            "groups": [{"name": group, "topics": [rules]} for group, rules in groups.items()],
        },
        sort_keys=False,
    )


def broker_settings_text(times: Times, *, small: bool = False) -> str:
    """Return the embedded broker's. *small*: small log files, so that it often needs disk space."""
    sizes = {"segment_bytes": 8 * 1024 * 1024}
    if small:
        sizes = {"segment_bytes": 320 * 1024, "max_message_bytes": 256 * 1024}
    return yaml.safe_dump({"lock_expiry_s": times.expiry_s, **sizes})


def changes(seed: int, times: Times, groups: Groups) -> Iterator[tuple[str, Groups]]:
    """Yield, endlessly, the kind of a change, and the settings of all groups after it."""
    chooser = random.Random(f"{seed} settings")
    groups = {group: dict(rules) for group, rules in groups.items()}
    while True:
        for kind in chooser.sample(CHANGES, len(CHANGES)):
            for group, rules in groups.items():
                groups[group] = {**rules, **_changed(chooser, kind, group, rules, times)}
            yield kind, groups


def _changed(
    chooser: random.Random, kind: str, group: str, rules: Rules, times: Times
) -> dict[str, Any]:
    match kind:
        case "limits":
            return {
                "max_jobs_in_memory": chooser.choice([60, 100, 200]),
                "max_jobs_per_key_in_memory": chooser.choice([4, 8, 16]),
                "max_rate": chooser.choice([None, 200, 400]),
            }
        case "timeouts":
            return {
                "visibility_timeout_s": times.lease_s * chooser.choice([1, 1.25, 1.5]),
                "retry_intervals_ms": chooser.choice([[100, 200, 400, 800], [50], [300, 600]]),
            }
        case "policies":
            other = {"block": "dead_letter", "dead_letter": "block"}
            policy = rules["on_exhausted"]
            return {
                "max_deliveries": chooser.randint(3, 6),
                "on_exhausted": other.get(policy, policy) if group == SECOND_GROUP else policy,
            }
    version = rules["order_key_version"] + 1  # otherwise a change back would equal older settings
    order_key = DESK if rules["order_key"] == "KEY" else "KEY"
    return {"order_key": order_key, "order_key_version": version}


def unlimited(groups: Groups) -> Groups:
    """Return the settings without limits that would slow the drain."""
    return {group: {**rules, "max_rate": None} for group, rules in groups.items()}
