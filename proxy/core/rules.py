"""What a group wants of one topic, as the core needs it: compiled, in nanoseconds. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from proxy.core.order_key import MissingKey, OrderKey
from proxy.core.retry_policy import MS, RetryPolicy


@dataclass(frozen=True, slots=True)
class TopicRules:
    """One topic of one group. ``tags``: the exact tags wanted, None for all."""

    order_key: OrderKey
    missing_key: MissingKey = MissingKey.BY_QUEUE
    tags: frozenset[str] | None = None
    visibility_ns: int = 5000 * MS
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    max_pull_batch: int = 256
    max_jobs: int = 20000
    max_jobs_per_key: int = 64

    @property
    def tag_expression(self) -> str:
        """The same tags as brokers take them: ``a || b``, or ``*``."""
        return "*" if self.tags is None else " || ".join(sorted(self.tags))


def parse_tags(expression: str) -> frozenset[str] | None:
    """The tags of ``a || b``; None (all) for an empty expression or one with ``*`` in it."""
    tags = frozenset(part for text in expression.split("||") if (part := text.strip()))
    return None if not tags or "*" in tags else tags
