"""Queue positions of a bulk reader, as stored in Spark's checkpoint. Pure.

A stream's offset is a dictionary, topic → qid → next offset to read. Its entries are always sorted:
Spark compares offsets as text and starts a batch when they differ. Under an empty topic name it
stores the version of this format and, if brokers report incarnations (*lives*) of topics,
"topic/qid" → life to which the queue's offset belongs::

    {"": {"version": 2, "orders/broker-a_0": 1767225600000}, "orders": {"broker-a_0": 23}}

Spark stores only the ends of batches. A batch consists of the offsets between the end of the
previous batch and its own end, and of nothing else (``batch_of``): no option has a say in it. So a
queue begins with an entry in the end of a batch that reads none of its messages. The first batch of
a query begins all its queues, and its start is the empty dictionary.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from thin_client.spark.option_values import OptionError, json_object, names
from thin_client.spark.queue_numbers import check_one_broker, is_number, number_of

#: topic → qid → next offset to read; in options possibly a timestamp in milliseconds instead.
Offsets = dict[str, dict[str, int]]
Queue = tuple[str, str]

#: The topic name under which a stream's offset stores its version and lives.
ABOUT = ""
#: Offsets of earlier versions have no version. Their batches also read the queues that they began.
VERSION = 2
_VERSION = "version"
#: What happened to a topic that is in another life, the rest of a sentence.
ANOTHER_LIFE = "deleted and created again since, or restored from an older copy of its broker's log"
#: Values in the JSON of options, as in Spark's Kafka source.
EARLIEST = -2
LATEST = -1


@dataclass(frozen=True, slots=True, order=True)
class QueueState:
    """The proxy's report on one queue: the offset of its oldest message, and its end offset.

    Args:
        at: the offset of the first message stored at or after the requested time, *end* if there
            is none; None if no time was requested.
        life: the incarnation of the topic; None if its broker does not report it.
    """

    topic: str
    qid: str
    begin: int
    end: int
    at: int | None = None
    life: int | None = None

    @property
    def queue(self) -> Queue:
        """The queue's name."""
        return self.topic, self.qid


@dataclass(frozen=True, slots=True, order=True)
class Slice:
    """The offsets [*start*, *end*) of one queue, in one *life* of its topic; None if its broker
    does not report lives.
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
        """Number of offsets."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic}/{self.qid} [{self.start}, {self.end})"


@dataclass(frozen=True, slots=True)
class Task:
    """Input of one task: slices, read one after another, from the first of *servers* that
    answers.
    """

    parts: tuple[Slice, ...]
    servers: tuple[str, ...]

    @property
    def size(self) -> int:
        """Number of offsets."""
        return sum(part.size for part in self.parts)

    def __str__(self) -> str:
        return ", ".join(map(str, self.parts))


@dataclass(frozen=True, slots=True)
class Position:
    """Start or end of a query: one number for all queues, or one for each queue.

    The numbers are offsets (EARLIEST and LATEST included), or with *by_time* milliseconds since
    1970. *option* is the name of the option that set it.
    """

    value: int | Mapping[str, Mapping[str, int]]
    by_time: bool = False
    option: str = ""

    def times(self) -> list[int]:
        """Times whose offsets have to be looked up."""
        if not self.by_time:
            return []
        if isinstance(self.value, int):
            return [self.value]
        return sorted({each for queues in self.value.values() for each in queues.values()})

    def at(self, queue: Queue) -> int:
        """Return the number for *queue*. Raises OptionError if the option does not name it."""
        if isinstance(self.value, int):
            return self.value
        topic, qid = queue
        given = self.value.get(topic, {})
        if (found := given.get(qid, given.get(number_of(qid)))) is None:
            raise OptionError(
                f"{self.option} does not name the queue {qid!r} of the topic {topic!r}: "
                "add every queue that the query reads"
                + ("" if self.by_time else " (-2 for earliest, -1 for latest)")
            )
        return found

    def check_names(self, queues: Iterable[Queue]) -> None:
        """Raise OptionError if it names a topic or queue that is not among *queues*."""
        if isinstance(self.value, int):
            return
        there = by_topic(sorted(queues))
        for topic, qids in sorted(self.value.items()):
            has = there.get(topic, [])
            if any(map(is_number, qids)):
                instead = "name the queues, as in broker-a_0"
                check_one_broker(self.option, topic, has, instead=instead)
            may = {name for each in has for name in (each, number_of(each))}
            if qids and not has:
                raise OptionError(
                    f"{self.option} names the topic {topic!r}, which the query does not read: "
                    f"it reads {names(there)}"
                )
            for qid in sorted(qids):
                if qid not in may:
                    raise OptionError(
                        f"{self.option} names the queue {qid!r} of the topic {topic!r}, "
                        f"which the query does not read: it reads {names(has)}"
                    )


AtTime = Callable[[int], Iterable[QueueState]]
Strategy = Literal["error", "latest"]


def sorted_offsets(entries: Iterable[tuple[Queue, int]]) -> Offsets:
    """Return the dictionary of *entries* in canonical order."""
    offsets: Offsets = {}
    for (topic, qid), offset in sorted(entries):
        offsets.setdefault(topic, {})[qid] = offset
    return offsets


def flat(offsets: Mapping[str, Mapping[str, int]]) -> dict[Queue, int]:
    """Return *offsets* as one dictionary by queue, without version and lives."""
    return {
        (topic, qid): offset
        for topic, qids in offsets.items()
        if topic != ABOUT
        for qid, offset in qids.items()
    }


def lives_of(offsets: Mapping[str, Mapping[str, int]]) -> dict[Queue, int]:
    """Return the known lives of the queues in a stream's offset."""
    lives: dict[Queue, int] = {}
    for name, life in offsets.get(ABOUT, {}).items():
        topic, slash, qid = name.partition("/")
        if slash:
            lives[topic, qid] = life
    return lives


def stream_offset(
    positions: Mapping[Queue, int], lives: Mapping[Queue, int | None] | None = None
) -> Offsets:
    """Return a stream's offset with *positions* and the known ones of their *lives*."""
    known = {
        f"{topic}/{qid}": life
        for (topic, qid), life in sorted((lives or {}).items())
        if life is not None and (topic, qid) in positions
    }
    return {ABOUT: {_VERSION: VERSION, **known}, **sorted_offsets(positions.items())}


def differ(life: int | None, other: int | None) -> bool:
    """Return whether these are two lives of a topic; False if one of them is unknown."""
    return life is not None and other is not None and life != other


def batch_of(
    start: Mapping[str, Mapping[str, int]], end: Mapping[str, Mapping[str, int]]
) -> list[Slice]:
    """Return the slices that the batch between two offsets of a stream consists of, sorted.

    A queue that *start* does not name, that is in another life, or that moved back, begins at its
    position in *end* and has no slice. Raises OptionError if *end* was stored by an earlier
    version, whose batches read such a queue from a start that they did not store.
    """
    positions, lives, later = flat(start), lives_of(start), lives_of(end)
    slices = []
    for queue, last in flat(end).items():
        position, life = positions.get(queue), later.get(queue)
        anew = differ(lives.get(queue), life)
        if position == last and not anew:
            continue
        if position is not None and position < last and not anew:
            slices.append(Slice(*queue, position, last, life))
        elif _VERSION not in end.get(ABOUT, {}):
            topic, qid = queue
            raise OptionError(
                f"the last batch in the checkpoint is not finished, and the version that planned it"
                f" did not store where it begins in the queue {qid!r} of the topic {topic!r}: start"
                " the query with a new checkpoint"
            )
    return sorted(slices)


def check_start(offsets: Mapping[str, Mapping[str, int]]) -> None:
    """Raise OptionError for the offset of a checkpoint of Spark's Kafka source."""
    for topic, qid in flat(offsets):
        if is_number(qid):
            raise OptionError(
                f"the checkpoint has an offset of the partition {qid} of the topic {topic!r}, so it"
                " is one of Spark's Kafka source: start the query with a new checkpoint, and with"
                " startingOffsets or startingTimestamp where the old query ended"
            )


def check_partitions(columns: Sequence[str], states: Iterable[QueueState]) -> None:
    """Raise OptionError if *columns* have ``partition``, and a topic has queues at several
    brokers.
    """
    if "partition" not in columns:
        return
    for topic, qids in by_topic(state.queue for state in states).items():
        instead = "choose columns with schema(), and qid instead of partition"
        check_one_broker("the column partition", topic, qids, instead=instead)


def by_queue(states: Iterable[QueueState]) -> dict[Queue, QueueState]:
    """Return the states by queue."""
    return {state.queue: state for state in states}


def by_topic(queues: Iterable[Queue]) -> dict[str, list[str]]:
    """Return the names of *queues* by topic."""
    found: dict[str, list[str]] = {}
    for topic, qid in queues:
        found.setdefault(topic, []).append(qid)
    return found


def ends(states: Iterable[QueueState]) -> Offsets:
    """Return the end offsets of the queues."""
    return sorted_offsets((state.queue, state.end) for state in states)


def to_json(offsets: Mapping[str, Mapping[str, int]]) -> str:
    """Return the text form; equal offsets have equal texts."""
    return json.dumps(sorted_offsets(flat(offsets).items()), separators=(",", ":"))


def from_json(text: str, *, option: str, form: str, least: int, numbers: bool = False) -> Offsets:
    """Parse topic → qid → number; with *numbers* all queues of a topic may be named by number.

    Raises an OptionError that shows *form* if *text* is invalid.
    """
    found = json_object(option, text, form=form)
    for topic, queues in found.items():
        if not isinstance(queues, dict) or not queues:
            raise OptionError(
                f"{option} has {json.dumps(queues)} for the topic {topic!r}: "
                f"expected JSON as in {form}"
            )
        by_number = [qid for qid in queues if is_number(qid)]
        if by_number and not (numbers and len(by_number) == len(queues)):
            raise OptionError(
                f"{option} names the queue {by_number[0]!r} of {topic!r}: "
                f"expected names of queues, as in {form}"
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
    """Return the start offset of a new query in each queue of *states*.

    An offset before the oldest message is kept; planning reports it as lost. *at_time* returns the
    states with ``at`` for a time in milliseconds. Raises OptionError for a queue that does not
    exist or is not named, for an offset after the end, and, unless *strategy* is ``latest``, for a
    time after the last message.
    """
    return _resolve(position, states, at_time=at_time, end=False, strategy=strategy)


def ending(position: Position, states: Sequence[QueueState], *, at_time: AtTime) -> Offsets:
    """Return the end offset of a batch in each queue of *states*; a time after the last message
    means the queue's end.

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
                f"which ends at {state.end}: expected at most {state.end}, or -1 for latest"
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
    if then is None or then.at is None:
        # Its end instead would skip messages, or read too many.
        raise OptionError(
            f"{position.option} is {time}, but the queue {state.qid!r} of {state.topic!r} went"
            " missing before that time was looked up: start the query again when its broker is back"
        )
    # A message stored after the first request must not move the position.
    at = min(then.at, state.end)
    if at == state.end and strategy == "error":
        raise OptionError(
            f"{position.option} is {time} for the queue {state.qid!r} of {state.topic!r}, where "
            "no message was stored since: set an earlier time in milliseconds, or "
            "startingOffsetsByTimestampStrategy to latest"
        )
    return at
