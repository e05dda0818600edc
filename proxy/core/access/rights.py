"""Who may do what: principals, and rules that let them. Pure.

A principal is whoever a token or a client certificate names. Without rules each may do everything,
as a gateway for one team wants it; with some, nothing is allowed but what a rule says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from broker_core.names import INTERNAL_PREFIX, MAX_NAME_CHARS

#: Topics in one act: more than any group has, in fewer bytes than a request has room for.
MAX_TOPICS = 1_000


class Right(StrEnum):
    """A right that access rules grant to principals."""

    PULL = "pull"
    """Pull messages of a group, settle and extend leases, see its offsets."""
    PRODUCE = "produce"
    """Send messages to a topic."""
    BULK = "bulk"
    """Read by offset, and commit, as bulk readers do."""
    ADMIN = "admin"
    """See and change groups on the HTTP port."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Lets *principals* do *may* to *groups* and *topics*; all three are patterns with ``*``.

    Topics of brokers and gateways (``%DLQ%billing``) are let by patterns alone that begin as they
    do: whoever wrote ``*`` meant the topics of applications.
    """

    principals: tuple[str, ...]
    may: frozenset[Right]
    groups: tuple[str, ...] = ("*",)
    topics: tuple[str, ...] = ("*",)


#: No group is called so: only a rule for any will do.
ANY_GROUP = "*"


@dataclass(frozen=True, slots=True)
class Act:
    """What somebody wants to do. *group* is None where none is concerned, as in a send, and
    ``ANY_GROUP`` where all are; no *topics* where none is named: only a rule for any will do then.
    """

    right: Right
    group: str | None
    topics: tuple[str, ...] = ()


def too_large(act: Act) -> str:
    """Why nobody may do *act*, whoever asks, as the end of a sentence; empty: rules decide. A
    request has room for names of megabytes, which patterns and memory should never see.
    """
    names = act.topics if act.group is None else (act.group, *act.topics)
    if len(act.topics) > MAX_TOPICS:
        return f"names {len(act.topics)} topics: at most {MAX_TOPICS} are taken"
    if (longest := max(map(len, names), default=0)) > MAX_NAME_CHARS:
        return (
            f"has a name of {longest} characters: groups and topics have {MAX_NAME_CHARS} at most"
        )
    return ""


def allowed(principal: str, act: Act, rules: Sequence[Rule]) -> bool:
    """Whether *principal* may do *act*: each of its topics has to be let by some rule."""
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
    """``*`` stands for any text; every other character for itself."""
    return re.compile(".*".join(map(re.escape, pattern.split("*"))) + r"\Z", re.DOTALL)
