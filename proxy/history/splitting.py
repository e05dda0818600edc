"""Splits a history into parts that are judged separately. Pure.

There are four kinds of parts, each in the order of time:

- ``queue``: a queue of a topic with all its groups, its twin, and the messages sent to it. Nearly
  all invariants are judged here. Messages that are in no queue have one part per topic.
- ``site``: a group at one node where pulls waited or that owned a queue. Nothing is judged here;
  the part yields ``clock`` events (when pulls waited and the group could get more messages, for the
  timed invariants of its queues), ``pause_end`` events (its clients held nothing until then) and
  ``demand`` events (waiting pulls and times of limits, independent of the owners of the queues).
- ``client``: a consumer that repeated a pull, with all deliveries of its keys. X1 is judged here,
  because one answer may contain messages of several queues.
- ``rate``: a group that has or had a rate limit, with all deliveries and owners, for Q1.

Facts from other parts are in a part's stream as events: ``whole``, first; ``stray`` for each
message that is also in other queues; ``seen``, the last event of each node; ``clock``,
``pause_end`` and ``demand``. Nemeses, starts, stops and lives of topics go to all queues, the
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
from proxy.history.sites import Site, Sites
from proxy.history.spans import Span, Spans
from proxy.history.verdicts import Stray, Verdict, Whole

QUEUE, SITE, CLIENT, RATE = "queue", "site", "client", "rate"

#: Events with the place of a message (answers to sends only if they contain it).
_PLACES = frozenset({"deliver", "handle_start", "send_ok"})
_SENDS = frozenset({"send", "send_ok", "send_info", "send_fail"})
#: Events of a topic without a message: judged with the messages that are in no queue.
_NOWHERE = frozenset({"dead_letter_redrive"})
_EVERYWHERE = frozenset({"start", "stop", "nemesis", "audit", "topic"})
_PULLS = frozenset({"pull_wait", "pull_end", "consumes"})
#: Events by which rate limits are judged.
RATED = frozenset({"rate", "own+", "own-", "deliver"})
#: Events of lanes.
_LANES = frozenset(
    {
        *("own+", "own-", "drain", "record", "window", "deliver", "replay", "handle_start"),
        *("rules", "act_fail", "order_key", "reset", "deleted"),
        *("handle_end", "finish", "commit", "park", "unpark", "redrive"),
        *("pause", "resume", "retry"),
        *("ack_ok", "expire", "revoke", "unsent", "extend"),
    }
)
#: Events that change the live leases of a node or their limit.
_LEASES = frozenset(
    {
        *("own+", "own-", "drain", "deliver", "finish", "rules"),
        *("ack_ok", "expire", "revoke", "unsent"),
    }
)
_NEVER_S = 1e8
#: Interval at which a site reports waiting pulls, ns.
_REPORT_EVERY_NS = 10_000_000_000


class Part(NamedTuple):
    """A part's kind, and its topic and queue, node and group, or group and consumer."""

    kind: str
    of: str
    name: str

    def text(self) -> str:
        """Return the name as one line of text."""
        return orjson.dumps(list(self)).decode()

    @classmethod
    def parse(cls, text: str) -> Part:
        """Return the part named by ``text``."""
        return cls(*orjson.loads(text))


class Traits(NamedTuple):
    """Fields of an event that decide to which parts it goes."""

    event: str
    t_ns: int
    node: str
    everywhere: bool
    """Whether it goes to all queues."""
    send: bool
    """Whether it goes to the queues of its message, if any is known."""
    placed: bool
    """Whether it shows that its message is in that queue."""
    lane: bool
    pull: bool
    """Whether its group has a site at its node."""
    leases: bool
    group: str | None
    topic: str | None
    queue: str | None
    origin: str | None
    """The queue, or for a twin the queue whose parked messages it holds."""
    message: str | None
    consumer: str | None
    request: str | None
    epoch: int | None
    lease: int | None
    offset: int | None
    slot: str | None
    """Unit of order of a delivery: a key, or the offset of an unordered message."""
    decided_ns: int | None


def traits_of(event: Event) -> Traits:
    """Return the traits of *event*. Raises HistoryError if a field is missing that decides its
    parts.
    """
    what = event["e"]
    lane, pull = what in _LANES, what in _PULLS
    _require(event, lane=lane, pull=pull)
    pull = pull or what == "own+"  # the owner of a queue has a site
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
    """Return the first event of a part."""
    return {
        "e": "whole",
        "t_ns": -1,
        "node": "",
        "groups": {topic: list(groups) for topic, groups in whole.groups.items()},
        "sent_topics": sorted(whole.sent_topics),
    }


def stray_event(message: str) -> Event:
    """Return the event for a message that is also in other queues; it precedes the message's
    events.
    """
    return {"e": "stray", "t_ns": -1, "node": "", "msg": message}


def seen_event(node: str, t_ns: int) -> Event:
    """Return the event for the last event of *node*."""
    return {"e": "seen", "t_ns": t_ns, "node": node}


@dataclass(frozen=True, slots=True)
class Clock:
    """Whether the clock of a topic runs for a group at a node, from *t_ns* on."""

    node: str
    group: str
    topic: str
    running: bool
    t_ns: int

    def event(self) -> Event:
        """Return the event for the queues of the topic."""
        return {
            "e": "clock",
            "t_ns": self.t_ns,
            "node": self.node,
            "group": self.group,
            "topic": self.topic,
            "running": self.running,
        }


@dataclass(frozen=True, slots=True)
class Pause:
    """End of a time in which the clients of a group held nothing at a node."""

    node: str
    group: str
    topic: str
    t_ns: int

    def event(self) -> Event:
        """Return the event for the queues of the topic."""
        return {
            "e": "pause_end",
            "t_ns": self.t_ns,
            "node": self.node,
            "group": self.group,
            "topic": self.topic,
        }


@dataclass(frozen=True, slots=True)
class Demand:
    """Waits of pulls for a topic at a node, times in which limits held the group back there, and
    starts of waits without an end.
    """

    node: str
    group: str
    topic: str
    waits: Sequence[Span] = ()
    holds: Sequence[Span] = ()
    open_ns: Sequence[int] = ()

    def event(self) -> Event:
        """Return the event for the queues of the topic."""
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


Report = Clock | Pause | Demand


def judged(
    lines: Iterable[tuple[str, bytes]], *, limits: Limits | None = None
) -> Iterator[tuple[str, Verdict]]:
    """Yield the verdicts on parts from lines of part name and event, sorted by part and time.

    Memory is that of one part. Raises HistoryError like the checker.
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


def clocks(lines: Iterable[tuple[str, bytes]]) -> Iterator[tuple[int, Report]]:
    """Yield the reports of sites from lines as in ``judged``, each with the number of its line.

    Demands are in no particular order.
    """
    name, number, sites = "", 0, _ReportingSites("")
    checker = _SiteChecker(sites=sites)
    for number, (part, line) in enumerate(lines):
        if part != name:
            for demand in sites.final_reports():
                yield max(0, number - 1), demand
            name, sites = part, _ReportingSites(Part.parse(part).of)
            checker = _SiteChecker(sites=sites)
        checker.on_event(orjson.loads(line))
        for report in sites.reports:
            if report.node == sites.node:  # the other node's part reports it
                yield number, report
        sites.reports.clear()
    for demand in sites.final_reports():
        yield number, demand


class _SiteChecker(HistoryChecker):
    """Follows leases. A site receives no lives of topics: an epoch that falls shows a new one."""

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
            # A lease that ends too late also violates X1, which its queue's part judges.
            super().__init__(limits=Limits(lease_s=_NEVER_S), answers=_AnswersTo(part.name))
            return
        if part.kind == RATE:
            super().__init__(limits=limits)
            self._actions = dict.fromkeys((*RATED, "start"), self._rates.on_event)
            return
        self._reported = _ReportedSites()
        super().__init__(limits=limits, sites=self._reported, answers=_NoAnswers())
        self._actions["stray"] = self._sends.stray
        self._actions["clock"] = self._reported.set_clock
        self._actions["pause_end"] = self._reported.set_pause
        self._actions["demand"] = self._reported.add_demand
        self._actions["whole"] = self._know

    def found(self) -> Verdict:
        """Return the verdict at the end of the part."""
        verdict = self.verdict(self._whole)
        if self._part.kind == CLIENT:
            return Verdict(violations={k: v for k, v in verdict.violations.items() if k == "X1"})
        return verdict

    def _know(self, event: Event) -> None:
        self._whole = Whole(groups=event["groups"], sent_topics=frozenset(event["sent_topics"]))


def verdict_from(found: dict[str, Any]) -> Verdict:
    """Return the verdict from ``dataclasses.asdict`` after a round trip through JSON."""
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
    """Ignores answers: X1 is judged in the parts of clients."""

    def delivered(self, event: Event, facts: LaneFacts, leases: Leases) -> None:
        """Do nothing."""

    def replayed(self, event: Event, facts: LaneFacts, leases: Leases) -> None:
        """Do nothing."""


class _AnswersTo(Answers):
    """Answers to one consumer; other consumers matter only as they may take over its leases."""

    def __init__(self, consumer: str) -> None:
        super().__init__()
        self._consumer = consumer

    def delivered(self, event: Event, facts: LaneFacts, leases: Leases) -> None:
        """Record a delivery to the consumer."""
        if event["consumer"] == self._consumer:
            super().delivered(event, facts, leases)


class _ReportedSite(Site):
    """A site whose clocks follow ``clock`` events."""

    def pulls(self, topics: list[str] | None, change: int, t_ns: int) -> None:
        """Do nothing: the ``clock`` events include it."""

    def consumes(self, topics: Iterable[str], t_ns: int) -> None:
        """Do nothing: the ``clock`` events include it."""

    def restarted(self, t_ns: int) -> None:
        """Do nothing: the ``clock`` events include it."""

    def leases(self, change: int, t_ns: int) -> None:
        """Do nothing: the ``clock`` events include it."""

    def limit_leases(self, limit: int | None, t_ns: int) -> None:
        """Do nothing: the ``clock`` events include it."""


class _ReportedDemands(Demands):
    """Demand from ``demand`` events."""

    def __init__(self, last_ns: Callable[[str], int]) -> None:
        super().__init__(last_ns)
        self._open_waits: defaultdict[tuple[str, str], list[tuple[str, int]]] = defaultdict(list)

    def add(self, event: Event) -> None:
        """Add the report of one site."""
        node, group, topic = event["at"], event["group"], event["topic"]
        for begin, end in event["waits"]:
            self.add_wait(group, topic, (begin, end))
        for begin, end in event["holds"]:
            self.add_hold(node, group, topic, (begin, end))
        self._open_waits[group, topic] += [(node, since) for since in event["open_ns"]]

    def open_waits(self, group: str, topic: str) -> Iterator[tuple[str, int]]:
        """Yield the open waits reported by the sites."""
        yield from self._open_waits[group, topic]


class _ReportedSites(Sites):
    def __post_init__(self) -> None:
        self._reported = self.demands = _ReportedDemands(self.last_ns)

    def add_demand(self, event: Event) -> None:
        self._reported.add(event)

    def set_clock(self, event: Event) -> None:
        clock = self.of(event["node"], event["group"]).clock(event["topic"], event["t_ns"])
        clock.run(event["running"], event["t_ns"])

    def set_pause(self, event: Event) -> None:
        self.of(event["node"], event["group"]).pause_ended(event["t_ns"])

    def _new(self, node: str, group: str) -> Site:
        return _ReportedSite()


class _ReportingDemands(Demands):
    """Demand of a group at *node*, to be reported. Waits for any topic are reported for each topic
    read.
    """

    def __init__(self, node: str, reports: list[Report]) -> None:
        super().__init__(lambda _: 0)
        self._node = node
        self._reports = reports
        self._topics: dict[str, str] = {}  # by topic: its group
        self._new_waits: dict[str, Spans] = {}
        self._new_waits_for_any = Spans()
        self._new_holds: dict[str | None, Spans] = {}
        self._reported_ns = 0

    def pull(self, event: Event, change: int) -> None:
        """Record a pull, and report new waits at intervals."""
        super().pull(event, change)
        if event["t_ns"] - self._reported_ns >= _REPORT_EVERY_NS:
            self._reported_ns = event["t_ns"]
            self._report_new()

    def reads(self, group: str, topic: str) -> None:
        """Report all waits for any topic so far under *topic*."""
        if topic not in self._topics:
            self._topics[topic] = group
            for_any = self._waits_for_any.get((self._node, group), Spans())
            waits = self.waits_of(self._node, group, topic, for_any)
            holds = self._holds.get((self._node, group, None), ())
            self._report(topic, waits, holds)

    def add_wait(self, group: str, topic: str, span: Span) -> None:
        """Add a wait, which is reported without being kept."""
        self._new_waits.setdefault(topic, Spans()).add(*span)

    def add_wait_for_any(self, node: str, group: str, span: Span) -> None:
        """Add a wait for any topic."""
        super().add_wait_for_any(node, group, span)
        self._new_waits_for_any.add(*span)

    def add_hold(self, node: str, group: str, topic: str | None, span: Span) -> None:
        """Add a hold; those of named topics are reported without being kept."""
        if node == self._node:
            if topic is None:
                super().add_hold(node, group, topic, span)
            self._new_holds.setdefault(topic, Spans()).add(*span)

    def final_reports(self) -> None:
        """Report the rest at the end of the histories."""
        for _, node, group, topic in list(self._held_since):
            if node == self._node:
                for limit in LIMITS:
                    self.hold(node, group, limit, topic, False, FOREVER_NS)
        self._report_new()
        for topic, group in self._topics.items():
            if open_ns := [since for _, since in self.open_waits(group, topic)]:
                self._reports.append(Demand(self._node, group, topic, open_ns=open_ns))

    def _report_new(self) -> None:
        waits, self._new_waits = self._new_waits, {}
        holds, self._new_holds = self._new_holds, {}
        for_any, self._new_waits_for_any = self._new_waits_for_any, Spans()
        for topic, group in self._topics.items():
            those = self.waits_of(self._node, group, topic, for_any)
            self._report(topic, those, holds.get(None, ()))
            self._report(topic, waits.get(topic, ()), holds.get(topic, ()))
        for name in waits.keys() | holds.keys():
            if name is not None and name not in self._topics:  # until the group reads it
                self._new_waits[name] = waits.get(name, Spans())
                self._new_holds[name] = holds.get(name, Spans())

    def _report(self, topic: str, waits: Iterable[Span], holds: Iterable[Span]) -> None:
        demand = Demand(self._node, self._topics[topic], topic, [*waits], [*holds])
        if demand.waits or demand.holds:
            self._reports.append(demand)


class _ReportingSites(Sites):
    """Sites of *node*; ``reports`` collects the reports on their clocks and pulls."""

    def __init__(self, node: str) -> None:
        self.node = node
        self.reports: list[Report] = []
        super().__init__()

    def __post_init__(self) -> None:
        self._reporting = self.demands = _ReportingDemands(self.node, self.reports)

    def final_reports(self) -> Iterator[Report]:
        """Yield the final reports."""
        self._reporting.final_reports()
        yield from self.reports
        self.reports.clear()

    def _new(self, node: str, group: str) -> Site:
        def report(topic: str, running: bool, t_ns: int) -> None:
            self.reports.append(Clock(node, group, topic, running, t_ns))

        def report_pause(t_ns: int) -> None:
            self.reports.extend(Pause(node, group, topic, t_ns) for topic in site.topics)

        hold = partial(self.demands.hold, node, group)
        site = Site(on_clock=report, on_hold=hold, on_pause=report_pause)
        return site


def _slot(event: Event) -> str:
    order = event.get("order")
    return f"offset {event.get('offset')}" if order is None else f"key {order}"


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) else None
