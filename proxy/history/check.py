"""The history checker: judges whether the recorded events keep the guarantees.

Reads the events of all files in the order of time and judges them as they pass. The ids are those
of the invariants in ``docs/history.md``: O1 to O5 order within a key, L1 L2 the log, W1 W2 W3
ownership and fencing, C1 C2 C3 commits, D1 to D5 loss and repetition, R1 to R5 retries, leases,
parking, pauses and audit, N1 to N7 isolation, progress and demand, Q1 rate limits, X1 lost answers,
G1 topics deleted and created again, K1 state that outlives retention, I1 message contents, A1 acks
without a handler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from proxy.history.answers import Answers
from proxy.history.contents import Contents
from proxy.history.facts import LaneFacts
from proxy.history.faults import Faults
from proxy.history.findings import Findings, Report, Violation
from proxy.history.lanes import Lane
from proxy.history.limits import Limits, ns
from proxy.history.lives import UNKNOWN, Life, Lives, broker_of
from proxy.history.parking import is_twin, origin_of, twin_of
from proxy.history.pauses import Audits
from proxy.history.rates import Rates
from proxy.history.reader import Event, HistoryError, HistoryReader
from proxy.history.sends import Sends
from proxy.history.sites import Sites
from proxy.history.verdicts import Verdict, Whole, joined

_ANY_OFFSET = 1 << 62


def verify(files: Iterable[Path], *, limits: Limits | None = None) -> Report:
    """Judge the histories in *files* together; *limits* are those of the timed invariants.

    Raises HistoryError if a file is unreadable, or if the files contain no send or no delivery: an
    empty history proves nothing.
    """
    reader = HistoryReader(tuple(files))
    checker = HistoryChecker(limits=limits)
    for event in reader.events():
        checker.on_event(event)
    return checker.report(torn=reader.torn)


class HistoryChecker:
    """Takes events in the order of time; ``report`` ends the check."""

    def __init__(
        self,
        *,
        limits: Limits | None = None,
        sites: Sites | None = None,
        answers: Answers | None = None,
    ) -> None:
        """*sites* and *answers* cover all queues of a group; pass them when only some of the queues
        are judged.
        """
        self._limits = limits or Limits()
        self._findings = Findings()
        self._lives = Lives()
        self._sends = Sends(self._findings, self._lives)
        self._contents = Contents(self._findings)
        self._sites = Sites() if sites is None else sites
        self._answers = Answers() if answers is None else answers
        self._rates = Rates(self._findings)
        self._audits = Audits()
        self._faults = Faults(ns(self._limits.settle_s))
        self._lanes: dict[tuple[str, str, str], Lane] = {}
        self._past: list[Lane] = []  # of earlier lives of their topics
        self._events = self._deliveries = self._handled = self._broker_starts = 0
        self._brokers: set[str] = set()  # nodes with a running broker
        # False with Apache RocketMQ, which accepts commits of former owners
        self._commits_fenced = True
        self._actions = self._judges()

    def _judges(self) -> dict[str, Callable[[Event], None]]:
        """Return the handler of each event, by event name."""
        leases = ("ack_ok", "expire", "revoke", "unsent", "extend")
        return {
            **dict.fromkeys(leases, lambda event: self._lane(event).lease(event)),
            "send": self._send,
            "topic": self._topic,
            "send_ok": self._sends.send_ok,
            "send_info": self._sends.send_info,
            "send_fail": self._sends.send_fail,
            "own+": self._own,
            **dict.fromkeys(("rules", "order_key"), lambda event: self._lane(event).rules(event)),
            "own-": self._disown,
            "rate": self._rate,
            "drain": lambda event: self._lane(event).ownership.drain(event),
            "record": lambda event: self._lane(event).record(event),
            "reset": lambda event: self._lane(event).reset(event),
            "window": lambda event: self._lane(event).window(event),
            "deliver": self._deliver,
            "act_fail": lambda event: self._lane(event).action_failed(event),
            "replay": lambda event: self._lane(event).replay(event),
            "handle_start": self._handle_start,
            "handle_end": self._handle_end,
            "finish": self._finish,
            "commit": self._commit,
            "deleted": lambda event: self._lane(event).deleted(event),
            "park": lambda event: self._lane(event).parking.park(event),
            "unpark": lambda event: self._lane(event).parking.unpark(event),
            "redrive": self._redrive,
            "dead_letter_redrive": self._redrive_dead_letters,
            "audit": self._audits.seen,
            "pause": lambda event: self._lane(event).pauses.pause(event),
            "resume": lambda event: self._lane(event).pauses.resume(event),
            "retry": lambda event: self._lane(event).retry(event),
            "consumes": self._consumes,
            "pull_wait": lambda event: self._pull(event, 1),
            "pull_end": lambda event: self._pull(event, -1),
            "nemesis": self._nemesis,
            "start": self._start,
            "stop": lambda event: self._brokers.discard(event["node"]),
        }

    def on_event(self, event: Event) -> None:
        """Judge one event; ignore unknown ones. Raises HistoryError if a field is invalid."""
        self._events += 1
        try:
            self._sites.seen(event["node"], event["t_ns"])
            action = self._actions.get(event["e"])
            if action is not None:
                action(event)
        except KeyError as error:
            raise HistoryError(f"{_where(event)} has no field {error}") from None
        except (TypeError, ValueError, AttributeError) as error:
            raise HistoryError(f"{_where(event)} has a field of a wrong type: {error}") from None

    @property
    def violations(self) -> Mapping[str, Violation]:
        """Violations found so far, by id; without those that are judged at the end."""
        return self._findings.by_id

    def report(self, *, torn: int = 0) -> Report:
        """Return the verdict. Raises HistoryError if there was no send or no delivery."""
        return joined([self.verdict()], Whole(events=self._events, torn=torn))

    def verdict(self, whole: Whole | None = None) -> Verdict:
        """Return the findings at the end of the events; *whole*: the history that these events are
        a part of.
        """
        self._rates.judge_end()
        lanes = [*self._past, *self._lanes.values()]
        for lane in lanes:
            lane.judge_end()
        strays = self._sends.judge(self._lanes, whole or Whole())
        return Verdict(
            sends=self._sends.sent,
            acknowledged=self._sends.acknowledged,
            deliveries=self._deliveries,
            handled=self._handled,
            keys=sum(len(lane.deliveries.keys | lane.handlings.keys) for lane in lanes),
            repeated_deliveries=sum(lane.deliveries.duplicates for lane in lanes),
            repeated_handlings=sum(lane.handlings.duplicates for lane in lanes),
            late=sum(lane.handlings.late for lane in lanes),
            lost=self._sends.lost,
            void=sum(lane.ownership.void for lane in lanes),
            changed=sum(lane.deliveries.changed for lane in lanes),
            violations=self._findings.by_id,
            strays=strays,
        )

    def _lane(self, event: Event) -> Lane:
        return self._lane_in_life(event, self._present(event))

    def _lane_in_life(self, event: Event, present: Lane) -> Lane:
        """Return *present*, or the lane of the same queue in the previous life."""
        former = present.former
        return former if former is not None and present.life.is_of_former(event) else present

    def _present(self, event: Event) -> Lane:
        return self._lane_of(event["group"], event["topic"], event["queue"])

    def _lane_of(self, group: str, topic: str, queue: str) -> Lane:
        lane = self._lanes.get((group, topic, queue))
        if lane is None:
            lane = self._new_lane(group, topic, queue)
        return lane

    def _new_lane(
        self,
        group: str,
        topic: str,
        queue: str,
        *,
        former: Lane | None = None,
        kept: int = 0,
        t_ns: int = 0,
    ) -> Lane:
        origin = self._lane_of(group, topic, origin_of(queue)) if is_twin(queue) else None
        facts = LaneFacts(
            group,
            topic,
            queue,
            self._findings,
            self._limits,
            self._faults,
            self._sends.times(topic, queue),
            reads_all=former is not None,
            kept=kept,
        )
        lane = Lane(
            facts,
            self._sites,
            self._answers,
            self._audits,
            origin=origin,
            former=former,
            number=self._lives.of(topic, queue),
            began_ns=t_ns,
        )
        self._lanes[group, topic, queue] = lane
        return lane

    def _topic(self, event: Event) -> None:
        topic, what, t_ns = event["topic"], event["what"], event["t_ns"]
        broker = event.get("broker")
        lanes = [
            (name, lane)
            for name, lane in self._lanes.items()
            if name[1] == topic and broker in (None, broker_of(name[2]))
        ]
        if what == "deleted":
            self._lives.deleted(topic, t_ns, broker)
            self._sends.deleted(topic, broker)
            for _, lane in lanes:
                lane.facts.end_life()
        elif what == "created":
            for name, lane in lanes:
                if lane.facts.deleted:
                    self._begin_life(*name, t_ns)
        elif what == "restored":
            self._lives.deleted(topic, t_ns, broker)
            self._sends.restored(topic, broker, event["ends"])
            for _, lane in lanes:
                lane.facts.end_life()
            for (group, _, queue), lane in lanes:
                if lane.facts.deleted:
                    kept = event["ends"].get(origin_of(queue) if is_twin(queue) else queue, 0)
                    self._begin_life(group, topic, queue, t_ns, kept=kept)

    def _begin_life(
        self, group: str, topic: str, queue: str, t_ns: int, *, kept: int | None = None
    ) -> None:
        """Begin a life of the topic in a queue and its twin. *kept*: its messages below this offset
        are those of the former life; None: it begins empty.
        """
        queue = origin_of(queue) if is_twin(queue) else queue
        # Where the copies in a restored twin end is unknown.
        ends = {queue: kept or 0, twin_of(queue): 0 if kept is None else _ANY_OFFSET}
        for each, end in ends.items():
            lane = self._lanes.get((group, topic, each))
            if lane is not None and lane.facts.deleted:
                self._past.append(lane)
                self._new_lane(group, topic, each, former=lane, kept=end, t_ns=t_ns)

    def _own(self, event: Event) -> None:
        self._rates.on_event(event)
        lane, topic, asked_ns = self._present(event), event["topic"], _decided_ns(event)
        if lane.facts.deleted and asked_ns > self._lives.deleted_ns(topic, event["queue"]):
            self._begin_life(event["group"], topic, event["queue"], event["t_ns"])
            lane = self._present(event)
        former = lane.former
        if former is not None:
            if asked_ns <= self._lives.deleted_ns(topic, event["queue"], lane.life.number):
                lane = former  # granted in the previous life, recorded late
            else:
                former.ownership.superseded(event["t_ns"])
        lane.own(event, fenced=self._commits_fenced)

    def _send(self, event: Event) -> None:
        self._sends.send(event)
        self._contents.sent(event)

    def _disown(self, event: Event) -> None:
        self._rates.on_event(event)
        self._lane(event).ownership.disown(event)

    def _rate(self, event: Event) -> None:
        self._rates.on_event(event)
        site, limited = self._sites.of(event["node"], event["group"]), event["max_rate"] is not None
        site.limit(event["topic"], limited=limited, t_ns=event["t_ns"])

    def _deliver(self, event: Event) -> None:
        self._deliveries += 1
        self._rates.on_event(event)
        present = self._present(event)
        lane, life = self._lane_in_life(event, present), present.life
        if lane is present or _decided_ns(event) > life.began_ns:
            unheard = lane is not present and _decided_ns(event) <= _heard_ns(life, lane)
            if UNKNOWN < self._sends.life_of(event) < life.number:
                if unheard:
                    lane.deliver(event, self._sends.saw(event))
                else:
                    life.report_delivery(event)
                return
            if unheard and self._is_left_over(event, life):
                pass
            elif lane is present or not present.facts.kept:
                if lane is not present:  # a period of the previous life continues in this one
                    life.granted(event["epoch"])
                lane = present
        key = self._sends.saw(event)
        tag = self._sends.tag_of(event)
        if tag and lane.facts.never_wanted(tag):
            lane.facts.violation("D2", f"offset {event['offset']} was delivered with tag {tag}")
        lane.deliver(event, key, tag)

    def _is_left_over(self, event: Event, life: Life) -> bool:
        """Return True for a message whose send began before *life* and has had no answer: it may be
        stored in either life, but here only beside others.
        """
        began_before = UNKNOWN < self._sends.began_in(event) < life.number
        return began_before and event["offset"] > life.highest + 1

    def _commit(self, event: Event) -> None:
        present = self._present(event)
        lane, life = self._lane_in_life(event, present), present.life
        # The topic of parked copies is not the one that began a life, so no broker refuses this.
        since_ns = _heard_ns(life, lane) if is_twin(event["queue"]) else life.began_ns
        if lane is not present and _decided_ns(event) > since_ns:
            life.report(event, "committed")
            return
        lane.commit(event, fenced=self._commits_fenced)

    def _finish(self, event: Event) -> None:
        present = self._present(event)
        lane, life = self._lane_in_life(event, present), present.life
        foreign = lane is not present and _decided_ns(event) > _heard_ns(life, lane)
        if foreign and lane.deliveries.unfinished(event["offset"]) is None:
            life.report(event, "finished")  # it was not in flight
            return
        lane.finish(event)

    def _handling(self, event: Event) -> Lane | None:
        """Return the lane of a handler event; None if the life of its message is unknown."""
        lane = self._present(event)
        former, offset = lane.former, event["offset"]
        # Delivered in the former life only. The life of the message does not tell: it may be stored
        # twice, or in a copy of that life.
        gone = former is not None and former.life.has(offset) and not lane.life.has(offset)
        is_former = gone or UNKNOWN < self._sends.life_of(event) < lane.life.number
        return former if is_former else lane

    def _handle_start(self, event: Event) -> None:
        self._handled += 1
        self._sends.saw(event)
        queue, offset = event["queue"], event["offset"]
        if is_twin(queue):
            queue, offset = origin_of(queue), event.get("origin_offset")
        self._contents.handled(event, self._sends.at(event["topic"], queue, offset))
        if (lane := self._handling(event)) is not None:
            lane.handle_start(event, self._sends.tag_of(event))

    def _handle_end(self, event: Event) -> None:
        if (lane := self._handling(event)) is not None:
            lane.handle_end(event)

    def _redrive(self, event: Event) -> None:
        self._lane(event).parking.redrive(event)
        lane = self._lane({**event, "queue": twin_of(event["queue"])})
        started = event.get("state", "started") == "started"
        if started:
            self._lane(event).pauses.judge_action(event, f"a redrive of {event.get('order')!r}")
        lane.deliveries.redriven(event.get("order"), started=started, at_ns=event["t_ns"])

    def _redrive_dead_letters(self, event: Event) -> None:
        if event["state"] == "started" and (problem := self._audits.problem(event.get("audit"))):
            self._findings.add("R5", f"a redrive of {event['topic']} {problem}")

    def _consumes(self, event: Event) -> None:
        node, group, topics, t_ns = event["node"], event["group"], event["topics"], event["t_ns"]
        self._sites.of(node, group).consumes(topics, t_ns)
        self._sites.demands.consumes(node, group, topics, t_ns)

    def _pull(self, event: Event, change: int) -> None:
        site = self._sites.of(event["node"], event["group"])
        site.pulls(event["topics"], change, event["t_ns"])
        self._sites.demands.pull(event, change)

    def _nemesis(self, event: Event) -> None:
        what, target = event["what"], str(event.get("target"))
        self._sends.disturbed()
        if event["phase"] == "begin":
            self._faults.begin(what, target)
            if what == "records":
                self._damage_records(event["group"], event["topic"], event["queue"])
        else:
            self._faults.end(what, target, t_ns=event["t_ns"])

    def _damage_records(self, group: str, topic: str, queue: str) -> None:
        for each in (queue, twin_of(queue)):
            if (lane := self._lanes.get((group, topic, each))) is not None:
                lane.facts.lose_records()

    def _start(self, event: Event) -> None:
        self._sends.disturbed()
        self._rates.on_event(event)
        self._sites.started(event["node"], event["t_ns"])
        parts = event.get("parts", ())
        if "rocketmq" in parts:
            self._commits_fenced = False
        elif "broker" not in parts:
            return
        self._broker_starts += 1
        if self._broker_starts > 1:
            self._faults.disturbed(event["t_ns"])
        if self._brokers:  # the broker was killed and has restarted
            for lane in self._lanes.values():
                lane.ownership.forget_commits()
        self._brokers = {event["node"]}


def _decided_ns(event: Event) -> int:
    """Return the time of the decision or request."""
    for name in ("at_ns", "asked_ns"):
        if (decided_ns := event.get(name)) is not None:
            return int(decided_ns)
    return int(event["t_ns"])


def _heard_ns(life: Life, former: Lane) -> int:
    """Return the time until which an owner of the previous life may not have noticed *life*: the
    trust in its lock.
    """
    return life.began_ns + former.take_overs.trust_ms * 1_000_000


def _where(event: Event) -> str:
    return f"event {event['e']} of node {event.get('node')} at t_ns {event['t_ns']}"
