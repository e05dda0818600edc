"""A history of two proxies has the same verdict whole and in parts, even with linked queues."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.history.reader import Event
from tests.property.history.judged_parts import comparable, in_parts, whole
from tests.support.examples import examples

_QUEUES = ("a_0", "a_1")
_LEASE = ("group", "topic", "queue", "epoch", "lease", "offset")
_HANDLER = ("group", "topic", "queue", "offset", "msg", "order", "attempt", "lease", "consumer")
_MOVES = (
    *("wait", "send", "deliver", "pull_wait") * 4,
    *("ok", "pull_end") * 3,
    *("own+", "own+", "own-", "rules", "retry", "expire", "commit", "window", "start", "rate"),
    *("deleted", "created"),
)


@dataclass
class Gateway:
    """Two proxies that share two queues. Only their epochs and leases are certainly correct."""

    events: list[Event] = field(default_factory=list)
    t_ns: int = 0
    epoch: int = 0
    life: int = 0
    sent: Counter[str] = field(default_factory=Counter)  # by queue
    owners: dict[str, tuple[str, int]] = field(default_factory=dict)  # by queue: node, epoch
    leases: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        for number in range(5):
            for queue in _QUEUES:
                self.step("send", queue, "p", number)
        self.step("own+", "a_0", "p", 0)
        self.step("deliver", "a_0", "p", 1)

    def step(self, move: str, queue: str, node: str, number: int) -> None:
        """Make a move if it is possible."""
        lane = {"group": "g", "topic": "orders", "queue": queue}
        owner, epoch = self.owners.get(queue, ("", 0))
        owned = {**lane, "epoch": epoch}
        rules = {"order_key": "KEY", "visibility_ms": 1000, "retry_ms": [100]}
        rules |= {"max_leased": number or None}
        match move:
            case "wait":
                self.t_ns += number * 400_000_000
            case "send":
                self._send(queue, number)
            case "own+":
                self.epoch += 1
                self._give_up(queue)
                self.owners[queue] = node, self.epoch
                self._add("own+", node, **lane, epoch=self.epoch, **rules, owner=node)
            case "own-" if owner:
                self._give_up(queue)
                self._add("own-", owner, **owned, reason="lost")
            case "rules" if owner:
                self._add("rules", owner, **owned, **rules, jobs=0)
            case "deliver" if owner and number < self.sent[queue]:
                self._deliver(owner, owned, number)
            case "ok" | "retry" | "expire" if self.leases:
                self._end(self.leases.pop(number % len(self.leases)), move)
            case "commit" if owner:
                self._add("commit", owner, **owned, offset=number)
            case "window" if owner:
                self._add("window", owner, **owned, jobs=number, limit=3)
            case "pull_wait" | "pull_end":
                topics = (None, ["orders"], ["bills"], None, ["orders", "bills"])[number]
                self._add(move, node, group="g", topics=topics, consumer="cd"[number % 2])
            case "start":
                self._add("start", node, parts=[])
            case "rate":
                topic = "orders" if number % 2 else None
                self._add("rate", node, group="g", topic=topic, max_rate=number or None)
            case "deleted" | "created":
                if move == "deleted":
                    self.life += 1
                    self.sent.clear()
                    self.epoch *= number % 2  # epochs may start over
                self._add("topic", "harness", topic="orders", what=move)

    def _add(self, event: str, node: str, **fields: Any) -> None:
        self.t_ns += 1
        self.events.append({"e": event, "t_ns": self.t_ns, "node": node, **fields})

    def _send(self, queue: str, number: int) -> None:
        offset = self.sent[queue]
        self.sent[queue] += 1
        about = {"msg": f"{self.life}-{queue}-{offset}", "topic": "orders", "key": "kl"[number % 2]}
        self._add("send", "s", **about, digest="one")
        self._add("send_ok", "s", **about, queue=queue, offset=offset)

    def _give_up(self, queue: str) -> None:
        self.owners.pop(queue, None)
        self.leases = [each for each in self.leases if each["queue"] != queue]

    def _deliver(self, owner: str, owned: Event, offset: int) -> None:
        life = max(0, self.life - (offset == 3))  # one message is of the previous life
        about = {"msg": f"{life}-{owned['queue']}-{offset}", "order": "kl"[offset % 2]}
        about |= {"attempt": 1, "lease": len(self.events), "consumer": "c", "offset": offset}
        self._add("deliver", owner, **owned, **about)
        self.leases.append(self.events[-1])
        if offset:
            self._handle("handle_start", self.events[-1])

    def _end(self, lease: Event, how: str) -> None:
        if lease["offset"] != 2:  # the handler of offset 2 never ends
            self._handle("handle_end", lease, outcome=how)
        place = {name: lease[name] for name in _LEASE}
        event = "expire" if how == "expire" else "ack_ok"
        self._add(event, lease["node"], **place, outcome=how)
        if how == "ok":
            self._add("finish", lease["node"], **place, outcome="ok")

    def _handle(self, event: str, lease: Event, **fields: Any) -> None:
        digest = "two" if lease["offset"] == 4 else "one"
        about = {name: lease[name] for name in _HANDLER}
        self._add(event, "client", **about, digest=digest, **fields)


MOVES = st.lists(
    st.tuples(
        st.sampled_from(_MOVES),
        st.sampled_from(_QUEUES),
        st.sampled_from(["p", "q"]),
        st.integers(0, 4),
    ),
    min_size=10,
    max_size=120,
)


@settings(max_examples=examples(150), deadline=None)
@given(MOVES, st.data())
def test_parts_of_a_gateways_history_have_the_verdict_of_the_whole(
    moves: list[tuple[str, str, str, int]], data: st.DataObject
) -> None:
    gateway = Gateway()
    for move in moves:
        gateway.step(*move)
    events = gateway.events
    assert comparable(in_parts(events)) == comparable(whole(events))
    kept = [n for n, each in enumerate(events) if each["e"] != "own+"]
    del events[data.draw(st.sampled_from(kept))]
    assert comparable(in_parts(events)) == comparable(whole(events))
