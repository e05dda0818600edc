"""Draws operations that few worlds have: removals from the settings, drains, revoked leases,
redrives of all keys, and others.

They are drawn from randomness of their own: the rest of a seed's plan does not depend on them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from typing import Any

#: Features of a world, with their probabilities.
OPERATIONS = {
    "topics removed": 0.08,  # from a group's settings, for a while
    "groups removed": 0.06,
    "more settings": 0.15,
    "revoked leases": 0.15,
    "whole redrives": 0.15,  # of all keys of a topic, or with a rate
    "drains": 0.12,
    "group resets": 0.06,
    "fresh retries": 0.15,
    "notes": 0.1,  # on keys
}

Drawn = tuple[str, dict[str, Any]]


class OperationDraws:
    """Draws the operations in *features* for the world of *seed*."""

    def __init__(self, seed: int, features: Collection[str]) -> None:
        self._chance = random.Random(f"operations {seed}")
        self._features = features

    def actions(self, plan: dict[str, Any]) -> list[tuple[float, str, dict[str, Any]]]:
        """Return times, kinds and arguments of actions."""
        draws: dict[str, Callable[[dict[str, Any]], Drawn]] = {
            "topics removed": self._topic_off,
            "groups removed": self._group_off,
            "more settings": self._settings,
            "revoked leases": self._revoke,
            "whole redrives": self._redrive,
            "drains": self._drain,
            "group resets": self._group_reset,
            "fresh retries": lambda plan: (
                "key verb",
                {"verb": "retry", **self._key(plan), "anew": True},
            ),
            "notes": lambda plan: (
                "key verb",
                {"verb": "note", **self._key(plan), "note": "explored"},
            ),
        }
        actions = []
        for name, draw in draws.items():
            if name in self._features:
                for _ in range(self._chance.randint(1, 4)):
                    at_s = round(self._chance.uniform(0.03, 0.9) * plan["seconds"], 2)
                    actions.append((at_s, *draw(plan)))
        return actions

    def _place(self, plan: dict[str, Any]) -> dict[str, Any]:
        group = self._chance.choice(plan["groups"])
        return {"group": group["name"], "topic": self._chance.choice(group["topics"])["name"]}

    def _key(self, plan: dict[str, Any]) -> dict[str, Any]:
        """Draw a key of a topic, mostly its first one, so that operations on keys meet."""
        place = self._place(plan)
        keys = [key for key in dict.fromkeys(plan["keys"][place["topic"]]) if key]
        first = self._chance.random() < 0.6
        return {**place, "key": keys[0] if first else self._chance.choice(keys)}

    def _for(self, *choices: float) -> dict[str, float]:
        return {"for_s": self._chance.choice(choices)}

    def _topic_off(self, plan: dict[str, Any]) -> Drawn:
        return "topic off", {**self._place(plan), **self._for(0.3, 3.0, 12.0, 40.0)}

    def _group_off(self, plan: dict[str, Any]) -> Drawn:
        place = self._place(plan)
        return "group off", {"group": place["group"], **self._for(0.3, 3.0, 12.0, 40.0)}

    def _settings(self, plan: dict[str, Any]) -> Drawn:
        chance, place = self._chance, self._place(plan)
        if chance.random() < 0.5:
            changes: list[dict[str, Any]] = [
                {"hand_out": chance.choice(["oldest", "longest_chain"])},
                {"max_leased_jobs": chance.choice([4, 400])},
                {"max_rate": chance.choice([15, None])},
            ]
            change = chance.choice(changes)
            return "group settings", {"group": place["group"], "change": change}
        changes = [
            {"missing_key": chance.choice(["unordered", "by_queue", "dead_letter"])},
            {"max_jobs_per_key_in_memory": chance.choice([1, 3, 64])},
            {"max_rate": chance.choice([10, 50, None])},
            {"max_pull_batch": chance.choice([1, 256])},
            {"max_deliveries": 1},
        ]
        return "settings", {**place, "change": chance.choice(changes)}

    def _revoke(self, plan: dict[str, Any]) -> Drawn:
        number = self._chance.randrange(9)
        return "revoke", {"group": self._place(plan)["group"], "number": number}

    def _redrive(self, plan: dict[str, Any]) -> Drawn:
        if self._chance.random() < 0.5:
            return "redrive all", self._place(plan)
        rate = self._chance.choice([1, 20])
        return "slow redrive", {**self._key(plan), "rate": rate, **self._for(1.0, 8.0)}

    def _drain(self, plan: dict[str, Any]) -> Drawn:
        proxy = self._chance.randrange(plan["proxies"])
        return "drain", {"proxy": proxy, **self._for(0.1, 5.0, 20.0)}

    def _group_reset(self, plan: dict[str, Any]) -> Drawn:
        to = self._chance.choice([{"begin": True}, {"end": True}])
        return "group reset", {"group": self._place(plan)["group"], "to": to}
