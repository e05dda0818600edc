"""The history checker: does what the processes wrote down keep the promises?

It reads the events of all files in the order of time and judges them as they pass. The ids are
those of the invariants, described in ``docs/history.md``: O1 O2 O3 O3b of the order inside a key,
L1 L2 of the log, C1 C2 of commits, W1 W2 W3 of ownership and fencing, D1 of loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from proxy.history.deliveries import Deliveries
from proxy.history.facts import LaneFacts
from proxy.history.findings import Counts, Findings, Report
from proxy.history.handlings import Handlings
from proxy.history.ownership import Ownership
from proxy.history.reader import Event, HistoryError, HistoryReader
from proxy.history.sends import Sends


def verify(files: Iterable[Path]) -> Report:
    """Judge the histories in *files* together.

    Raises HistoryError if one is unreadable, or if there is no send or no delivery in all of them:
    an empty history proves nothing.
    """
    reader = HistoryReader(tuple(files))
    checker = HistoryChecker()
    for event in reader.events():
        checker.on_event(event)
    return checker.report(torn=reader.torn)


class HistoryChecker:
    """Takes events in the order of time; ``report`` ends the check."""

    def __init__(self) -> None:
        self._findings = Findings()
        self._sends = Sends(self._findings)
        self._lanes: dict[tuple[str, str, str], _Lane] = {}
        self._events = self._deliveries = self._handled = 0
        self._brokers: set[str] = set()  # nodes with a running broker
        self._commits_fenced = True  # Apache RocketMQ takes those of former owners, too
        self._actions: dict[str, Callable[[Event], None]] = {
            "send": self._sends.send,
            "send_ok": self._sends.send_ok,
            "send_info": self._sends.send_info,
            "own+": lambda event: self._lane(event).ownership.own(event),
            "own-": lambda event: self._lane(event).ownership.disown(event),
            "deliver": self._deliver,
            "handle_start": self._handle_start,
            "handle_end": lambda event: self._lane(event).handlings.end(event),
            "ack_ok": lambda event: self._lane(event).deliveries.ack_ok(event),
            "expire": lambda event: self._lane(event).deliveries.expire(event),
            "unsent": lambda event: self._lane(event).deliveries.expire(event),
            "finish": self._finish,
            "commit": self._commit,
            "start": self._start,
            "stop": lambda event: self._brokers.discard(event["node"]),
        }

    def on_event(self, event: Event) -> None:
        """Judge one event, pass over unknown ones. Raises HistoryError if a field is wrong."""
        self._events += 1
        action = self._actions.get(event["e"])
        if action is None:
            return
        try:
            action(event)
        except KeyError as error:
            raise HistoryError(f"{_where(event)} has no field {error}") from None
        except (TypeError, AttributeError) as error:
            raise HistoryError(f"{_where(event)} has a field of a wrong type: {error}") from None

    def report(self, *, torn: int = 0) -> Report:
        """The verdict. Raises HistoryError if there was no send or no delivery."""
        if not self._sends.sent:
            raise HistoryError("these histories hold no send: there is nothing to judge")
        if not self._deliveries + self._handled:
            raise HistoryError("these histories hold no delivery: there is nothing to judge")
        lanes = self._lanes.values()
        self._sends.judge({name: lane.facts for name, lane in self._lanes.items()})
        side = "handlings" if self._handled else "deliveries"
        counts = Counts(
            events=self._events,
            torn=torn,
            sends=self._sends.sent,
            acknowledged=self._sends.acknowledged,
            deliveries=self._deliveries,
            handled=self._handled,
            keys=sum(len(lane.deliveries.keys | lane.handlings.keys) for lane in lanes),
            duplicates=sum(getattr(lane, side).duplicates for lane in lanes),
            late=sum(lane.handlings.late for lane in lanes),
            lost=self._sends.lost,
        )
        return Report(counts, self._findings.by_id)

    def _lane(self, event: Event) -> _Lane:
        name = (event["group"], event["topic"], event["queue"])
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = _Lane(LaneFacts(*name, self._findings))
        return lane

    def _deliver(self, event: Event) -> None:
        self._deliveries += 1
        self._sends.saw(event)
        lane = self._lane(event)
        if not lane.ownership.fenced(event):
            lane.deliveries.deliver(event)

    def _finish(self, event: Event) -> None:
        lane = self._lane(event)
        if not lane.ownership.fenced(event):
            lane.deliveries.finish(event)

    def _commit(self, event: Event) -> None:
        lane = self._lane(event)
        if not self._commits_fenced and lane.ownership.took_late_commit(event):
            return
        if not lane.ownership.fenced(event):
            lane.ownership.commit(event)

    def _handle_start(self, event: Event) -> None:
        self._handled += 1
        self._sends.saw(event)
        self._lane(event).handlings.start(event)

    def _start(self, event: Event) -> None:
        parts = event.get("parts", ())
        if "rocketmq" in parts:
            self._commits_fenced = False
        elif "broker" not in parts:
            return
        if self._brokers:  # one that never stopped: it was killed, and this is it again
            for lane in self._lanes.values():
                lane.ownership.forget_commits()
        self._brokers = {event["node"]}


class _Lane:
    """The checks of one queue and group."""

    __slots__ = ("deliveries", "facts", "handlings", "ownership")

    def __init__(self, facts: LaneFacts) -> None:
        self.facts = facts
        self.deliveries = Deliveries(facts)
        self.ownership = Ownership(facts, self.deliveries)
        self.handlings = Handlings(facts)


def _where(event: Event) -> str:
    return f"event {event['e']} of node {event.get('node')} at t_ns {event['t_ns']}"
