"""A group's settings for one topic in the form the core uses: compiled, in nanoseconds. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from broker_core.remoting.message import StoredMessage
from proxy.actions.pipeline import Actions
from proxy.core.keys.order_key import MissingKey, OrderKey
from proxy.core.keys.retry_policy import MS, RetryPolicy

#: Property that marks messages of load tests, as DDMQ's producers set it.
PRESSURE_TRAFFIC = "isPressureTraffic"
#: Byte sequence contained in the encoded properties of shadow traffic.
SHADOW_MARK = PRESSURE_TRAFFIC.encode()
#: Names of the rules that filter messages when they are read.
TAGS, SHADOW_TRAFFIC = "tags", "shadow traffic"


@dataclass(frozen=True, slots=True, weakref_slot=True)
class TopicRules:
    """Settings of one topic in one group. ``tags``: the exact tags to deliver, None for all.
    ``has_default_key``: no settings name the order key, so it applies only to queues without a
    recorded one.
    """

    order_key: OrderKey
    missing_key: MissingKey = MissingKey.BY_QUEUE
    tags: frozenset[str] | None = None
    visibility_ns: int = 5000 * MS
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    max_pull_batch: int = 256
    max_jobs: int = 20000
    max_jobs_per_key: int = 64
    order_key_version: int = 0
    has_default_key: bool = False
    drops_shadow_traffic: bool = False
    actions: Actions = field(default_factory=Actions)

    def unwanted(self, message: StoredMessage) -> str | None:
        """Return the rule that filters *message* when it is read, before any action: ``tags`` or
        ``shadow traffic``; None if it is not filtered.
        """
        if self.tags is not None and message.tag not in self.tags:
            return TAGS
        if (
            self.drops_shadow_traffic
            and SHADOW_MARK in message.raw_properties
            and message.properties.get(PRESSURE_TRAFFIC, "").lower() == "true"
        ):
            return SHADOW_TRAFFIC
        return None

    @property
    def filters(self) -> list[str]:
        """Names of the rules that may filter messages, as in ``Effects``."""
        tags = [] if self.tags is None else [TAGS]
        shadow = [SHADOW_TRAFFIC] if self.drops_shadow_traffic else []
        return [*tags, *shadow, *self.actions.filters]

    @property
    def tag_expression(self) -> str:
        """The tags as a broker expression: ``a || b``, or ``*``."""
        return "*" if self.tags is None else " || ".join(sorted(self.tags))


def parse_tags(expression: str) -> frozenset[str] | None:
    """Return the tags of ``a || b``; None (all) for an empty expression or one with ``*``."""
    tags = frozenset(part for text in expression.split("||") if (part := text.strip()))
    return None if not tags or "*" in tags else tags
