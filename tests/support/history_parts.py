"""Judges a history in parts within one process, like the bulk job, with dictionaries as tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import orjson

from proxy.history.check import HistoryChecker
from proxy.history.findings import Report
from proxy.history.limits import Limits
from proxy.history.reader import Event
from proxy.history.splitting import (
    CLIENT,
    QUEUE,
    RATE,
    RATED,
    SITE,
    Part,
    Traits,
    clocks,
    judged,
    seen_event,
    stray_event,
    traits_of,
    verdict_from,
    whole_event,
)
from proxy.history.verdicts import Verdict, Whole, joined

Key = tuple[
    int, int, int
]  # time, place in the history, before (0) or after (1) the event at that place
Streams = dict[Part, list[tuple[Key, Event]]]


def judge_in_parts(history: Iterable[Event], *, limits: Limits | None = None) -> Report:
    """Return the report on *history*, which is sorted by time."""
    events = [(traits_of(event), event) for event in history]
    groups: defaultdict[str, dict[str, None]] = defaultdict(dict)
    readers: defaultdict[tuple[str, str], set[str]] = defaultdict(set)  # group, topic → queues
    homes: defaultdict[str | None, set[tuple[str, str]]] = defaultdict(set)
    for each, _ in events:
        topic, group, origin = str(each.topic), str(each.group), str(each.origin)
        if each.lane:
            groups[topic][group] = None
            readers[group, topic].add(origin)
        if each.placed:
            homes[each.message].add((topic, origin))
    whole = Whole(
        events=len(events),
        groups={topic: list(names) for topic, names in groups.items()},
        sent_topics={str(each.topic) for each, _ in events if each.event in ("send", "send_ok")},
    )
    queues = _queues(events, homes, readers)
    for part, stream in _common(whole, events, homes, queues).items():
        queues[part] += stream
    for part, stream in _clients(events).items():
        queues[part] = stream
    for part, stream in _rates(events).items():
        queues[part] = stream
    verdicts = judged(_lines(queues), limits=limits)
    return joined((_travelled(verdict) for _, verdict in verdicts), whole)


def found_both_ways(history: list[Event], *, limits: Limits | None = None) -> set[str]:
    """Return the violated invariants; they must be the same whole and in parts."""
    checker = HistoryChecker(limits=limits)
    for event in history:
        checker.on_event(event)
    report = checker.report()
    assert counted(judge_in_parts(history, limits=limits)) == counted(report)
    return set(report.violations)


def counted(report: Report) -> dict[str, Any]:
    """Return *report* without the examples, which parts select differently."""
    found = report.as_dict()
    return {**found, "by_id": {name: each["count"] for name, each in found["by_id"].items()}}


def _travelled(verdict: Verdict) -> Verdict:
    return verdict_from(orjson.loads(orjson.dumps(asdict(verdict))))


def _queues(
    events: list[tuple[Traits, Event]],
    homes: dict[str | None, set[tuple[str, str]]],
    readers: dict[tuple[str, str], set[str]],
) -> Streams:
    streams: Streams = defaultdict(list)
    for number, (each, event) in enumerate(events):
        key = (each.t_ns, number, 0)
        if each.lane:
            streams[Part(QUEUE, str(each.topic), str(each.origin))].append((key, event))
        if each.send:
            for topic, queue in homes.get(each.message) or {(str(each.topic), "")}:
                streams[Part(QUEUE, topic, queue)].append((key, event))
    sites = _sites(events)
    numbers = [key for _, stream in sorted(sites.items()) for key, _ in sorted(stream, key=_first)]
    for number, clock in clocks(_lines(sites)):
        t_ns, place, _ = numbers[number]
        for queue in readers[clock.group, clock.topic]:
            part = Part(QUEUE, clock.topic, queue)
            streams[part].append(((t_ns, place, 1), clock.event()))
    return streams


def _common(
    whole: Whole,
    events: list[tuple[Traits, Event]],
    homes: dict[str | None, set[tuple[str, str]]],
    parts: Iterable[Part],
) -> Streams:
    last = {each.node: each.t_ns for each, _ in events}
    everywhere = [
        ((each.t_ns, number, 0), event)
        for number, (each, event) in enumerate(events)
        if each.everywhere
    ]
    everywhere += [((t_ns, len(events), 0), seen_event(node, t_ns)) for node, t_ns in last.items()]
    streams: Streams = {part: [((-1, 0, 0), whole_event(whole)), *everywhere] for part in parts}
    for message, places in homes.items():
        for topic, queue in places if len(places) > 1 else ():
            stray = ((-1, 1, 0), stray_event(str(message)))
            streams[Part(QUEUE, topic, queue)].append(stray)
    return streams


def _sites(events: list[tuple[Traits, Event]]) -> Streams:
    """Return the streams of sites: groups at nodes where pulls waited, and the next owners."""
    nodes: defaultdict[str, set[str]] = defaultdict(set)
    for each, _ in events:
        if each.pull:
            nodes[str(each.group)].add(each.node)
    streams: Streams = defaultdict(list)
    for number, (each, event) in enumerate(events):
        if each.event == "start":
            for group, there in nodes.items():
                if each.node in there:
                    part = Part(SITE, each.node, group)
                    streams[part].append(((each.t_ns, number, 0), event))
        for node in nodes.get(str(each.group), ()):
            elsewhere = each.node != node
            if ((each.pull or each.event == "rate") and not elsewhere) or (
                each.leases and (not elsewhere or each.event in ("own+", "own-", "drain"))
            ):
                part = Part(SITE, node, str(each.group))
                streams[part].append(((each.t_ns, number, 0), event))
    return streams


def _clients(events: list[tuple[Traits, Event]]) -> Streams:
    """Return the streams of consumers that repeated a pull."""
    answers: defaultdict[tuple[str, str], set[tuple[str, int]]] = defaultdict(set)
    suspects: set[Part] = set()
    for each, _ in events:
        client = Part(CLIENT, str(each.group), str(each.consumer))
        if each.event == "replay":
            suspects.add(client)
        elif each.event == "deliver" and each.request is not None:
            given = answers[client, each.request]  # type: ignore[index]
            given.add((each.node, each.decided_ns))  # type: ignore[arg-type]
            if len(given) > 1:
                suspects.add(client)
    slots: defaultdict[object, set[Part]] = defaultdict(set)
    for each, _ in events:
        client = Part(CLIENT, str(each.group), str(each.consumer))
        if each.event == "deliver" and client in suspects:
            slots[each.group, each.topic, each.queue, each.slot].add(client)
    leases: defaultdict[object, set[Part]] = defaultdict(set)
    streams: Streams = defaultdict(list)
    for number, (each, event) in enumerate(events):
        client = Part(CLIENT, str(each.group), str(each.consumer))
        lane = (each.group, each.topic, each.queue)
        affected: Iterable[Part] = ()
        if each.event == "deliver":
            affected = slots[*lane, each.slot]
            leases[lane, each.epoch, each.lease] |= affected
            leases[lane, each.offset] |= affected
        elif each.event == "replay":
            affected = (client,)
        elif each.event in ("ack_ok", "expire", "revoke", "unsent"):
            affected = leases[lane, each.epoch, each.lease]
        elif each.event == "finish":
            affected = leases[lane, each.offset]
        elif each.leases and each.event not in ("deliver", "finish"):
            affected = [part for part in suspects if part.of == each.group]
        for part in affected:
            streams[part].append(((each.t_ns, number, 0), event))
    return streams


def _rates(events: list[tuple[Traits, Event]]) -> Streams:
    """Return the streams of groups with a rate limit."""
    limited = {each.group for each, _ in events if each.event == "rate"}
    streams: Streams = defaultdict(list)
    for number, (each, event) in enumerate(events):
        affected = limited if each.event == "start" else {each.group} & limited
        for group in affected if each.event in (*RATED, "start") else ():
            streams[Part(RATE, str(group), "")].append(((each.t_ns, number, 0), event))
    return streams


def _lines(streams: Streams) -> Iterable[tuple[str, bytes]]:
    for part in sorted(streams):
        for _, event in sorted(streams[part], key=_first):
            yield part.text(), orjson.dumps(event)


def _first(entry: tuple[Key, Event]) -> Key:
    return entry[0]
