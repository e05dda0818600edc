"""Q1: deliveries in any period are at most ``limit * time`` plus a burst, over all owners together.

Judged by one token bucket: one second's worth, plus one message per owner, since an owner cannot
hold back less than one. While limits change, owners may apply different ones; the highest counts,
or none if an owner has no limit. Events count in the order of their decisions, those of one process
in the order of its history. Events written much later, by a stopped process, are not judged.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from proxy.history.findings import Findings
from proxy.history.limits import NS
from proxy.history.reader import Event

#: Maximum delay between a decision and its event, ns.
_LATE_NS = 2 * NS
_ROUNDING = 0.001

Scope = tuple[str, str | None]  # group and topic; None: all its topics


@dataclass(slots=True)
class _Bucket:
    """Token bucket of deliveries. ``rate``: None until a limit applies."""

    rate: float | None = None
    burst: float = 0.0
    tokens: float = 0.0
    _at_ns: int = 0

    def change(self, rate: float | None, *, owners: int, t_ns: int) -> None:
        """Set the rate in deliveries per second from *t_ns* on."""
        self._fill(t_ns)
        self.burst = (rate or 0.0) + owners
        self.tokens = self.burst if self.rate is None else min(self.tokens, self.burst)
        self.rate = rate

    def take(self, t_ns: int) -> bool:
        """Take a token; return False if there was none."""
        if self.rate is None:
            return True
        self._fill(t_ns)
        if self.tokens < 1 - _ROUNDING:
            return False
        self.tokens -= 1
        return True

    def _fill(self, t_ns: int) -> None:
        grown = self.tokens + (self.rate or 0.0) * (t_ns - self._at_ns) / NS
        self.tokens, self._at_ns = min(grown, self.burst), t_ns


@dataclass(slots=True)
class Rates:
    """All limits of all groups."""

    findings: Findings
    _limits: dict[tuple[str, Scope], float] = field(default_factory=dict)  # by node and scope
    _buckets: dict[Scope, _Bucket] = field(default_factory=dict)
    _owners: dict[str, dict[tuple[str, str], str]] = field(default_factory=dict)  # by group
    # a heap, by time of decision
    _events: list[tuple[int, int, Event]] = field(default_factory=list)
    _count: int = 0
    _done_ns: int = 0
    _changed_ns: dict[str, int] = field(default_factory=dict)  # last change by node

    def on_event(self, event: Event) -> None:
        """Take a ``start``, ``rate``, ``own+``, ``own-`` or ``deliver``."""
        t_ns, decided_ns = event["t_ns"], event.get("at_ns")
        at_ns = t_ns if decided_ns is None else decided_ns
        if event["e"] != "deliver":
            self._changed_ns[event["node"]] = at_ns
        elif self._concerns(event["group"]):
            at_ns = max(at_ns, self._changed_ns.get(event["node"], 0))
        else:
            return
        if at_ns >= self._done_ns:
            self._count += 1
            heapq.heappush(self._events, (at_ns, self._count, event))
        self._judge(t_ns - _LATE_NS)

    def judge_end(self) -> None:
        """Judge the remaining events at the end."""
        if self._events:
            self._judge(max(self._events)[0])

    def _concerns(self, group: str) -> bool:
        """Return True if the group has, or may have, a limit."""
        return bool(self._events) or any(scope[0] == group for scope in self._buckets)

    def _judge(self, until_ns: int) -> None:
        while self._events and self._events[0][0] <= until_ns:
            at_ns, _, event = heapq.heappop(self._events)
            self._done_ns = at_ns
            match event["e"]:
                case "deliver":
                    self._deliver(event, at_ns)
                case "start":
                    self._started(event["node"])
                case "rate":
                    self._rate(event, at_ns)
                case "own+":
                    self._own(event, event["node"], at_ns)
                case _:
                    self._own(event, None, at_ns)

    def _deliver(self, event: Event, t_ns: int) -> None:
        for scope in ((event["group"], event["topic"]), (event["group"], None)):
            bucket = self._buckets.get(scope)
            if bucket is not None and not bucket.take(t_ns):
                what = "all topics" if scope[1] is None else scope[1]
                self.findings.add(
                    "Q1",
                    f"group {event['group']}, {what}: offset {event['offset']} of {event['topic']}/"
                    f"{event['queue']} was delivered by {event['node']}, more than"
                    f" {bucket.rate:g} a second and a burst of {bucket.burst:g}",
                )

    def _started(self, node: str) -> None:
        """Begin a new process, which owns nothing and has no limits yet."""
        for each in [each for each in self._limits if each[0] == node]:
            del self._limits[each]
        for owners in self._owners.values():
            for queue in [queue for queue, owner in owners.items() if owner == node]:
                del owners[queue]

    def _rate(self, event: Event, t_ns: int) -> None:
        scope = (event["group"], event["topic"])
        self._buckets.setdefault(scope, _Bucket())
        if event["max_rate"] is None:
            self._limits.pop((event["node"], scope), None)
        else:
            self._limits[event["node"], scope] = event["max_rate"]
        self._change(scope, t_ns)

    def _own(self, event: Event, node: str | None, t_ns: int) -> None:
        group, queue = event["group"], (event["topic"], event["queue"])
        owners = self._owners.setdefault(group, {})
        if node is not None:
            owners[queue] = node
        elif owners.get(queue) == event["node"]:
            del owners[queue]
        for scope in ((group, event["topic"]), (group, None)):
            if scope in self._buckets:
                self._change(scope, t_ns)

    def _change(self, scope: Scope, t_ns: int) -> None:
        """Compute the limit from the owners of queues and their limits."""
        group, topic = scope
        owned = self._owners.get(group, {}).items()
        owners = {node for (name, _), node in owned if topic in (None, name)}
        limits = [self._limits.get((node, scope)) for node in owners]
        rates = [each for each in limits if each is not None]
        if owners:  # without owners nothing is delivered: keep the state
            rate = max(rates) if len(rates) == len(owners) else None
            self._buckets[scope].change(rate, owners=len(owners), t_ns=t_ns)
