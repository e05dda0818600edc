"""Worlds with stuck keys, which check the progress of the other keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from broker_core.remoting.key_hash import java_hash
from testkit.explorer.plan import Action, ConsumerPlan, FlowPlan, Plan
from testkit.explorer.player import Outcome, play
from testkit.simulation.loop import START_NS

GROUP = "billing"


def group(name: str = GROUP, /, **topics: dict[str, Any]) -> dict[str, Any]:
    """Return a group that consumes *topics*, each ordered by KEY, with those settings."""
    fixed = {"order_key": "KEY", "on_exhausted": "block", "retry_intervals_ms": [100, 500]}
    return {
        "name": name,
        "topics": [{"name": topic, **fixed, **own} for topic, own in topics.items()],
    }


def keys_of_queue(prefix: str, queue: int, *, of: int, count: int) -> list[str]:
    """Return *count* keys that a producer sends to *queue* of *queues*."""
    keys = (f"{prefix}{number}" for number in range(100 * count))
    return [key for key in keys if abs(java_hash(key)) % of == queue][:count]


@dataclass(slots=True)
class StuckWorld:
    """One broker and one proxy, and handlers that never return for some keys."""

    topics: dict[str, int]
    groups: list[dict[str, Any]]
    seconds: float = 60.0
    memory_bytes: int | None = None
    proxies: int = 1
    settings: dict[str, Any] = field(default_factory=dict)  # of the proxies
    consumers: list[ConsumerPlan] = field(default_factory=list)
    flows: list[FlowPlan] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)

    def client(self, topics: list[str] | None = None, /, *, of: str = GROUP, **how: Any) -> None:
        """Start a client that pulls *topics* (None: all of its group)."""
        self.consumers.append(ConsumerPlan(of, topics, 0, **how))

    def send(
        self, topic: str, keys: Sequence[str | None], count: int, *, at_s: float = 1.0, **how: Any
    ) -> None:
        """Send *count* messages of random *keys*, by default one every five milliseconds."""
        how = {"every_s": 0.005, "native": True, **how}
        self.flows.append(FlowPlan(at_s, 0, topic, list(keys), count, **how))

    def stick(self, *keys: str, of: str = GROUP, how: str = "stick") -> None:
        """Let handlers of these keys never return (or behave as *how*) until all is healed."""
        for key in keys:
            args = {"group": of, "key": key, "for_s": self.seconds}
            self.actions.append(Action(0.0, how, args))

    def act(self, at_s: float, kind: str, **args: Any) -> None:
        """Add another action."""
        self.actions.append(Action(at_s, kind, args))

    def play(self, seed: int = 1) -> Played:
        """Play the plan."""
        memory = {} if self.memory_bytes is None else {"limits.memory_bytes": self.memory_bytes}
        plan = Plan(
            seed=seed,
            seconds=self.seconds,
            brokers={"broker-a": {}},
            topics=self.topics,
            groups=self.groups,
            proxies=self.proxies,
            proxy_settings=self.settings | memory,
            producers=1,
            consumers=self.consumers,
            flows=self.flows,
            actions=self.actions,
        )
        return Played(play(plan))


@dataclass(slots=True)
class Played:
    """The result of such a world."""

    outcome: Outcome

    def kept(self) -> None:
        """Raise AssertionError if the history checker found a broken promise."""
        assert self.outcome.violations == {}
        assert self.outcome.errors == []

    def handled(
        self, topic: str, prefix: str = "", *, before_s: float = 1e9, group: str = GROUP
    ) -> int:
        """Return the messages of *topic* whose keys begin with *prefix* that handlers of *group*
        started before that time.
        """
        return len(
            {
                event["msg"]
                for event in self.outcome.events
                if event["e"] == "handle_start"
                and (event["group"], event["topic"]) == (group, topic)
                and (event["order"] or "").startswith(prefix)
                and (event["t_ns"] - START_NS) / 1e9 < before_s
            }
        )

    def most_memory(self) -> int:
        """Return the most bytes that the proxy held, according to its histories."""
        return max(
            (e.get("memory", 0) for e in self.outcome.events if e["e"] == "window"), default=0
        )
