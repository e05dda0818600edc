"""Splitting a history: which part an event belongs to, and how a part is judged. Pure.

Four kinds of parts, each in the order of time:

- ``queue``: a queue of a topic with all groups that read it, its twin, and the messages that were
  sent to it. Nearly everything is judged there. Messages that stand nowhere have a part per topic.
- ``site``: a group at one node where pulls waited, or that owned a queue. Judges nothing; says when
  pulls waited there and the group could have been given more, by which the timed invariants of its
  queues are judged (``clock`` events); and which pulls waited, and when limits held the group back,
  independent of the owners of its queues (``demand`` events).
- ``client``: a consumer that repeated a pull, with all hand-outs of the keys that it got. X1 is
  judged there, for an answer may hold messages of several queues.
- ``rate``: a group that has, or had, a rate limit, with all hand-outs and owners, for Q1.

What a part has to know of the others stands in its stream, as events of its own: ``whole``, first;
``stray`` for each message that stands in other queues as well; ``seen``, the last event of each
node; ``clock`` and ``demand``. Nemeses, starts, stops and lives of topics go to all queues, the
starts of a node to its sites, and all starts to the rates.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import orjson

from proxy.history.answers import Answers
from proxy.history.check import HistoryChecker
from proxy.history.demand import FOREVER_NS, LIMITS, Demands
from proxy.history.facts import LaneFacts
from proxy.history.findings import Violation
from proxy.history.leases import Leases
from proxy.history.limits import Limits
from proxy.history.parking import is_twin, origin_of
from proxy.history.reader import Event, HistoryError
from proxy.history.spans import Span, Spans
from proxy.history.verdicts import Stray, Verdict, Whole
from proxy.history.waiting import Site, Sites

QUEUE, SITE, CLIENT, RATE = "queue", "site", "client", "rate"

#: Events that say where a message stands (a send's answer only if it tells the place).
_PLACES = frozenset({"deliver", "handle_start", "send_ok"})
_SENDS = frozenset({"send", "send_ok", "send_info", "send_fail"})
#: Of a topic, and of no message: judged where those of its messages are that stand nowhere.
_NOWHERE = frozenset({"dead_letter_redrive"})
_EVERYWHERE = frozenset({"start", "stop", "nemesis", "audit", "topic"})
_PULLS = frozenset({"pull_wait", "pull_end"})
#: What rate limits are judged by.
RATED = frozenset({"rate", "own+", "own-", "deliver"})
#: Of these a lane is told.
_LANES = frozenset(
    {
        *("own+", "own-", "drain", "record", "window", "deliver", "replay", "handle_start"),
        *("rules", "act_fail", "order_key", "reset", "deleted"),
        *("handle_end", "finish", "commit", "park", "unpark", "redrive"),
        *("pause", "resume", "retry"),
        *("ack_ok", "expire", "revoke", "unsent", "extend"),
    }
)
#: Of these it follows which leases are alive, at which node, and how many may be.
_LEASES = frozenset(
    {
        *("own+", "own-", "drain", "deliver", "finish", "rules"),
        *("ack_ok", "expire", "revoke", "unsent"),
    }
)
_NEVER_S = 1e8
#: How often a site tells which pulls waited, ns.
_TELL_EVERY_NS = 10_000_000_000


class Part(NamedTuple):
    """Names a part: its kind, and a topic and queue, a node and group, or a group and consumer."""

    kind: str
    of: str
    name: str

    def text(self) -> str:
        """One line."""
        return orjson.dumps(list(self)).decode()

    @classmethod
    def parse(cls, text: str) -> Part:
        """Inverse of ``text``."""
        return cls(*orjson.loads(text))


class Traits(NamedTuple):
    """What decides to which parts an event goes."""

    event: str
    t_ns: int
    node: str
    everywhere: bool
    """All parts are told."""
    send: bool
    """It goes to the queues where its message stands, if it has one that stands somewhere."""
    placed: bool
    """It says that its message stands in that queue."""
    lane: bool
    pull: bool
    """Its group has a site at its node."""
    leases: bool
    group: str | None
    topic: str | None
    queue: str | None
    origin: str | None
    """The queue, or that whose parked messages it holds."""
    message: str | None
    consumer: str | None
    request: str | None
    epoch: int | None
    lease: int | None
    offset: int | None
    slot: str | None
    """What a hand-out is kept in order by: a key, or for an unordered message its offset."""
    decided_ns: int | None


def traits_of(event: Event) -> Traits:
    """Raises HistoryError if a field is missing without which nobody can say where it belongs."""
    what = event["e"]
    lane, pull = what in _LANES, what in _PULLS
    _require(event, lane=lane, pull=pull)
    pull = pull or what == "own+"  # who owns a queue has a site
    queue, message = _text(event.get("queue")), _text(event.get("msg"))
    decided_ns = _number(event.get("at_ns"))
    return Traits(
        event=what,
        t_ns=event["t_ns"],
        node=str(event["node"]),
        everywhere=what in _EVERYWHERE,
        send=what in _SENDS or what in _NOWHERE,
        placed=what in _PLACES
        and message is not None
        and queue is not None
        and (what != "send_ok" or event.get("offset") is not None),
        lane=lane,
        pull=pull,
        leases=what in _LEASES,
        group=_text(event.get("group")),
        topic=_text(event.get("topic")),
        queue=queue,
        origin=origin_of(queue) if queue is not None and is_twin(queue) else queue,
        message=message,
        consumer=_text(event.get("consumer")),
        request=_text(event.get("req")),
        epoch=_number(event.get("epoch")),
        lease=_number(event.get("lease")),
        offset=_number(event.get("offset")),
        slot=_slot(event) if what == "deliver" else None,
        decided_ns=event["t_ns"] if decided_ns is None else decided_ns,
    )


def _require(event: Event, *, lane: bool, pull: bool) -> None:
    what = event["e"]
    needed = ["node"]
    needed += ["group", "topic", "queue"] if lane else ["group", "topics"] if pull else []
    needed += ["msg", "topic"] if what in _SENDS else []
    needed += ["group", "topic"] if what == "rate" else []
    needed += ["topic"] if what in _NOWHERE or what == "topic" else []
    for name in needed:
        if name not in event:
            raise HistoryError(
                f"event {what} of node {event.get('node')} at t_ns {event['t_ns']} has no field"
                f" {name!r}"
            )


def whole_event(whole: Whole) -> Event:
    """The first event of a part."""
    return {
        "e": "whole",
        "t_ns": -1,
        "node": "",
        "groups": {topic: list(groups) for topic, groups in whole.groups.items()},
        "sent_topics": sorted(whole.sent_topics),
    }


def stray_event(message: str) -> Event:
    """The message stands in other queues, too; before all its events."""
    return {"e": "stray", "t_ns": -1, "node": "", "msg": message}


def seen_event(node: str, t_ns: int) -> Event:
    """The last event of *node*."""
    return {"e": "seen", "t_ns": t_ns, "node": node}


@dataclass(frozen=True, slots=True)
class Clock:
    """In a group at a node: whether time counts for what is ready in a topic, from *t_ns* on."""

    node: str
    group: str
    topic: str
    running: bool
    t_ns: int

    def event(self) -> Event:
        """For the queues of that topic."""
        return {
            "e": "clock",
            "t_ns": self.t_ns,
            "node": self.node,
            "group": self.group,
            "topic": self.topic,
            "running": self.running,
        }


@dataclass(frozen=True, slots=True)
class Demand:
    """Waits of pulls for a topic at a node, when limits held the group back there, and when those
    waits began that have no end.
    """

    node: str
    group: str
    topic: str
    waits: Sequence[Span] = ()
    holds: Sequence[Span] = ()
    open_ns: Sequence[int] = ()

    def event(self) -> Event:
        """For the queues of that topic."""
        return {
            "e": "demand",
            "t_ns": -1,
            "node": "",
            "at": self.node,
            "group": self.group,
            "topic": self.topic,
            "waits": self.waits,
            "holds": self.holds,
            "open_ns": self.open_ns,
        }


def judged(
    lines: Iterable[tuple[str, bytes]], *, limits: Limits | None = None
) -> Iterator[tuple[str, Verdict]]:
    """Verdicts on parts from their lines: name of the part and event, a part at a time, by time.

    Memory is that of one part. Raises HistoryError as the checker does.
    """
    checker: PartChecker | None = None
    name = ""
    for part, line in lines:
        if checker is None or part != name:
            if checker is not None:
                yield name, checker.found()
            name, checker = part, PartChecker(Part.parse(part), limits=limits)
        checker.on_event(orjson.loads(line))
    if checker is not None:
        yield name, checker.found()


def clocks(lines: Iterable[tuple[str, bytes]]) -> Iterator[tuple[int, Clock | Demand]]:
    """What sites have to tell, from their lines as above; beside it the number of the line that
    each follows from. Demands may be told in any order.
    """
    name, number, sites = "", 0, _TellingSites("")
    checker = _SiteChecker(sites=sites)
    for number, (part, line) in enumerate(lines):
        if part != name:
            for demand in sites.last_words():
                yield max(0, number - 1), demand
            name, sites = part, _TellingSites(Part.parse(part).of)
            checker = _SiteChecker(sites=sites)
        checker.on_event(orjson.loads(line))
        for told in sites.told:
            if told.node == sites.node:  # its own part tells of another one
                yield number, told
        sites.told.clear()
    for demand in sites.last_words():
        yield number, demand


class _SiteChecker(HistoryChecker):
    """Follows leases. A site is not told of lives of topics: where epochs fall, one has begun."""

    def _own(self, event: Event) -> None:
        lane = self._present(event)
        if event["epoch"] <= lane.facts.epoch and lane.ownership.was_asked_later(event):
            lane.facts.end_life()
        super()._own(event)


class PartChecker(HistoryChecker):
    """Judges one part."""

    def __init__(self, part: Part, *, limits: Limits | None = None) -> None:
        self._part = part
        self._whole = Whole()
        if part.kind == CLIENT:
            # A lease that ends too late is X1 as well, and a matter of its queue.
            super().__init__(limits=Limits(lease_s=_NEVER_S), answers=_AnswersTo(part.name))
            return
        if part.kind == RATE:
            super().__init__(limits=limits)
            self._actions = dict.fromkeys((*RATED, "start"), self._rates.on_event)
            return
        self._told = _ToldSites()
        super().__init__(limits=limits, sites=self._told, answers=_NoAnswers())
        self._actions["stray"] = self._sends.stray
        self._actions["clock"] = self._told.tell
        self._actions["demand"] = self._told.tell_demand
        self._actions["whole"] = self._know

    def found(self) -> Verdict:
        """At the end of the part."""
        verdict = self.verdict(self._whole)
        if self._part.kind == CLIENT:
            return Verdict(violations={k: v for k, v in verdict.violations.items() if k == "X1"})
        return verdict

    def _know(self, event: Event) -> None:
        self._whole = Whole(groups=event["groups"], sent_topics=frozenset(event["sent_topics"]))


def verdict_from(found: dict[str, Any]) -> Verdict:
    """Inverse of ``dataclasses.asdict``, by way of JSON."""
    strays = [
        Stray(
            **{
                **each,
                "places": [(queue, offset) for queue, offset in each["places"]],
                "if_lost": {name: _violations(of) for name, of in each["if_lost"].items()},
            }
        )
        for each in found["strays"]
    ]
    return Verdict(**{**found, "violations": _violations(found["violations"]), "strays": strays})


def _violations(found: dict[str, Any]) -> dict[str, Violation]:
    return {name: Violation(**each) for name, each in found.items()}


class _NoAnswers(Answers):
    """X1 is judged by client."""

    def handed_out(self, event: Event, facts: LaneFacts, leases: Leases) -> None:
        """Nothing is judged here."""

    def replayed(self, event: Event, facts: LaneFacts, leases: Leases) -> None:
        """Nothing is judged here."""


class _AnswersTo(Answers):
    """Those to one consumer; others are there as they may take its leases away."""

    def __init__(self, consumer: str) -> None:
        super().__init__()
        self._consumer = consumer

    def handed_out(self, event: Event, facts: LaneFacts, leases: Leases) -> None:
        """As its base."""
        if event["consumer"] == self._consumer:
            super().handed_out(event, facts, leases)


class _ToldSite(Site):
    """Its clocks go as they are told."""

    def pulls(self, topics: list[str] | None, change: int, t_ns: int) -> None:
        """That is known already."""

    def restarted(self, t_ns: int) -> None:
        """That is known already."""

    def leases(self, change: int, t_ns: int) -> None:
        """That is known already."""

    def limit_leases(self, limit: int | None, t_ns: int) -> None:
        """That is known already."""


class _ToldDemands(Demands):
    """Made of what sites tell."""

    def __init__(self, last_ns: Callable[[str], int]) -> None:
        super().__init__(last_ns)
        self._told_open: defaultdict[tuple[str, str], list[tuple[str, int]]] = defaultdict(list)

    def tell(self, event: Event) -> None:
        """What one site has to tell."""
        node, group, topic = event["at"], event["group"], event["topic"]
        for begin, end in event["waits"]:
            self.add_wait(group, topic, (begin, end))
        for begin, end in event["holds"]:
            self.add_hold(node, group, topic, (begin, end))
        self._told_open[group, topic] += [(node, since) for since in event["open_ns"]]

    def open_waits(self, group: str, topic: str) -> Iterator[tuple[str, int]]:
        """As told."""
        yield from self._told_open[group, topic]


class _ToldSites(Sites):
    def __post_init__(self) -> None:
        self._told = self.demands = _ToldDemands(self.last_ns)

    def tell_demand(self, event: Event) -> None:
        self._told.tell(event)

    def tell(self, event: Event) -> None:
        clock = self.of(event["node"], event["group"]).clock(event["topic"], event["t_ns"])
        clock.run(event["running"], event["t_ns"])

    def _new(self, node: str, group: str) -> Site:
        return _ToldSite()


class _TellingDemands(Demands):
    """Those of a group at *node*. What is to be told of any topic is told of each that it reads."""

    def __init__(self, node: str, told: list[Clock | Demand]) -> None:
        super().__init__(lambda _: 0)
        self._node = node
        self._told = told
        self._topics: dict[str, str] = {}  # by topic: its group
        self._new_waits: dict[str | None, Spans] = {}
        self._new_holds: dict[str | None, Spans] = {}
        self._told_ns = 0

    def pull(self, event: Event, change: int) -> None:
        """As its base; now and then what is new is told."""
        super().pull(event, change)
        if event["t_ns"] - self._told_ns >= _TELL_EVERY_NS:
            self._told_ns = event["t_ns"]
            self._tell_new()

    def reads(self, group: str, topic: str) -> None:
        """All that any topic had until now is told of this one."""
        if topic not in self._topics:
            self._topics[topic] = group
            waits = self._waits.get((group, None), ())
            holds = self._holds.get((self._node, group, None), ())
            self._tell(topic, waits, holds)

    def add_wait(self, group: str, topic: str | None, span: Span) -> None:
        """Of topics that are named it is told only, and kept nowhere."""
        if topic is None:
            super().add_wait(group, topic, span)
        self._new_waits.setdefault(topic, Spans()).add(*span)

    def add_hold(self, node: str, group: str, topic: str | None, span: Span) -> None:
        """As above."""
        if node == self._node:
            if topic is None:
                super().add_hold(node, group, topic, span)
            self._new_holds.setdefault(topic, Spans()).add(*span)

    def last_words(self) -> None:
        """Tell the rest, at the end of the histories."""
        for _, node, group, topic in list(self._held_since):
            if node == self._node:
                for limit in LIMITS:
                    self.hold(node, group, limit, topic, False, FOREVER_NS)
        self._tell_new()
        for topic, group in self._topics.items():
            if open_ns := [since for _, since in self.open_waits(group, topic)]:
                self._told.append(Demand(self._node, group, topic, open_ns=open_ns))

    def _tell_new(self) -> None:
        waits, self._new_waits = self._new_waits, {}
        holds, self._new_holds = self._new_holds, {}
        for topic in self._topics:
            for name in (None, topic):
                self._tell(topic, waits.get(name, ()), holds.get(name, ()))
        for name in waits.keys() | holds.keys():
            if name is not None and name not in self._topics:  # until somebody reads it
                self._new_waits[name] = waits.get(name, Spans())
                self._new_holds[name] = holds.get(name, Spans())

    def _tell(self, topic: str, waits: Iterable[Span], holds: Iterable[Span]) -> None:
        demand = Demand(self._node, self._topics[topic], topic, [*waits], [*holds])
        if demand.waits or demand.holds:
            self._told.append(demand)


class _TellingSites(Sites):
    """``told`` gets what the clocks and pulls of *node* do."""

    def __init__(self, node: str) -> None:
        self.node = node
        self.told: list[Clock | Demand] = []
        super().__init__()

    def __post_init__(self) -> None:
        self._telling = self.demands = _TellingDemands(self.node, self.told)

    def last_words(self) -> Iterator[Clock | Demand]:
        """What is to be told at the end."""
        self._telling.last_words()
        yield from self.told
        self.told.clear()

    def _new(self, node: str, group: str) -> Site:
        def tell(topic: str, running: bool, t_ns: int) -> None:
            self.told.append(Clock(node, group, topic, running, t_ns))

        return Site(on_clock=tell, on_hold=partial(self.demands.hold, node, group))


def _slot(event: Event) -> str:
    order = event.get("order")
    return f"offset {event.get('offset')}" if order is None else f"key {order}"


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) else None
