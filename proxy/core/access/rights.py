"""Authorization: principals, and the rules that grant them rights. Pure.

A principal is the name in a token or a client certificate. Without rules every principal may do
everything, which suits a gateway for one team. With rules, only the rights that they grant exist.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from broker_core.names import INTERNAL_PREFIX, MAX_NAME_CHARS

#: Most topics in one request: more than any group has, and still small in bytes.
MAX_TOPICS = 1_000


class Right(StrEnum):
    """A right that access rules grant to principals."""

    PULL = "pull"
    """Pull messages of a group, settle and extend leases, read its offsets."""
    PRODUCE = "produce"
    """Send messages to a topic."""
    BULK = "bulk"
    """Read by offset and commit, as bulk readers do."""
    ADMIN = "admin"
    """View and change groups on the HTTP port."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Grants *principals* the rights *may* on *groups* and *topics*; all three are patterns with
    ``*``.

    Topics of brokers and gateways (``%DLQ%billing``) match only patterns that begin in the same
    way: ``*`` means the topics of applications.
    """

    principals: tuple[str, ...]
    may: frozenset[Right]
    groups: tuple[str, ...] = ("*",)
    topics: tuple[str, ...] = ("*",)


#: Not a group's name: only a rule for all groups matches it.
ANY_GROUP = "*"


@dataclass(frozen=True, slots=True)
class Access:
    """A right that a request needs. *group* is None if no group is concerned, as in a send, and
    ``ANY_GROUP`` for all groups. Without *topics*, only a rule for all topics matches.
    """

    right: Right
    group: str | None
    topics: tuple[str, ...] = ()


def too_large(act: Access) -> str:
    """Return why *act* is refused regardless of rules, as the end of a sentence; empty if rules
    decide. Requests may contain megabytes of names, which must reach neither patterns nor memory.
    """
    names = act.topics if act.group is None else (act.group, *act.topics)
    if len(act.topics) > MAX_TOPICS:
        return f"names {len(act.topics)} topics: at most {MAX_TOPICS} are allowed"
    if (longest := max(map(len, names), default=0)) > MAX_NAME_CHARS:
        return f"has a name of {longest} characters: at most {MAX_NAME_CHARS} are allowed"
    return ""


def allowed(principal: str, act: Access, rules: Sequence[Rule]) -> bool:
    """Return True if *principal* may do *act*: some rule must grant each of its topics."""
    if not rules:
        return True
    letting = [
        rule
        for rule in rules
        if act.right in rule.may
        and _matches(principal, rule.principals)
        and (act.group is None or _matches(act.group, rule.groups))
    ]
    topics: Iterable[str | None] = act.topics or (None,)
    return all(any(_lets(rule, topic) for rule in letting) for topic in topics)


def _lets(rule: Rule, topic: str | None) -> bool:
    if topic is None:
        return "*" in rule.topics
    if topic.startswith(INTERNAL_PREFIX):
        return _matches(topic, [each for each in rule.topics if each.startswith(INTERNAL_PREFIX)])
    return _matches(topic, rule.topics)


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(_compiled(pattern).match(name) is not None for pattern in patterns)


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern: ``*`` matches any text, every other character only itself."""
    return re.compile(".*".join(map(re.escape, pattern.split("*"))) + r"\Z", re.DOTALL)
