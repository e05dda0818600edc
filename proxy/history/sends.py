"""L1, L2 and D1: sent messages, their places in the log, and the loss of any of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from broker_core.remoting.key_hash import plain_key
from proxy.history.facts import SentTimes
from proxy.history.findings import Findings, Place, Violation
from proxy.history.lanes import Lane
from proxy.history.lives import UNKNOWN, Lives, broker_of
from proxy.history.parking import is_twin
from proxy.history.reader import Event
from proxy.history.verdicts import Stray, Whole

Lanes = Mapping[tuple[str, str, str], Lane]  # by group, topic, queue


@dataclass(slots=True, eq=False)
class _Message:
    topic: str
    key: str | None = None
    tag: str | None = None
    sent: bool = False
    acknowledged: bool = False
    outcome_unknown: bool = False
    queue: str | None = None  # where it is stored; None: not known yet
    offset: int = -1
    life: int = UNKNOWN  # of its topic
    began: int = UNKNOWN  # life of its topic when it was sent


@dataclass(slots=True, eq=False)
class _Log:
    """One queue of the broker. ``queue`` is one string object shared by all its messages."""

    queue: str
    messages: dict[int, str] = field(default_factory=dict)  # offset → message


class Sends:
    """Every message of the histories. The only check whose memory grows with their length."""

    def __init__(self, findings: Findings, lives: Lives) -> None:
        self._findings = findings
        self._lives = lives
        self._messages: dict[str, _Message] = {}
        self._further_places: dict[str, set[Place]] = {}  # of messages stored more than once
        self._logs: dict[tuple[str, str], _Log] = {}
        self._times: dict[tuple[str, str], SentTimes] = {}
        self._unanswered: dict[str, _Message] = {}
        self._names: dict[str, str] = {}  # one object for all messages of a topic or key
        self._strays: set[str] = set()
        self.lost = 0

    @property
    def sent(self) -> int:
        """Messages sent, with any outcome; without strays."""
        return sum(each.sent for name, each in self._messages.items() if name not in self._strays)

    @property
    def acknowledged(self) -> int:
        """Messages whose send was answered OK; without strays."""
        return sum(
            each.acknowledged for name, each in self._messages.items() if name not in self._strays
        )

    def stray(self, event: Event) -> None:
        """Note a message that is also in queues judged elsewhere; the findings are joined later."""
        self._strays.add(event["msg"])

    def send(self, event: Event) -> None:
        """Record the start of a send."""
        message = self._of(event)
        message.sent = True
        message.began = self._lives.now(message.topic)
        if not message.acknowledged:
            message.life = message.began
        self._unanswered[event["msg"]] = message
        if (key := event.get("key")) is not None:
            plain = plain_key(key) or None
            message.key = None if plain is None else self._names.setdefault(plain, plain)
        if (tag := event.get("tag")) is not None:
            message.tag = self._names.setdefault(tag, tag)

    def send_ok(self, event: Event) -> None:
        """Record an OK, perhaps with the place of the message."""
        message = self._of(event)
        present = self._is_present(message, event.get("queue"))
        if not message.acknowledged and not present:
            # Sent in one life and answered in the next: its own life is unknown.
            message.life = UNKNOWN if message.sent else self._lives.now(message.topic)
            present = not message.sent
        message.sent = message.acknowledged = True
        self._unanswered.pop(event["msg"], None)
        if not present and message.life != UNKNOWN:
            return
        if event.get("queue") is not None and event.get("offset") is not None:
            self._place(message, event)
            times = self.times(message.topic, event["queue"])
            times.sent(event["offset"], event["t_ns"])

    def times(self, topic: str, queue: str) -> SentTimes:
        """Return the times of the sends of one queue."""
        times = self._times.get((topic, queue))
        if times is None:
            times = self._times[topic, queue] = SentTimes()
        return times

    def send_info(self, event: Event) -> None:
        """Record a send with an unknown outcome: a retry may store the message twice."""
        self._of(event).outcome_unknown = True

    def send_fail(self, event: Event) -> None:
        """Record a refused send."""
        self._unanswered.pop(event["msg"], None)

    def deleted(self, topic: str, broker: str | None = None) -> None:
        """Forget the log of *topic*, at all brokers or at *broker* only."""
        for places in (self._logs, self._times):
            for place in list(places):
                if place[0] == topic and broker in (None, broker_of(place[1])):
                    del places[place]

    def restored(self, topic: str, broker: str | None, ends: Mapping[str, int]) -> None:
        """Continue the log of *topic* at *broker* with a copy: *ends* are the next offsets of its
        queues. Called once the former life is recorded as deleted.
        """
        kept: set[str] = set()
        for place, log in list(self._logs.items()):
            if place[0] == topic and broker in (None, broker_of(place[1])):
                end = ends.get(place[1], 0)
                left = {offset: name for offset, name in log.messages.items() if offset < end}
                self._logs[place] = _Log(log.queue, left)
                kept.update(left.values())
        for place, times in list(self._times.items()):
            if place[0] == topic and broker in (None, broker_of(place[1])):
                self._times[place] = times.until(ends.get(place[1], 0))
        now = self._lives.now(topic)
        for name, message in self._messages.items():
            if name in kept:
                message.life = now
            elif message.topic == topic and (
                message.outcome_unknown or not message.acknowledged or message.queue is None
            ):
                message.life = UNKNOWN  # perhaps it is in the copy

    def life_of(self, event: Event) -> int:
        """Return the life of the topic in which the message of *event* was sent, or ``UNKNOWN``.

        It is unknown for another copy of a message whose send was repeated: a proxy that stood
        still may have stored it in a later life.
        """
        message = None if event.get("msg") is None else self._messages.get(event["msg"])
        if message is None or message.life == UNKNOWN:
            return UNKNOWN
        place = (event["queue"], event["offset"])
        if message.outcome_unknown and place not in self._places(event["msg"], message):
            return UNKNOWN
        return self._lives.of(message.topic, event.get("queue"), message.life)

    def began_in(self, event: Event) -> int:
        """Return the life of the topic in which the send of the message of *event* began, or
        ``UNKNOWN``.
        """
        message = None if event.get("msg") is None else self._messages.get(event["msg"])
        if message is None or message.began == UNKNOWN:
            return UNKNOWN
        return self._lives.of(message.topic, event.get("queue"), message.began)

    def tag_of(self, event: Event) -> str | None:
        """Return the tag of the message of *event*; None if it has none or its send is unknown."""
        message = None if event.get("msg") is None else self._messages.get(event["msg"])
        return None if message is None else message.tag

    def at(self, topic: str, queue: str, offset: int) -> str | None:
        """Return the message stored at *offset*."""
        log = self._logs.get((topic, queue))
        return None if log is None else log.messages.get(offset)

    def disturbed(self) -> None:
        """Note a killed process or a cut link: unanswered sends may be stored, and their senders
        may retry them without an event.
        """
        for message in self._unanswered.values():
            message.outcome_unknown = True

    def saw(self, event: Event) -> str | None:
        """Record the place of a message that was delivered or handled; return the key
        of its send.
        """
        if event.get("msg") is None:
            return None
        message = self._of(event)
        if not is_twin(event["queue"]):  # a twin holds its copy
            self._place(message, event)
        return message.key

    def judge(self, lanes: Lanes, whole: Whole) -> list[Stray]:
        """Judge L1, L2, D1 and the remaining cases of C2 at the end; return the strays.

        Groups and topics of the *whole* history are added to those seen here.
        """
        groups = {topic: dict.fromkeys(names) for topic, names in whole.groups.items()}
        for group, topic, _ in lanes:
            groups.setdefault(topic, {})[group] = None
        topics_with_sends = {message.topic for message in self._messages.values() if message.sent}
        topics_with_sends |= whole.sent_topics
        self._note_missing(lanes, groups)
        for name, message in self._messages.items():
            if name in self._strays:
                continue
            places = list(self._places(name, message))
            self._findings.several_places(
                name, message.topic, places, allowed=message.outcome_unknown
            )
            if not message.sent and message.topic in topics_with_sends:
                self._findings.never_sent(name, message.topic)
            if self._is_owed(message):
                for group in groups.get(message.topic, ()):
                    self._judge_end(name, message, group, self._known(lanes, group, name, message))
        return [
            self._as_stray(name, self._messages[name], lanes)
            for name in sorted(self._strays)
            if name in self._messages
        ]

    def _is_owed(self, message: _Message) -> bool:
        """Return True if it was acknowledged in the current life of its topic; a deletion ends
        messages.
        """
        return message.acknowledged and self._is_present(message, message.queue)

    def _is_present(self, message: _Message, queue: str | None) -> bool:
        """Return True if *queue* is still in the life in which the message was sent."""
        if message.life == UNKNOWN:
            return False
        topic, lives = message.topic, self._lives
        return lives.of(topic, queue, message.life) == lives.of(topic, queue)

    def _note_missing(self, lanes: Lanes, groups: Mapping[str, Iterable[str]]) -> None:
        for name, message in self._messages.items():
            if self._is_owed(message):
                for group in groups.get(message.topic, ()):
                    for lane, offset in self._known(lanes, group, name, message):
                        if not _ended(lane, offset, message):
                            lane.missing(offset, message.key)

    def _known(
        self, lanes: Lanes, group: str, name: str, message: _Message
    ) -> list[tuple[Lane, int]]:
        """Return the places where *group* could read the message, among the queues judged here."""
        return [
            (lane, offset)
            for queue, offset in self._places(name, message)
            if (lane := lanes.get((group, message.topic, queue))) is not None
        ]

    def _as_stray(self, name: str, message: _Message, lanes: Lanes) -> Stray:
        done, if_lost = {}, {}
        for group in {group for group, _, _ in lanes}:
            if known := self._known(lanes, group, name, message):
                done[group] = any(_ended(lane, offset, message) for lane, offset in known)
                if not done[group]:
                    if_lost[group] = self._aside(message, known)
        return Stray(
            name=name,
            topic=message.topic,
            sent=message.sent,
            acknowledged=message.acknowledged,
            owed=self._is_owed(message),
            outcome_unknown=message.outcome_unknown,
            places=list(self._places(name, message)),
            done=done,
            if_lost=if_lost,
        )

    def _aside(self, message: _Message, known: list[tuple[Lane, int]]) -> dict[str, Violation]:
        """Return the violations in its queues if the message does not finish elsewhere either."""
        found = Findings()
        for lane, _ in known:
            lane.facts.report_to(found)
        _judge_unfinished(message, known)
        for lane, _ in known:
            lane.facts.report_to(self._findings)
        return found.by_id

    def _judge_end(
        self, name: str, message: _Message, group: str, known: list[tuple[Lane, int]]
    ) -> None:
        if any(_ended(lane, offset, message) for lane, offset in known):
            return
        self.lost += 1
        self._findings.lost(group, name, message.topic, list(self._places(name, message)))
        _judge_unfinished(message, known)

    def _of(self, event: Event) -> _Message:
        message = self._messages.get(event["msg"])
        if message is None:
            topic = event["topic"]
            message = _Message(self._names.setdefault(topic, topic))
            self._messages[event["msg"]] = message
        return message

    def _place(self, message: _Message, event: Event) -> None:
        queue, offset, name = event["queue"], event["offset"], event["msg"]
        if message.offset == offset and message.queue == queue:
            return
        if (queue, offset) in self._further_places.get(name, ()):
            return
        log = self._log_of(message.topic, queue)
        if message.life != UNKNOWN and not self._is_present(message, queue):
            log = _Log(log.queue)  # the log of its life is deleted
            if message.outcome_unknown:
                message.life = UNKNOWN  # another try may have stored this copy later
        if message.queue is None:
            message.queue, message.offset = log.queue, offset
        else:
            self._further_places.setdefault(name, set()).add((log.queue, offset))
        other = log.messages.setdefault(offset, name)
        if other != name:
            self._findings.add(
                "L1", f"{message.topic}/{queue}: offset {offset} shows {other} and {name}"
            )

    def _log_of(self, topic: str, queue: str) -> _Log:
        log = self._logs.get((topic, queue))
        if log is None:
            log = self._logs[topic, queue] = _Log(queue)
        return log

    def _places(self, name: str, message: _Message) -> Iterator[Place]:
        if message.queue is not None:
            yield message.queue, message.offset
        yield from sorted(self._further_places.get(name, ()))


def _ended(lane: Lane, offset: int, message: _Message) -> bool:
    """Return True if the message finished or the group does not want its tag."""
    return lane.done(offset) or not lane.facts.wants(message.tag)


def _judge_unfinished(message: _Message, known: list[tuple[Lane, int]]) -> None:
    for lane, offset in known:
        if offset < lane.facts.committed and not lane.facts.done(offset):
            lane.facts.violation("C2", f"offset {offset} was committed and never finished")
        lane.judge_undelivered(offset, message.key)
