"""Draws plans. Each world has only some of the features, so that rare ones meet each other often.

``draw`` depends only on its arguments: the same seed gives the same plan.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

from testkit.explorer.hazards import GUEST_TOKEN, HAZARDS, Hazards, possible
from testkit.explorer.operation_draws import OPERATIONS, OperationDraws
from testkit.explorer.plan import Action, ConsumerPlan, FlowPlan, Plan

#: Features of a world, with their probabilities.
FEATURES = {
    "several topics": 0.7,
    "several groups": 0.6,
    "several brokers": 0.25,
    "several proxies": 0.8,
    "picky clients": 0.5,  # pull only some topics of their group
    "fickle clients": 0.15,  # switch to other topics, at another proxy
    "unknown groups": 0.1,  # created by their first pull
    "runs": 0.4,
    "ddmq clients": 0.2,
    "small windows": 0.45,
    "little memory": 0.3,
    "large bodies": 0.35,
    "slow handlers": 0.3,
    "hot keys": 0.4,  # most messages have the same key
    "long names": 0.1,
    "odd properties": 0.08,
    "stuck keys": 0.5,
    "failing keys": 0.5,
    "odd keys": 0.25,
    "long properties": 0.1,
    "keyless": 0.2,
    "native producers": 0.3,  # send directly to brokers
    "tags": 0.2,
    "filters": 0.15,
    "rates": 0.15,
    "group rates": 0.1,  # for all topics of a group together
    "longest chains": 0.3,  # groups that deliver the longest chain first
    "order keys": 0.3,  # QID, JSON paths, none
    "key changes": 0.15,
    "settings": 0.3,
    "key verbs": 0.5,
    "pauses": 0.35,
    "resets": 0.15,
    "handoffs": 0.25,
    "recreation": 0.15,
    "more queues": 0.15,
    "fewer queues": 0.1,
    "broadcast": 0.1,
    "dead letters": 0.15,  # are redriven
    "retention": 0.15,
    "small messages": 0.2,  # the broker accepts at most 64 KiB
    "small files": 0.3,  # of the broker's log
    "kills": 0.5,
    "power losses": 0.25,
    "stops": 0.35,  # graceful ones
    "freezes": 0.35,
    "cuts": 0.35,
    "slow links": 0.2,
    "resets of links": 0.35,
    "clocks": 0.15,
    "slow disks": 0.15,
    "full disks": 0.1,
    "churn": 0.4,  # clients come and go
    "latecomers": 0.3,  # flows that start later
    "pulls": 0.2,  # some brokers read each queue by itself
    "small sessions": 0.15,  # they read few queues together
    "batch waits": 0.3,  # answers wait for further messages, at rates that worlds have
    **OPERATIONS,
    **HAZARDS,
}
#: Liveness is judged in times without faults, so some worlds have none of these.
FAULTS = frozenset(
    (
        *("kills", "power losses", "stops", "freezes", "cuts", "slow links", "resets of links"),
        *("clocks", "slow disks", "full disks", "churn", "recreation", "fewer queues"),
        *(
            "fickle clients",
            "damage",
            "record damage",
            "restores",
            "leaps",
            "topic floods",
            "elected masters",
        ),
    )
)
_CALM = 0.35
#: Probability of choosing the first key of a topic, or the first odd one, wherever a key is drawn.
_MARKED = 0.6
_ODD_KEYS = ["k\x01x", "k ", " k", "ключ", "k" * 300, "a b", "0", "k\u2028", "%", "#"]
_DELAYS = {"TIMER_DELAY_MS", "DELAY"}
_ODD_PROPERTIES = [*sorted(_DELAYS), "UNIQ_KEYS", "WAIT", "ORDERLANE_OFFSET", "ORDERLANE_REDRIVES"]
_VERBS = ("pause", "resume", "park", "redrive", "skip", "retry")
#: Verbs that follow each other on one key: one of each row.
_FOLLOWING = (
    ("pause", "park"),
    ("pause", "park", "retry", "skip"),
    ("resume", "redrive", "skip", "park"),
)


@dataclass
class _Drawing:
    """The state while the plan of *seed* is drawn."""

    seed: int
    always: Collection[str] = ()
    never: Collection[str] = ()
    chance: random.Random = field(init=False)
    features: set[str] = field(init=False)
    hazards: Hazards = field(init=False)
    operations: OperationDraws = field(init=False)

    def __post_init__(self) -> None:
        self.chance = random.Random(f"plan {self.seed}")
        # Drawn independently, so that a new feature does not change the others of a seed.
        drawn = {
            name
            for name, often in FEATURES.items()
            if random.Random(f"{self.seed} {name}").random() < often
        }
        if self.chance.random() < _CALM:
            drawn -= FAULTS
        drawn = (drawn | set(self.always)) - set(self.never)
        self.features = possible(drawn, self.always)
        self.hazards = Hazards(self.seed, self.features)
        self.operations = OperationDraws(self.seed, self.features)

    def has(self, feature: str) -> bool:
        return feature in self.features

    # ---- nodes ----------------------------------------------------------------------------------

    def brokers(self) -> dict[str, dict[str, Any]]:
        names = ["broker-a", "broker-b"] if self.has("several brokers") else ["broker-a"]
        settings: dict[str, Any] = {}
        if self.has("retention") or self.has("small files"):
            settings |= {"segment_bytes": 128 * 1024 + 64 * 1024, "max_message_bytes": 96 * 1024}
        if self.has("retention"):
            settings["retention_bytes"] = self.chance.choice([400_000, 1_000_000])
        if self.has("small messages"):
            settings |= {"max_message_bytes": 65_536}
        brokers = {name: dict(settings) for name in names}
        if self.has("pulls"):
            brokers["broker-a"]["max_session_queues"] = 0
        elif self.has("small sessions"):
            brokers["broker-a"]["max_session_queues"] = 2
        if self.has("batch waits"):
            for each in brokers.values():
                each["batch_wait_ms"] = 100
        return self.hazards.brokers(brokers)

    def topics(self) -> dict[str, int]:
        names = ["orders", "payments", "mail"]
        count = self.chance.randint(2, 3) if self.has("several topics") else 1
        return {name: self.chance.choice([1, 2, 4, 6]) for name in names[:count]}

    def groups(self, topics: dict[str, int]) -> list[dict[str, Any]]:
        names = ["billing", "audit", "search"]
        if self.has("long names"):
            names[0] = "b" * self.chance.choice([100, 113, 122])
        count = self.chance.randint(2, 3) if self.has("several groups") else 1
        return [self._group(name, list(topics)) for name in names[:count]]

    def _group(self, name: str, topics: list[str]) -> dict[str, Any]:
        chance = self.chance
        chosen = topics if chance.random() < 0.7 else chance.sample(topics, 1)
        group: dict[str, Any] = {"name": name, "topics": [self._topic(each) for each in chosen]}
        if self.has("broadcast") and chance.random() < 0.6 and len(name) < 20:
            group["mode"] = "broadcast"
            also = random.Random(f"{self.seed} {name} broadcast")
            for topic in group["topics"]:
                topic["on_exhausted"] = also.choice(["dead_letter", "dead_letter", "park", "block"])
        if chance.random() < 0.15:
            group["max_leased_jobs"] = chance.choice([8, 32])
        if self.has("group rates"):
            group["max_rate"] = random.Random(f"{self.seed} {name} rate").choice([15, 40])
        if self.has("longest chains"):
            group["hand_out"] = "longest_chain"
        return group

    def _topic(self, name: str) -> dict[str, Any]:
        chance = self.chance
        topic: dict[str, Any] = {
            "name": name,
            "order_key": "KEY",
            "on_exhausted": chance.choice(["park", "park", "dead_letter", "block"]),
            "max_deliveries": chance.choice([2, 3, 5]),
            "retry_intervals_ms": chance.choice([[100], [100, 300], [50, 400, 1000]]),
            "visibility_timeout_s": chance.choice([5.0, 5.0, 3.0, 8.0]),
        }
        if self.has("order keys"):
            topic["order_key"] = chance.choice(["KEY", "QID", "$.id", None])
        if self.has("small windows"):
            topic["max_jobs_in_memory"] = chance.choice([20, 50, 200])
            topic["max_jobs_per_key_in_memory"] = chance.choice([2, 4, 16])
        if self.has("tags") and chance.random() < 0.5:
            topic["tags"] = chance.choice(["a", "a || b"])
        if self.has("filters") and chance.random() < 0.5:
            topic["actions"] = [{"filter": {"where": "body.n != `3`"}}]
        if self.has("rates") and chance.random() < 0.6:
            topic["max_rate"] = chance.choice([20, 50])
        if self.has("keyless"):
            topic["missing_key"] = chance.choice(["by_queue", "unordered"])
            if random.Random(f"{self.seed} {name} missing").random() < 0.3:
                topic["missing_key"] = "dead_letter"
        return topic

    def proxy_settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = {}
        if self.has("unknown groups"):
            settings["auto_create_groups"] = True
        if self.has("little memory"):
            settings["limits.memory_bytes"] = self.chance.choice([100_000, 300_000])
        if self.has("batch waits"):
            settings["limits.batch_wait_ms"] = 100
        return settings

    def consumers(
        self, groups: list[dict[str, Any]], topics: dict[str, int], proxies: int
    ) -> list[ConsumerPlan]:
        chance, consumers = self.chance, []
        for group in groups:
            own = [each["name"] for each in group["topics"]]
            # Each client of a broadcast group is a group of its own, and every topic of it has to
            # be pulled.
            splits = len(own) > 1 and group.get("mode") != "broadcast"
            if self.has("picky clients") and splits:
                wanted: list[list[str] | None] = [[each] for each in own]
                wanted += [None] if chance.random() < 0.3 else []
            else:
                wanted = [None] * chance.randint(1, 3)
            for each in wanted:
                mode = None
                told_apart = group.get("mode") != "broadcast"
                if (
                    self.has("ddmq clients")
                    and each is None
                    and told_apart
                    and chance.random() < 0.5
                ):
                    mode = chance.choice(["go", "java", "cpp"])
                consumers.append(
                    ConsumerPlan(
                        group["name"],
                        each,
                        chance.randrange(proxies),
                        concurrency=chance.choice([1, 4, 8]),
                        max_run=chance.choice([1, 4]) if self.has("runs") else 1,
                        ddmq=mode,
                    )
                )
        if self.has("unknown groups"):
            consumers += [
                ConsumerPlan("unknown", [topic], chance.randrange(proxies)) for topic in topics
            ]
        if (own := self.hazards.token) is not None:
            # Each guest is one more client of a group.
            guests = [replace(each, token=GUEST_TOKEN) for each in consumers[:2]]
            consumers = [replace(each, token=own) for each in consumers] + guests
        return consumers

    def keys(self, topic: str) -> list[str | None]:
        count = self.chance.choice([2, 6, 15])
        keys: list[str | None] = [f"{topic[0]}{number}" for number in range(count)]
        if self.has("odd keys"):
            keys += self.chance.sample(_ODD_KEYS, 3)
        if self.has("hot keys"):
            keys += [keys[0]] * (4 * len(keys))
        if self.has("keyless"):
            keys.append(None)
        return keys

    def flows(
        self,
        topics: dict[str, int],
        keys: dict[str, list[str | None]],
        producers: int,
        seconds: float,
    ) -> list[FlowPlan]:
        chance, flows = self.chance, []
        for number, topic in enumerate(topics):
            for part in range(2 if self.has("latecomers") else 1):
                at_s = 0.0 if part == 0 else round(chance.uniform(0.2, 0.8) * seconds, 1)
                large = self.has("large bodies") and chance.random() < 0.7
                count = chance.choice([60, 150, 300]) // (3 if large else 1)
                properties = {"colour": "red"}
                if self.has("long properties") and chance.random() < 0.5:
                    properties["long"] = "x" * chance.choice([3_000, 20_000, 32_000])
                if self.has("odd properties"):
                    odd = chance.choice(_ODD_PROPERTIES)
                    properties[odd] = chance.choice(["3", "2000", "false"])
                flows.append(
                    FlowPlan(
                        at_s,
                        number % producers,
                        topic,
                        keys[topic],
                        count,
                        chance.choice([0.005, 0.1, 0.4]),
                        body_bytes=chance.choice([9_000, 40_000]) if large else 60,
                        properties=properties,
                        tags=["a", "b", "c"] if self.has("tags") else [None],
                        native=(
                            self.has("native producers")
                            and not properties.keys() & _DELAYS  # these would keep their delay
                            and chance.random() < 0.5
                        ),
                    )
                )
        return flows

    # ---- actions --------------------------------------------------------------------------------

    def actions(self, plan: dict[str, Any]) -> list[Action]:
        chance, seconds = self.chance, plan["seconds"]
        kinds = [(name, draw) for name, draw in self._draws().items() if self.has(name)]
        actions = []
        for name, draw in kinds:
            if name == "slow handlers":
                work_s = chance.choice([0.3, 1.0, 3.0])
                if _has_narrow_client(plan):
                    work_s = min(work_s, 1.0)
                actions.append(Action(0.0, "work", {"seconds": work_s}))
                continue
            for _ in range(chance.randint(1, 4)):
                at_s = round(chance.uniform(0.02, 0.95) * seconds, 2)
                if (action := draw(plan)) is not None:
                    actions.append(Action(at_s, *action))
        return sorted(actions, key=lambda action: action.at_s)

    def _draws(self) -> dict[str, Any]:
        return {**self._acts(), **self._faults()}

    def _acts(self) -> dict[str, Any]:
        """Draw actions of handlers and operators, by feature."""
        return {
            "slow handlers": None,
            "stuck keys": lambda plan: self._habit(plan, "stick"),
            "failing keys": lambda plan: self._habit(plan, "fail"),
            "key changes": self._key_change,
            "settings": self._settings,
            "key verbs": self._key_verb,
            "pauses": self._pause,
            "resets": self._reset,
            "handoffs": lambda plan: ("handoff", {**self._queue(plan), "proxy": self._proxy(plan)}),
            "recreation": self._recreate,
            "more queues": self._more_queues,
            "fewer queues": self._fewer_queues,
            "dead letters": lambda plan: ("dead letters", {"group": self._place(plan)["group"]}),
            "churn": self._churn,
            "fickle clients": self._fickle,
        }

    def _faults(self) -> dict[str, Any]:
        """Draw faults of machines and the network, by feature."""
        return {
            "kills": lambda plan: ("kill", {"node": self._node(plan), **self._for(0.5, 25)}),
            "power losses": self._power_loss,
            "stops": lambda plan: ("stop", {"node": self._node(plan), **self._for(0.5, 30)}),
            "freezes": lambda plan: ("freeze", {"node": self._node(plan), **self._for(0.5, 22)}),
            "cuts": lambda plan: ("cut", {**self._link(plan), **self._for(0.5, 25)}),
            "slow links": self._slow_link,
            "resets of links": lambda plan: ("reset link", self._link(plan)),
            "clocks": self._clock,
            "slow disks": self._slow_disk,
            "full disks": lambda plan: ("full disk", {**self._broker(plan), **self._for(2, 25)}),
        }

    def _power_loss(self, plan: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        node = self.chance.choice([*plan["brokers"], self._node(plan)])
        at = self.chance.choice(["now", "write", "new file"])
        return "power", {"node": node, "at": at, **self._for(1, 25)}

    def _slow_link(self, plan: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        by_s = self.chance.choice([0.05, 0.4, 2.0])
        return "delay", {**self._link(plan), "by_s": by_s, **self._for(1, 30)}

    def _clock(self, plan: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        by_s = self.chance.choice([-7200, -45, -3, 3, 45, 7200])
        return "clock", {"node": self._node(plan), "by_s": by_s, **self._for(1, 40)}

    def _slow_disk(self, plan: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        by_s = self.chance.choice([0.05, 0.5, 3.0])
        return "slow disk", {**self._broker(plan), "by_s": by_s, **self._for(3, 40)}

    def _broker(self, plan: dict[str, Any]) -> dict[str, Any]:
        return {"node": self.chance.choice(list(plan["brokers"]))}

    def _for(self, least: float, most: float) -> dict[str, float]:
        return {"for_s": round(self.chance.uniform(least, most), 1)}

    def _node(self, plan: dict[str, Any]) -> str:
        proxies = [f"proxy-{number}" for number in range(plan["proxies"])]
        others = [*plan["brokers"], "nameserver"]
        return self.chance.choice([*proxies, *proxies, *others])

    def _proxy(self, plan: dict[str, Any]) -> int:
        return self.chance.randrange(plan["proxies"])

    def _link(self, plan: dict[str, Any]) -> dict[str, str]:
        proxy = f"proxy-{self._proxy(plan)}"
        clients = [f"consumer-{number}" for number in range(len(plan["consumers"]))]
        clients += [f"producer-{number}" for number in range(plan["producers"])]
        other = self.chance.choice([*plan["brokers"], *plan["brokers"], "nameserver", *clients])
        ends = [proxy, other]
        self.chance.shuffle(ends)
        return {"source": ends[0], "target": ends[1]}

    def _place(self, plan: dict[str, Any]) -> dict[str, Any]:
        group = self.chance.choice(plan["groups"])
        return {"group": group["name"], "topic": self.chance.choice(group["topics"])["name"]}

    def _queue(self, plan: dict[str, Any]) -> dict[str, Any]:
        place = self._place(plan)
        queue = self.chance.randrange(plan["topics"][place["topic"]])
        name = self.chance.choice(list(plan["brokers"]))
        broker = plan["brokers"][name].get("broker_name", name)
        return {**place, "queue": f"{broker}_{queue}"}

    def _key(self, plan: dict[str, Any]) -> dict[str, Any]:
        """Return a key of a topic, mostly the same one, so that operations on keys meet."""
        place = self._place(plan)
        keys = [key for key in dict.fromkeys(plan["keys"][place["topic"]]) if key]
        odd = [key for key in keys if key in _ODD_KEYS]
        if self.chance.random() < _MARKED:
            marked = (odd or keys)[0]
        else:
            marked = self.chance.choice(odd if odd and self.chance.random() < 0.5 else keys)
        return {**place, "key": marked}

    def _habit(self, plan: dict[str, Any], kind: str) -> tuple[str, dict[str, Any]]:
        place = self._key(plan)
        most = plan["seconds"] if kind == "stick" else 60
        return kind, {"group": place["group"], "key": place["key"], **self._for(2, most)}

    def _key_verb(self, plan: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        if self.chance.random() < 0.4:
            verbs = [self.chance.choice(row) for row in _FOLLOWING]
            return "key verbs", {"verbs": verbs, **self._key(plan), **self._for(0.1, 8)}
        return "key verb", {"verb": self.chance.choice(_VERBS), **self._key(plan)}

    def _pause(self, plan: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        if self.chance.random() < 0.4:
            return "pause group", {"group": self._place(plan)["group"], **self._for(2, 60)}
        return "pause key", {**self._key(plan), **self._for(2, 90)}

    def _reset(self, plan: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        to = self.chance.choice([{"offset": 0}, {"offset": 5}, {"end": True}])
        return "reset", {**self._queue(plan), "to": to}

    def _recreate(self, plan: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        topic = self.chance.choice(list(plan["topics"]))
        queues = self.chance.choice([plan["topics"][topic], 1, 4])
        return "recreate", {"topic": topic, "queues": queues, **self._for(0.5, 20)}

    def _more_queues(self, plan: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        topic = self.chance.choice(list(plan["topics"]))
        more = plan["topics"][topic] + self.chance.choice([1, 3])
        return "queues", {"topic": topic, "read": more, "write": more}

    def _fewer_queues(self, plan: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        topic = self.chance.choice(list(plan["topics"]))
        write = self.chance.randint(1, plan["topics"][topic])
        read = self.chance.choice([write, plan["topics"][topic]])
        all_of = plan["topics"][topic]
        sizes = {"read": read, "write": write, "all": all_of}
        return "fewer queues", {"topic": topic, **sizes, **self._for(5, 60)}

    def _key_change(self, plan: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        to = self.chance.choice(["KEY", "$.id", "$.n", "QID"])
        return "settings", {**self._place(plan), "change": {"order_key": to}}

    def _settings(self, plan: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        change = self.chance.choice(
            [
                {"visibility_timeout_s": self.chance.choice([3.0, 6.0, 12.0])},
                {"max_deliveries": self.chance.choice([2, 6])},
                {"on_exhausted": self.chance.choice(["park", "dead_letter", "block"])},
                {"max_jobs_in_memory": self.chance.choice([20, 100, 20_000])},
                {"retry_intervals_ms": self.chance.choice([[50], [500, 2000]])},
                *([{"tags": self.chance.choice(["*", "a", "b || c"])}] if self.has("tags") else []),
            ]
        )
        return "settings", {**self._place(plan), "change": change}

    def _churn(self, plan: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        consumer = self.chance.randrange(len(plan["consumers"]))
        how = self.chance.choice(["kill", "stop", "freeze"])
        return "client", {
            "consumer": consumer,
            "how": how,
            "proxy": self._proxy(plan),
            **self._for(0.5, 40),
        }

    def _fickle(self, plan: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
        number = self.chance.randrange(len(plan["consumers"]))
        consumer = plan["consumers"][number]
        topics = _topics_of(plan, consumer.group)
        if consumer.ddmq is not None or not topics:
            return None
        wanted = self.chance.sample(topics, self.chance.randint(1, len(topics)))
        return "client", {
            "consumer": number,
            "how": "stop",
            "proxy": self._proxy(plan),
            "topics": wanted,
            **self._for(0.5, 5),
        }


def _has_narrow_client(plan: dict[str, Any]) -> bool:
    """Return whether a client takes messages of several topics one at a time.

    If it is slow, it is at its limit, and its queues wait though other proxies have idle clients:
    that is no starvation, but N5 cannot tell.
    """
    return any(
        each.concurrency == 1 and len(each.topics or plan["topics"]) > 1
        for each in plan["consumers"]
    )


def _topics_of(plan: dict[str, Any], name: str) -> list[str]:
    for group in plan["groups"]:
        if group["name"] == name:
            return [] if group.get("mode") == "broadcast" else [t["name"] for t in group["topics"]]
    return list(plan["topics"])


def draw(seed: int, *, always: Collection[str] = (), never: Collection[str] = ()) -> Plan:
    """Return the plan of *seed*; *always* and *never* name required and excluded features."""
    drawing = _Drawing(seed, always, never)
    chance = drawing.chance
    seconds = chance.choice([60.0, 120.0, 240.0])
    topics = drawing.topics()
    groups = drawing.groups(topics)
    proxies = chance.randint(2, 3) if drawing.has("several proxies") else 1
    producers = chance.randint(1, 2)
    keys = {topic: drawing.keys(topic) for topic in topics}
    parts: dict[str, Any] = {
        "seconds": seconds,
        "brokers": drawing.brokers(),
        "topics": topics,
        "groups": groups,
        "proxies": proxies,
        "producers": producers,
        "consumers": drawing.consumers(groups, topics, proxies),
    }
    flows = drawing.flows(topics, keys, producers, seconds)
    actions = drawing.actions({**parts, "keys": keys})
    operations = drawing.operations.actions({**parts, "keys": keys})
    actions += [Action(*each) for each in [*drawing.hazards.actions(parts), *operations]]
    proxy_settings = {**drawing.proxy_settings(), **drawing.hazards.proxy_settings(seconds)}
    return Plan(
        seed=seed,
        proxy_settings=proxy_settings,
        flows=flows,
        actions=sorted(actions, key=lambda action: action.at_s),
        token=drawing.hazards.token,
        **parts,
    )
