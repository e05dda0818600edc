"""Draws attacks, damage and losses of data, of which each world has few.

They are drawn from randomness of their own: the rest of a seed's plan does not depend on them,
unless it has a feature with which a hazard cannot be judged.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from typing import Any

from testkit.explorer.damage import FILES
from testkit.simulation.machine import WALL_START_NS
from testkit.simulation.world import BROKER_PORT

#: Hazards of a world, with their probabilities.
HAZARDS = {
    "damage": 0.12,  # of brokers' files
    "record damage": 0.06,  # of ownership records
    "restores": 0.08,  # of older copies of brokers' data
    "leaps": 0.08,  # of wall clocks, beyond the retention
    "topic floods": 0.06,
    "connection floods": 0.06,
    "elected masters": 0.08,
    "expiring tokens": 0.08,
    "quotas": 0.08,
}
#: Features with which a hazard cannot be judged; the hazard is left out then.
_MOVED_TOPICS = frozenset({"recreation", "more queues", "fewer queues"})
_EXCLUDES: dict[str, frozenset[str]] = {
    "damage": frozenset({"broadcast", "retention", "resets", "small messages"}) | _MOVED_TOPICS,
    "record damage": frozenset({"broadcast", "retention", "resets", "key changes", "settings"})
    | {"small messages"}
    | _MOVED_TOPICS,
    "restores": frozenset({"broadcast", "dead letters", "retention", "resets"})
    | frozenset({"key changes", "settings", "damage", "record damage", "small messages"})
    | _MOVED_TOPICS,
    "leaps": frozenset({"retention", "small messages", "restores", "odd properties"}),
    "topic floods": _MOVED_TOPICS | {"unknown groups", "restores"},
    "connection floods": frozenset(),
    "elected masters": _MOVED_TOPICS
    | {"several brokers", "damage", "record damage", "restores", "leaps", "retention"}
    | {"topic floods"},
    "expiring tokens": frozenset({"unknown groups", "ddmq clients", "handoffs", "broadcast"}),
    "quotas": frozenset({"unknown groups", "ddmq clients", "handoffs", "broadcast"}),
}
_REPLICAS = (1, 2, 3)
#: The first node of a world is its nameserver, at 127.0.0.2.
_VOTERS = tuple(f"{n}@127.0.0.{n + 2}:{BROKER_PORT}" for n in _REPLICAS)
_LEAP_S = 80 * 3600.0  # the default retention is 72 h
#: Proxies accept that many connections from one address in worlds with floods.
_MOST_CONNECTIONS = 40
_MOST_TOPICS = 150
OWN_TOKEN, GUEST_TOKEN = "own", "guest"


def possible(features: Collection[str], always: Collection[str]) -> set[str]:
    """Return *features* without hazards that cannot be judged beside the others; those in *always*
    displace the others instead.
    """
    left = set(features)
    for name in HAZARDS:
        if name in always:
            left -= _EXCLUDES[name] - set(always)
    return {name for name in left if name in always or not left & _EXCLUDES.get(name, frozenset())}


class Hazards:
    """Draws the hazards in *features* for the world of *seed*."""

    def __init__(self, seed: int, features: Collection[str]) -> None:
        self._chance = random.Random(f"hazards {seed}")
        self._features = features

    def _has(self, name: str) -> bool:
        return name in self._features

    # ---- nodes ----------------------------------------------------------------------------------

    def brokers(self, brokers: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """Return *brokers* as these hazards need them."""
        settings: dict[str, Any] = {}
        if self._has("leaps"):
            settings |= {"segment_bytes": 192 * 1024, "max_message_bytes": 96 * 1024}
        if self._has("topic floods"):
            settings |= {"max_topics": _MOST_TOPICS}
        brokers = {name: {**each, **settings} for name, each in brokers.items()}
        if not self._has("elected masters"):
            return brokers
        (shared,) = brokers.values()
        elected: dict[str, Any] = {
            "broker_name": "broker-a",
            "role": "elected",
            "voters": list(_VOTERS),
        }
        # In half of the worlds a send is answered before its master knows that it is cut off.
        elected["slave_timeout_s"] = self._chance.choice([0.5, 5.0])
        return {f"broker-a-{n}": {**shared, **elected, "broker_id": n} for n in _REPLICAS}

    def proxy_settings(self, seconds: float) -> dict[str, Any]:
        """Return settings of proxies."""
        settings: dict[str, Any] = {}
        if self._has("connection floods"):
            settings["limits.max_connections_per_address"] = _MOST_CONNECTIONS
        if self._has("expiring tokens") or self._has("quotas"):
            guest: dict[str, Any] = _token(GUEST_TOKEN)
            if self._has("expiring tokens"):
                at_s = WALL_START_NS / 1e9 + self._chance.uniform(0.2, 0.8) * seconds
                guest["expires"] = datetime.fromtimestamp(at_s, UTC).isoformat()
            settings["tokens"] = [_token(OWN_TOKEN), guest]
        if self._has("quotas"):
            quota = self._chance.choice(
                [{"requests_per_s": 2}, {"bytes_per_s": 2048}, {"connections": 1}]
            )
            settings["quotas"] = {"principals": [{"name": GUEST_TOKEN, **quota}]}
        return settings

    @property
    def token(self) -> str | None:
        """The token of producers, operators and most consumers; None: none is needed."""
        needed = self._has("expiring tokens") or self._has("quotas")
        return OWN_TOKEN if needed else None

    # ---- actions --------------------------------------------------------------------------------

    def actions(self, plan: dict[str, Any]) -> list[tuple[float, str, dict[str, Any]]]:
        """Return times, kinds and arguments of actions."""
        draws: dict[str, Callable[[dict[str, Any]], tuple[str, dict[str, Any]]]] = {
            "damage": self._damage,
            "record damage": self._record_damage,
            "restores": self._restore,
            "leaps": self._leap,
            "topic floods": lambda _: ("topic flood", self._for(5, 30)),
            "connection floods": self._connection_flood,
            "elected masters": self._replica_fault,
        }
        actions = []
        for name, draw in draws.items():
            if self._has(name):
                for _ in range(self._chance.randint(1, 4)):
                    at_s = round(self._chance.uniform(0.05, 0.9) * plan["seconds"], 2)
                    actions.append((at_s, *draw(plan)))
        return actions

    def _for(self, least: float, most: float) -> dict[str, float]:
        return {"for_s": round(self._chance.uniform(least, most), 1)}

    def _broker(self, plan: dict[str, Any]) -> str:
        return self._chance.choice(list(plan["brokers"]))

    def _damage(self, plan: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        chance = self._chance
        return "damage", {
            "node": self._broker(plan),
            "file": chance.choice([*["log"] * 6, "index", *FILES]),
            "at": round(chance.random(), 6),
            "size": chance.choice([1, 1, 1, 4, 40, 600, 5000]),
            "zeros": chance.random() < 0.3,
            "stopped": chance.random() < 0.6,
            **self._for(1, 15),
        }

    def _record_damage(self, plan: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        _, damage = self._damage(plan)
        return "damage", {**damage, "file": "records"}

    def _restore(self, plan: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        after_s = round(self._chance.uniform(0, 60), 1)
        return "restore", {"node": self._broker(plan), "after_s": after_s, **self._for(1, 20)}

    def _leap(self, plan: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        by_s = self._chance.choice([_LEAP_S, _LEAP_S, -_LEAP_S])
        return "clock", {"node": self._broker(plan), "by_s": by_s, **self._for(20, 130)}

    def _connection_flood(self, plan: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        proxy = self._chance.randrange(plan["proxies"])
        return "connection flood", {"node": f"proxy-{proxy}", **self._for(2, 30)}

    def _replica_fault(self, plan: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        kind = self._chance.choice(["kill", "power", "freeze", "apart", "behind", "behind"])
        return "master", {"how": kind, **self._for(1, 25)}


def _token(name: str) -> dict[str, Any]:
    return {"name": name, "sha256": hashlib.sha256(name.encode()).hexdigest()}
