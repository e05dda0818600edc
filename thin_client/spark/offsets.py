"""Positions in queues, as a bulk reader keeps them in Spark's checkpoint. Pure.

A stream's offset is a dictionary, topic → qid → the next offset to read. It is always made in
sorted order: Spark compares offsets as text, and takes two that differ for news. Where brokers tell
lives of topics apart, they stand below a topic without a name: "topic/qid" → the life that the
queue's offset is of.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from thin_client.spark.option_values import OptionError, json_object, names

#: topic → qid → the next offset to read; in options a timestamp in milliseconds may stand for it.
Offsets = dict[str, dict[str, int]]
Queue = tuple[str, str]

#: The topic below which a stream's offset has lives.
LIVES = ""
#: In the JSON of options, as in Spark's Kafka source.
EARLIEST = -2
LATEST = -1


@dataclass(frozen=True, slots=True, order=True)
class QueueState:
    """What the proxy tells of one queue: the offsets of its oldest message and of its next one.

    *committed*: the group's, None if it has none. *at*: of the first message stored at or after the
    time that was asked for, *end* if there is none; None if no time was asked for. *life*: the
    incarnation of the topic, None if its broker does not tell.
    """

    topic: str
    qid: str
    begin: int
    end: int
    committed: int | None = None
    at: int | None = None
    life: int | None = None

    @property
    def queue(self) -> Queue:
        """The queue's name."""
        return self.topic, self.qid


@dataclass(frozen=True, slots=True, order=True)
class Slice:
    """What one task reads: the offsets from *start* up to, not including, *end* of one queue in the
    *life* of its topic that they are of; None if its broker does not tell.
    """

    topic: str
    qid: str
    start: int
    end: int
    life: int | None = None

    @property
    def queue(self) -> Queue:
        """The queue's name."""
        return self.topic, self.qid

    @property
    def size(self) -> int:
        """How many offsets it spans."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic}/{self.qid} [{self.start}, {self.end})"


@dataclass(frozen=True, slots=True)
class Position:
    """Where queues are to begin or to end: one number for all, or one for each queue.

    The numbers are offsets, EARLIEST and LATEST among them, or with *by_time* milliseconds.
    *option* is where a person wrote it.
    """

    value: int | Mapping[str, Mapping[str, int]]
    by_time: bool = False
    option: str = ""

    def times(self) -> list[int]:
        """The times for which the offsets have to be asked for."""
        if not self.by_time:
            return []
        if isinstance(self.value, int):
            return [self.value]
        return sorted({each for queues in self.value.values() for each in queues.values()})

    def at(self, queue: Queue) -> int:
        """The number for *queue*. Raises OptionError if the option does not name it."""
        if isinstance(self.value, int):
            return self.value
        topic, qid = queue
        try:
            return self.value[topic][qid]
        except KeyError:
            raise OptionError(
                f"{self.option} does not name the queue {qid!r} of the topic {topic!r}: "
                "it has to name all that are read"
                + ("" if self.by_time else " (-2 for earliest, -1 for latest)")
            ) from None

    def moves(self) -> bool:
        """Whether it may be elsewhere when it is asked for again: retention moves a queue's
        beginning, and what a time stands for; new messages move its end.
        """
        if self.by_time or isinstance(self.value, int):
            return True
        return any(each < 0 for queues in self.value.values() for each in queues.values())

    def check_names(self, queues: Iterable[Queue]) -> None:
        """Raises OptionError if it names what is not among *queues*."""
        if isinstance(self.value, int):
            return
        there = sorted(queues)
        for topic, qids in sorted(self.value.items()):
            if qids and topic not in {each for each, _ in there}:
                raise OptionError(
                    f"{self.option} names the topic {topic!r}, which is not read: "
                    f"read are {names({each for each, _ in there})}"
                )
            for qid in sorted(qids):
                if (topic, qid) not in there:
                    has = names(each for of, each in there if of == topic)
                    raise OptionError(
                        f"{self.option} names the queue {qid!r} of the topic {topic!r}, "
                        f"which is not read: read are {has}"
                    )


AtTime = Callable[[int], Iterable[QueueState]]
Strategy = Literal["error", "latest"]


def sorted_offsets(entries: Iterable[tuple[Queue, int]]) -> Offsets:
    """The dictionary of *entries*, in the one order that it may have."""
    offsets: Offsets = {}
    for (topic, qid), offset in sorted(entries):
        offsets.setdefault(topic, {})[qid] = offset
    return offsets


def flat(offsets: Mapping[str, Mapping[str, int]]) -> dict[Queue, int]:
    """The same as one dictionary, by queue."""
    return {
        (topic, qid): offset
        for topic, qids in offsets.items()
        if topic != LIVES
        for qid, offset in qids.items()
    }


def lives_of(offsets: Mapping[str, Mapping[str, int]]) -> dict[Queue, int]:
    """The lives that the positions in a stream's offset are of, as far as it says."""
    lives: dict[Queue, int] = {}
    for name, life in offsets.get(LIVES, {}).items():
        topic, _, qid = name.partition("/")
        lives[topic, qid] = life
    return lives


def with_lives(offsets: Offsets, lives: Mapping[Queue, int | None]) -> Offsets:
    """*offsets* of a stream with the *lives* that their positions are of, where they are known."""
    known = {
        f"{topic}/{qid}": life
        for (topic, qid), life in sorted(lives.items())
        if life is not None and qid in offsets.get(topic, {})
    }
    return {LIVES: known, **offsets} if known else offsets


def by_queue(states: Iterable[QueueState]) -> dict[Queue, QueueState]:
    """The states by the names of their queues."""
    return {state.queue: state for state in states}


def ends(states: Iterable[QueueState]) -> Offsets:
    """Where the queues end now."""
    return sorted_offsets((state.queue, state.end) for state in states)


def to_json(offsets: Mapping[str, Mapping[str, int]]) -> str:
    """The text form; equal offsets have equal texts."""
    return json.dumps(sorted_offsets(flat(offsets).items()), separators=(",", ":"))


def from_json(text: str, *, option: str, form: str, least: int) -> Offsets:
    """Read topic → qid → number. Raises OptionError that shows *form* where it is none."""
    found = json_object(option, text, form=form)
    for topic, queues in found.items():
        if not isinstance(queues, dict) or not queues:
            raise OptionError(
                f"{option} has {json.dumps(queues)} for the topic {topic!r}: "
                f"expected JSON as in {form}"
            )
        for qid, number in queues.items():
            if type(number) is not int or not least <= number < 2**63:
                raise OptionError(
                    f"{option} has {json.dumps(number)} for the queue {qid!r} of {topic!r}: "
                    f"expected a whole number of at least {least}, as in {form}"
                )
    return sorted_offsets(flat(found).items())


def starting(
    position: Position,
    states: Sequence[QueueState],
    *,
    at_time: AtTime,
    strategy: Strategy = "error",
) -> Offsets:
    """Where a new query begins in each queue of *states*.

    *at_time* gives the states again, with ``at`` for a time in milliseconds. What lies before the
    oldest message stays so: planning judges it. Raises OptionError for a queue that is not
    there or not named, for an offset behind the end, and, unless *strategy* is ``latest``, for a
    time after the last message.
    """
    return _resolve(position, states, at_time=at_time, end=False, strategy=strategy)


def ending(position: Position, states: Sequence[QueueState], *, at_time: AtTime) -> Offsets:
    """Where a batch ends in each queue of *states*; a time after the last message is the end.

    Raises OptionError as ``starting`` does.
    """
    return _resolve(position, states, at_time=at_time, end=True, strategy="latest")


def _resolve(
    position: Position,
    states: Sequence[QueueState],
    *,
    at_time: AtTime,
    end: bool,
    strategy: Strategy,
) -> Offsets:
    position.check_names(state.queue for state in states)
    found = {time: by_queue(at_time(time)) for time in position.times()}
    entries = []
    for state in states:
        number = position.at(state.queue)
        if position.by_time:
            entries.append(
                (state.queue, _at_time(state, found[number], position, number, strategy))
            )
        elif number == EARLIEST:
            entries.append((state.queue, state.begin))
        elif number == LATEST:
            entries.append((state.queue, state.end))
        elif number > state.end:
            raise OptionError(
                f"{position.option} has {number} for the queue {state.qid!r} of {state.topic!r}, "
                f"which ends at {state.end}: expected at most that, or -1 for latest"
            )
        else:
            entries.append((state.queue, number))
    return sorted_offsets(entries)


def _at_time(
    state: QueueState,
    found: Mapping[Queue, QueueState],
    position: Position,
    time: int,
    strategy: Strategy,
) -> int:
    then = found.get(state.queue)
    # A message that came between the two questions is no answer to the first one.
    at = state.end if then is None or then.at is None else min(then.at, state.end)
    if at == state.end and strategy == "error":
        raise OptionError(
            f"{position.option} is {time} for the queue {state.qid!r} of {state.topic!r}, where "
            "nothing was stored since: expected an earlier time in milliseconds, or "
            "startingOffsetsByTimestampStrategy latest"
        )
    return at
