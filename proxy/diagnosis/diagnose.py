"""Runs all diagnosis rules on the facts about a group. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from proxy.diagnosis.delivery_problems import (
    no_owner,
    no_puller,
    older_settings,
    paused,
    rate_limited,
    refused,
    targets_down,
)
from proxy.diagnosis.environment_problems import (
    brokers_away,
    clocks,
    doubtful_locks,
    not_readable,
    proxies_away,
    reads_fail,
)
from proxy.diagnosis.facts import Facts
from proxy.diagnosis.findings import Finding, number, ranked
from proxy.diagnosis.key_problems import clients_hanging, hot_keys, keys_failing, parked
from proxy.diagnosis.message_problems import (
    dead_letters,
    filtered,
    slow_handlers,
    without_order_key,
)
from proxy.diagnosis.queue_problems import key_changes, leases_expired, memory_full, other_troubles

_RULES: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    *(brokers_away, proxies_away, not_readable, reads_fail, clocks, older_settings, paused),
    *(no_owner, refused, no_puller, rate_limited, targets_down, memory_full, keys_failing),
    *(clients_hanging, leases_expired, without_order_key, filtered, doubtful_locks, key_changes),
    *(other_troubles, hot_keys, slow_handlers, parked, dead_letters),
)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The verdict on a group: findings, root causes first, none if it is healthy."""

    group: str
    findings: Sequence[Finding]
    state: str
    """A sentence about a healthy group."""

    @property
    def sentence(self) -> str:
        """The first sentence: the most basic problem, or the state of a healthy group."""
        return self.findings[0].what if self.findings else self.state


def diagnose(facts: Facts) -> list[Finding]:
    """Return the findings about a group, root causes first; empty for a healthy group.

    Of equal keys or queues the first one is named, so the order in which proxies and brokers
    answered must not matter.
    """
    facts = replace(
        facts,
        proxies=tuple(sorted(facts.proxies, key=lambda each: each.http)),
        queues=tuple(sorted(facts.queues, key=lambda each: each.place)),
    )
    return ranked([finding for rule in _RULES for finding in rule(facts)])


def diagnosis(facts: Facts) -> Diagnosis:
    """Return the findings about a group, and its state if there are none."""
    return Diagnosis(facts.group, diagnose(facts), _state(facts))


def _state(facts: Facts) -> str:
    rest = "" if facts.dead_letters_known else "; its dead letters cannot be counted now"
    return f"group {facts.group} is {_progress(facts)}{rest}"


def _progress(facts: Facts) -> str:
    if facts.waiting:
        return f"healthy: {number(facts.waiting, 'message')} to handle, none stuck"
    if facts.queues and all(each.end == (each.first or 0) for each in facts.queues):
        return "idle: its topics have no messages"
    return "idle: all its messages are finished"


def healthy(diagnoses: Sequence[Diagnosis]) -> str:
    """Return a line about the health of all groups."""
    well = sum(not each.findings for each in diagnoses)
    return f"healthy groups: {well:,} of {len(diagnoses):,}"
