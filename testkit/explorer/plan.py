"""A plan: the nodes of a world and its timed actions. Plain data that converts to JSON and back."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

import orjson


@dataclass(frozen=True, slots=True)
class Action:
    """At *at_s* (seconds after the start of the world), *kind* happens with *args*."""

    at_s: float
    kind: str
    args: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConsumerPlan:
    """A consumer of *group*; *proxy* is its preferred one, *topics* None means all topics."""

    group: str
    topics: list[str] | None
    proxy: int
    concurrency: int = 4
    max_run: int = 1
    ddmq: str | None = None
    """The mode of a DDMQ-style client; None: orderlane's client."""
    token: str | None = None
    """The access token that it shows; None: none."""


@dataclass(frozen=True, slots=True)
class FlowPlan:
    """Messages to *topic* from the producer *producer*, from *at_s* on."""

    at_s: float
    producer: int
    topic: str
    keys: list[str | None]
    count: int
    every_s: float
    body_bytes: int = 60
    properties: dict[str, str] = field(default_factory=dict)
    tags: list[str | None] = field(default_factory=lambda: [None])
    native: bool = False
    """Sent directly to the brokers, like RocketMQ's own producers, not through a proxy."""

    @property
    def message_bytes(self) -> int:
        """Return the bytes of the body and the properties of a message."""
        return self.body_bytes + sum(map(len, (*self.properties, *self.properties.values())))


@dataclass(frozen=True, slots=True)
class Plan:
    """A complete world. *seconds*: duration of the actions, before all faults are healed."""

    seed: int
    seconds: float
    brokers: dict[str, dict[str, Any]]
    topics: dict[str, int]
    groups: list[dict[str, Any]]
    proxies: int
    proxy_settings: dict[str, Any]
    producers: int
    consumers: list[ConsumerPlan]
    flows: list[FlowPlan]
    actions: list[Action]
    token: str | None = None
    """The access token of producers and operators; None: proxies need none."""

    def to_json(self) -> bytes:
        """Return JSON for a file."""
        return orjson.dumps(asdict(self), option=orjson.OPT_INDENT_2)

    @classmethod
    def from_json(cls, content: bytes) -> Plan:
        """Return the plan in a file. Raises KeyError or TypeError if it is invalid."""
        data = orjson.loads(content)
        return cls(
            **{
                **data,
                "consumers": [ConsumerPlan(**each) for each in data["consumers"]],
                "flows": [FlowPlan(**each) for each in data["flows"]],
                "actions": [Action(**each) for each in data["actions"]],
            }
        )

    def changed(self, **changes: Any) -> Plan:
        """Return a copy with other fields."""
        return replace(self, **changes)

    @property
    def messages(self) -> int:
        """Return the number of messages sent."""
        return sum(flow.count for flow in self.flows)
