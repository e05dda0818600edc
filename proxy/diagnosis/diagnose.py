"""Runs all diagnosis rules on the facts about a group. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from proxy.diagnosis.delivery_problems import (
    filtered,
    no_owner,
    no_puller,
    older_settings,
    paused,
    rate_limited,
    targets_down,
)
from proxy.diagnosis.environment_problems import brokers_away, clocks, doubtful_locks, proxies_away
from proxy.diagnosis.facts import Facts
from proxy.diagnosis.findings import Finding, ranked
from proxy.diagnosis.queue_problems import (
    keys_blocked,
    leases_expired,
    memory_full,
    other_troubles,
)

_RULES: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    *(brokers_away, proxies_away, clocks, older_settings, paused, no_owner, no_puller),
    *(rate_limited, targets_down, memory_full, keys_blocked, filtered, doubtful_locks),
    leases_expired,
    other_troubles,
)


def diagnose(facts: Facts) -> list[Finding]:
    """Return the findings about a group, root causes first; empty for a healthy group."""
    return ranked([finding for rule in _RULES for finding in rule(facts)])
