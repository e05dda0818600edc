"""Figures of a run from its histories: repetitions, take-overs, the longest gap. Pure."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

Event = dict[str, Any]
#: Required in a run with parking.
PARKING = (
    "keys parked",
    "messages parked",
    "redrives",
    "redriven hand-outs",
    "keys redriven whole",
)
#: Required in every run.
CHANGES = ("rules changed", "order keys changed", "pauses", "messages skipped")
Lane = tuple[str, str, str]  # group, topic, queue


@dataclass(slots=True)
class Figures:
    """Collects the events of all histories in order of time."""

    repeats: Counter[str] = field(default_factory=Counter)
    """Redeliveries, by the end of the previous delivery."""
    duplicates: Counter[str] = field(default_factory=Counter)
    """Redeliveries of messages that had been handled successfully."""
    parking: Counter[str] = field(default_factory=Counter)
    """Results for messages that were exhausted, or parked by the operator."""
    changes: Counter[str] = field(default_factory=Counter)
    """Results of an operator's actions and of changed settings, per queue."""
    longest_gap_s: float = 0.0
    """Between two deliveries, over all queues."""
    take_overs: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """Seconds from the fault to the next owner's first delivery, by kind of fault."""
    _delivered_ns: int = 0
    _ended_by: dict[tuple[Lane, int], tuple[int, str]] = field(default_factory=dict)
    _handled: set[tuple[Lane, int]] = field(default_factory=set)
    _owner: dict[Lane, str] = field(default_factory=dict)  # node
    _given_up: dict[Lane, str] = field(default_factory=dict)  # reason of its last owner
    _changed: dict[Lane, str] = field(default_factory=dict)  # reason of the change of owner
    _broker_starts: int = 0
    _starts_seen: dict[Lane, int] = field(default_factory=dict)
    _under_attack: dict[Lane, tuple[str, int, str]] = field(default_factory=dict)

    def on_event(self, event: Event) -> None:
        """Add one event; irrelevant events are ignored."""
        match event["e"]:
            case "park" | "redrive" | "unpark" | "finish":
                self._park(event)
            case "rules" | "pause" | "order_key":
                self._change(event)
            case "deliver":
                self._deliver(event)
            case "ack_ok":
                self._ended_by[_place(event)] = (event["epoch"], str(event["outcome"]))
            case "expire":
                self._ended_by[_place(event)] = (event["epoch"], "lease ended")
            case "unsent":
                self._ended_by[_place(event)] = (event["epoch"], "answer not written")
            case "handle_end" if event["outcome"] == "ok":
                self._handled.add(_place(event))
            case "own+":
                self._own(event)
            case "own-":
                self._given_up[_lane(event)] = event["reason"]
            case "start" if {"broker", "rocketmq"} & set(event.get("parts", ())):
                self._broker_starts += 1
            case "nemesis" if event["phase"] == "begin":
                self._attack(event)

    def as_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON."""
        return {
            "parking": dict(self.parking),
            "changes": {what: self.changes[what] for what in CHANGES},
            "repeats": dict(self.repeats),
            "duplicates_by_cause": dict(self.duplicates),
            "longest_gap_s": round(self.longest_gap_s, 2),
            "take_overs": {
                kind: {
                    "queues": len(times),
                    "median_s": round(statistics.median(times), 2),
                    "longest_s": round(max(times), 2),
                }
                for kind, times in sorted(self.take_overs.items())
            },
        }

    def _park(self, event: Event) -> None:
        what = {
            "park": "keys parked",
            "unpark": "keys redriven whole",
            "redrive": "redrives" if event.get("state") == "started" else "",
            "finish": {"parked": "messages parked", "dlq": "dead letters"}.get(
                event.get("outcome", ""), ""
            ),
        }[event["e"]]
        if what:
            self.parking[what] += 1
        self.changes["messages skipped"] += event.get("outcome") == "skipped"
        if event["e"] == "redrive" and event["state"] == "stopped":
            self.parking["redrives stopped"] += 1

    def _change(self, event: Event) -> None:
        if event["e"] == "order_key":
            self.changes["order keys changed"] += event["through"]
        else:
            self.changes["rules changed" if event["e"] == "rules" else "pauses"] += 1

    def _own(self, event: Event) -> None:
        lane = _lane(event)
        self._owner[lane] = event["node"]
        reason, starts = self._given_up.pop(lane, None), self._broker_starts
        if reason == "handed over":
            self._changed[lane] = "hand-over"
        elif self._starts_seen.get(lane, starts) != starts:
            self._changed[lane] = "restart of the broker"
        elif reason is None:
            self._changed[lane] = "crash or standstill of the owner"
        else:
            self._changed[lane] = "lock lost"
        self._starts_seen[lane] = starts

    def _attack(self, event: Event) -> None:
        node = event.get("node_of_target")
        for lane, owner in self._owner.items():
            if owner == node:
                self._under_attack[lane] = (event["what"], event["t_ns"], owner)

    def _deliver(self, event: Event) -> None:
        lane, place, now_ns = _lane(event), _place(event), event["t_ns"]
        if self._delivered_ns:
            self.longest_gap_s = max(self.longest_gap_s, (now_ns - self._delivered_ns) / 1e9)
        self._delivered_ns = now_ns
        self.parking["redriven hand-outs"] += event["queue"].endswith("p")
        if lane in self._under_attack:
            kind, began_ns, node = self._under_attack[lane]
            if event["node"] != node:
                self.take_overs[kind].append((now_ns - began_ns) / 1e9)
            del self._under_attack[lane]
        if place in self._ended_by:
            epoch, cause = self._ended_by[place]
            if epoch != event["epoch"]:
                cause = self._changed.get(lane, "change of owner")
            self.repeats[cause] += 1
            if place in self._handled:
                self.duplicates[cause] += 1
        self._ended_by[place] = (event["epoch"], "nothing known")


def figures_of(events: Iterable[Event]) -> Figures:
    """Return the figures of a whole run; *events* in order of time."""
    figures = Figures()
    for event in events:
        figures.on_event(event)
    return figures


def _lane(event: Event) -> Lane:
    return event["group"], event["topic"], event["queue"]


def _place(event: Event) -> tuple[Lane, int]:
    return _lane(event), event["offset"]
