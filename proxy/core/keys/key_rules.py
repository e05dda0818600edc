"""The order-key rule of a queue, and its representation in ownership records. Pure.

A rule is the text of an order key plus the policy for messages without one. It applies to a queue
from an offset on, the *switch*. Messages below the switch keep the previous rule, whichever proxy
owns the queue, until all of them have finished. So the key of a message does not depend on the
proxy that computes it, or on the time.

Records contain the rule itself, not only a version. This detects outdated settings: they ask for a
rule that the queue had before. To return to such a rule, raise ``order_key_version``.
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

#: Former rules that the records of a queue keep.
_FORMER = 8
_MAX_NUMBER = 2**63


@dataclass(frozen=True, slots=True)
class KeyRule:
    """One rule: ``text`` is an argument of ``compile_order_key``. If the text gives all messages a
    key, or none of them, the policy has no effect and does not distinguish rules.
    """

    text: str | None
    missing: MissingKey = MissingKey.BY_QUEUE
    order_key: OrderKey = field(init=False, repr=False, compare=False)
    """The compiled text."""

    def __post_init__(self) -> None:
        """Raise ValueError if the text is not an order key."""
        object.__setattr__(self, "order_key", _compiled(self.text))
        if self.order_key.is_fixed:
            object.__setattr__(self, "missing", MissingKey.BY_QUEUE)

    @classmethod
    def of(cls, rules: TopicRules) -> KeyRule:
        """Return the rule that *rules* ask for, usually the same object: thousands of queues are
        compared with it several times a second.
        """
        return _rule(rules.order_key.text, rules.missing_key)

    def chain_of(self, message: StoredMessage) -> bytes | None:
        """Return the chain of *message*; None if it is unordered, or will not be delivered."""
        key = self.order_key.of(message)
        if key is None and self.text is not None and self.missing is MissingKey.BY_QUEUE:
            return QUEUE_CHAIN
        return key

    def __str__(self) -> str:
        text = "none" if self.text is None else self.text
        return text if self.order_key.is_fixed else f"{text} (missing: {self.missing.value})"

    def to_json(self) -> list[str | None]:
        """Return the fields of an ownership record."""
        return [self.text, self.missing.value]

    @classmethod
    def from_json(cls, fields: Any) -> KeyRule:
        """Undo ``to_json``. Raise ValueError or TypeError."""
        text, missing = fields
        if text is not None and not isinstance(text, str):
            raise ValueError(f"{text!r} is not an order key")
        return _rule(text, MissingKey(missing))


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """The order key of a queue, as its ownership records store it.

    ``rule`` applies from the switch ``since`` on. ``before`` applies below it, and is None once all
    messages below have finished. ``version`` counts the changes, from 1. ``setting`` is the
    ``order_key_version`` of the settings that the rule comes from; ``former`` lists earlier rules.
    """

    rule: KeyRule
    version: int = 1
    since: int = 0
    before: KeyRule | None = None
    setting: int = 0
    former: tuple[KeyRule, ...] = ()

    @classmethod
    def first(cls, rules: TopicRules) -> KeyRecord:
        """Return the record of a queue without ownership records."""
        return cls(KeyRule.of(rules), setting=rules.order_key_version)

    def wants_change(self, rules: TopicRules) -> bool:
        """Return True if *rules* ask for another order key and are not outdated."""
        rule = KeyRule.of(rules)
        if rule is self.rule or rule == self.rule or rules.has_default_key:
            return False
        return not self.is_newer_than(rules)

    def is_newer_than(self, rules: TopicRules) -> bool:
        """Return True if *rules* are outdated: they ask for a rule that has been replaced since."""
        rule = KeyRule.of(rules)
        if rule is self.rule or rule == self.rule or rules.order_key_version > self.setting:
            return False
        if rules.has_default_key:
            return False
        return rules.order_key_version < self.setting or rule in self.former

    def changed(self, rules: TopicRules, *, since: int) -> KeyRecord:
        """Return the record in which the rule of *rules* applies from offset *since* on."""
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

    def completed(self) -> KeyRecord:
        """Return the record after all messages below the switch have finished."""
        return replace(self, before=None)

    def reset_to(self, offset: int) -> KeyRecord:
        """Return the record after a reset of the queue to *offset*: the current rule applies to all
        messages read from then on.
        """
        return replace(self, since=min(self.since, offset), before=None)

    def rule_at(self, offset: int) -> KeyRule:
        """Return the rule that applies to the message at *offset*."""
        return self.rule if self.before is None or offset >= self.since else self.before

    def to_json(self) -> dict[str, Any]:
        """Return the fields of an ownership record."""
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
        """Undo ``to_json``. Raise ValueError, TypeError or KeyError."""
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
        raise ValueError(f"{number} is not in the range 0 to 2^63 - 1")
    return number
