"""By which rule a queue's messages get their order keys, and what its records say of that. Pure.

A rule is the text of an order key and the policy for messages without one. It belongs to a queue
from an offset on: the *switch*. What lies below keeps the rule before, whoever owns the queue,
until all of it has finished: so the key of a message never depends on who looks, nor when.

The records know the rule, not only a number. So it can be told whose settings are older: those that
ask for a rule which the queue had before. Whoever wants to go back to such a rule has to say so, by
a higher ``order_key_version``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from broker_core.remoting.message import StoredMessage
from proxy.core.keys.kinds.registry import compile_order_key
from proxy.core.keys.order_key import QUEUE_CHAIN, MissingKey, OrderKey
from proxy.core.keys.topic_rules import TopicRules

#: Rules that a queue had before and that its records remember.
_FORMER = 8
_MAX_NUMBER = 2**63


@dataclass(frozen=True, slots=True)
class KeyRule:
    """``text``: as ``compile_order_key`` takes it. Where all messages have a key, or none has, the
    policy says nothing, and makes no other rule.
    """

    text: str | None
    missing: MissingKey = MissingKey.BY_QUEUE
    order_key: OrderKey = field(init=False, repr=False, compare=False)
    """The text, compiled."""

    def __post_init__(self) -> None:
        """Raises ValueError if the text is no order key."""
        object.__setattr__(self, "order_key", _compiled(self.text))
        if self.order_key.is_fixed:
            object.__setattr__(self, "missing", MissingKey.BY_QUEUE)

    @classmethod
    def of(cls, rules: TopicRules) -> KeyRule:
        """The one that *rules* want, mostly the same object: thousands of queues are compared with
        it several times a second.
        """
        return _rule(rules.order_key.text, rules.missing_key)

    def chain_of(self, message: StoredMessage) -> bytes | None:
        """The chain that *message* belongs to; None if it is unordered, or is not handed out."""
        key = self.order_key.of(message)
        if key is None and self.text is not None and self.missing is MissingKey.BY_QUEUE:
            return QUEUE_CHAIN
        return key

    def __str__(self) -> str:
        text = "none" if self.text is None else self.text
        return text if self.order_key.is_fixed else f"{text} (missing: {self.missing.value})"

    def to_json(self) -> list[str | None]:
        """As it stands in a record."""
        return [self.text, self.missing.value]

    @classmethod
    def from_json(cls, fields: Any) -> KeyRule:
        """Undo ``to_json``. Raises ValueError or TypeError."""
        text, missing = fields
        if text is not None and not isinstance(text, str):
            raise ValueError(f"{text!r} is no order key")
        return _rule(text, MissingKey(missing))


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """What the ownership records of a queue say of its order key.

    ``rule`` holds from the switch ``since`` on. ``before`` holds below, and is None once nothing
    below is unfinished. ``version`` counts the changes, from 1. ``setting`` is the
    ``order_key_version`` of the settings that the rule came from; ``former`` are rules before it.
    """

    rule: KeyRule
    version: int = 1
    since: int = 0
    before: KeyRule | None = None
    setting: int = 0
    former: tuple[KeyRule, ...] = ()

    @classmethod
    def first(cls, rules: TopicRules) -> KeyRecord:
        """Of a queue without records."""
        return cls(KeyRule.of(rules), setting=rules.order_key_version)

    def wants_change(self, rules: TopicRules) -> bool:
        """True if *rules* want another order key, and are newer."""
        rule = KeyRule.of(rules)
        return rule is not self.rule and rule != self.rule and not self.is_newer_than(rules)

    def is_newer_than(self, rules: TopicRules) -> bool:
        """True if *rules* are older: they want what was changed since."""
        rule = KeyRule.of(rules)
        if rule is self.rule or rule == self.rule or rules.order_key_version > self.setting:
            return False
        return rules.order_key_version < self.setting or rule in self.former

    def changed(self, rules: TopicRules, *, since: int) -> KeyRecord:
        """What *rules* want holds from offset *since* on."""
        rule = KeyRule.of(rules)
        former = [each for each in self.former if each not in (rule, self.rule)]
        return KeyRecord(
            rule,
            self.version + 1,
            since,
            before=self.rule,
            setting=rules.order_key_version,
            former=(*former, self.rule)[-_FORMER:],
        )

    def through(self) -> KeyRecord:
        """Nothing below the switch is unfinished."""
        return replace(self, before=None)

    def begun_anew(self, offset: int) -> KeyRecord:
        """The queue was reset to *offset*: all that is read from now on goes by the last rule."""
        return replace(self, since=min(self.since, offset), before=None)

    def rule_at(self, offset: int) -> KeyRule:
        """The rule of the message there."""
        return self.rule if self.before is None or offset >= self.since else self.before

    def to_json(self) -> dict[str, Any]:
        """As it stands in a record."""
        return {
            "version": self.version,
            "rule": self.rule.to_json(),
            "since": self.since,
            "before": None if self.before is None else self.before.to_json(),
            "setting": self.setting,
            "former": [each.to_json() for each in self.former],
        }

    @classmethod
    def from_json(cls, fields: Any) -> KeyRecord:
        """Undo ``to_json``. Raises ValueError, TypeError or KeyError."""
        before: Sequence[Any] | None = fields["before"]
        return cls(
            KeyRule.from_json(fields["rule"]),
            _number(fields["version"]),
            _number(fields["since"]),
            None if before is None else KeyRule.from_json(before),
            _number(fields["setting"]),
            tuple(KeyRule.from_json(each) for each in fields["former"]),
        )


@lru_cache(maxsize=1024)
def _compiled(text: str | None) -> OrderKey:
    return compile_order_key(text)


@lru_cache(maxsize=1024)
def _rule(text: str | None, missing: MissingKey) -> KeyRule:
    return KeyRule(text, missing)


def _number(value: Any) -> int:
    number = int(value)
    if not 0 <= number < _MAX_NUMBER:
        raise ValueError(f"{number} is none of 0 to 2^63 - 1")
    return number
