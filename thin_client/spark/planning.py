"""Which offsets a batch reads in how many tasks, and what of them is gone. Pure.

What waits in a queue is judged twice: when a stream decides how far its next batch goes
(``backlog``), and when the batch is planned (``plan_stream``), for after a crash Spark plans a
batch again that it had decided on before. The rules:

- A queue that the checkpoint does not know is read from its oldest message.
- Messages before the oldest one are lost, if the query was to read them. Those of a topic that was
  added by name to a query that has a checkpoint never were.
- A queue that ends before its position was made anew: what it has is new, and read from its
  beginning. What the old one still had is lost.
- A queue of another life of its topic, where brokers tell, was made anew, however long it is.
- A queue that is not there any more keeps its position, for it may come back with its broker. One
  that is no longer asked for keeps it too, and lost nothing.

Whether a loss ends the query or is a warning, the shell says.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from thin_client.spark.offsets import (
    Offsets,
    Queue,
    QueueState,
    Slice,
    by_queue,
    flat,
    lives_of,
)
from thin_client.spark.selection import Selection

_SHOWN = 4


@dataclass(frozen=True, slots=True, order=True)
class Loss:
    """Messages of one queue that were still to be read, and are gone."""

    queue: Queue
    reason: str

    def __str__(self) -> str:
        topic, qid = self.queue
        return f"queue {qid!r} of the topic {topic!r} {self.reason}"


class MessagesGone(Exception):
    """A query cannot read what it was to read, and ``failOnDataLoss`` is true."""

    def __init__(self, losses: Sequence[Loss]) -> None:
        self.losses = tuple(losses)
        super().__init__(
            f"messages that were still to be read are gone: {told(losses)}; set failOnDataLoss "
            "to false to go on with what is there, or begin the query anew"
        )

    def __reduce__(self) -> tuple[type[MessagesGone], tuple[tuple[Loss, ...]]]:
        return MessagesGone, (self.losses,)


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits for a stream: a slice for each queue, positions that stay, and losses."""

    waiting: list[Slice]
    kept: dict[Queue, int]
    losses: list[Loss]


@dataclass(frozen=True, slots=True)
class Plan:
    """The tasks of a batch, in the order of their queues and offsets, and what it cannot read."""

    slices: list[Slice]
    losses: list[Loss]


def told(losses: Iterable[Loss]) -> str:
    """Some losses in a sentence."""
    found = sorted(set(losses))
    shown = "; ".join(map(str, found[:_SHOWN]))
    return f"{shown}; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else shown


def backlog(
    start: Mapping[str, Mapping[str, int]], states: Iterable[QueueState], selection: Selection
) -> Backlog:
    """What waits behind *start* in the queues of *states* that *selection* wants."""
    positions = flat(start)
    there = by_queue(selection.of(states))
    waiting: list[Slice] = []
    losses: list[Loss] = []
    for queue, state in there.items():
        first, lost = _first(queue, positions.get(queue), state, start, selection)
        waiting.append(Slice(*queue, first, max(first, state.end), state.life))
        losses += lost
    kept = {queue: at for queue, at in positions.items() if queue not in there}
    losses += [_vanished(queue, at) for queue, at in kept.items() if selection.wants(queue)]
    return Backlog(sorted(waiting), kept, sorted(losses))


def plan_stream(
    start: Mapping[str, Mapping[str, int]],
    end: Mapping[str, Mapping[str, int]],
    states: Iterable[QueueState],
    *,
    selection: Selection,
    min_partitions: int | None = None,
    max_records: int | None = None,
) -> Plan:
    """The batch between two offsets of a stream; *states* are those of ``moved`` now."""
    positions, there = flat(start), by_queue(states)
    lives, later = lives_of(start), lives_of(end)
    slices: list[Slice] = []
    losses: list[Loss] = []
    for queue, last in flat(end).items():
        position, state = positions.get(queue), there.get(queue)
        anew = _differ(lives.get(queue), later.get(queue))
        if position == last and not anew:
            continue
        if state is None:
            losses.append(_vanished(queue, position))
        elif _differ(later.get(queue), state.life):
            losses.append(_recreated(queue, last))
        elif anew and position is not None:
            losses.append(_recreated(queue, position))
            slices.append(Slice(*queue, state.begin, last, state.life))
        elif last > state.end:
            losses.append(_made_anew(queue, last, state))
        elif position is not None and last < position:
            losses.append(_made_anew(queue, position, state))
            slices.append(Slice(*queue, state.begin, last, state.life))
        else:
            first, lost = _first(queue, position, state, start, selection)
            losses += lost
            slices.append(Slice(*queue, first, last, state.life))
    return Plan(split(slices, min_partitions, max_records), sorted(losses))


def plan_batch(
    start: Offsets,
    end: Offsets,
    states: Iterable[QueueState],
    *,
    min_partitions: int | None = None,
    max_records: int | None = None,
) -> Plan:
    """The tasks of a batch query; a queue that ends before it begins has nothing to read."""
    lasts, there = flat(end), by_queue(states)
    slices: list[Slice] = []
    losses: list[Loss] = []
    for queue, first in flat(start).items():
        last, state = lasts.get(queue, first), there[queue]
        if first < min(last, state.begin):
            losses.append(_deleted(queue, first, state))
        slices.append(Slice(*queue, max(first, state.begin), min(last, state.end), state.life))
    return Plan(split(slices, min_partitions, max_records), sorted(losses))


def moved(
    start: Mapping[str, Mapping[str, int]], end: Mapping[str, Mapping[str, int]]
) -> list[Queue]:
    """The queues of which a batch between two offsets has to know the states."""
    before, lives, later = flat(start), lives_of(start), lives_of(end)
    return sorted(
        queue
        for queue, last in flat(end).items()
        if before.get(queue) != last or _differ(lives.get(queue), later.get(queue))
    )


def split(
    slices: Iterable[Slice], min_partitions: int | None, max_records: int | None = None
) -> list[Slice]:
    """The same offsets in slices of *max_records* at most, and at least *min_partitions* of them,
    if there are as many offsets.

    The slice whose parts are largest is parted once more, until there are enough: so the largest
    part is as small as it can be.
    """
    found = sorted(each for each in slices if each.size > 0)
    parts = [1 if max_records is None else -(-each.size // max_records) for each in found]
    missing = min(min_partitions or 0, sum(each.size for each in found)) - sum(parts)
    # heapq gives the least first.
    largest = [(-each.size / parts[index], index) for index, each in enumerate(found)]
    heapq.heapify(largest)
    for _ in range(missing):
        index = largest[0][1]
        parts[index] += 1
        heapq.heapreplace(largest, (-found[index].size / parts[index], index))
    return [part for each, count in zip(found, parts, strict=True) for part in _parted(each, count)]


def _parted(whole: Slice, count: int) -> list[Slice]:
    """*whole* in *count* slices whose sizes differ by 1 at most."""
    edges = [whole.start + whole.size * index // count for index in range(count + 1)]
    return [Slice(*whole.queue, first, last, whole.life) for first, last in pairwise(edges)]


def _first(
    queue: Queue,
    position: int | None,
    state: QueueState,
    start: Mapping[str, Mapping[str, int]],
    selection: Selection,
) -> tuple[int, list[Loss]]:
    """Where to read on in a queue that is there, and what is lost."""
    if position is None:
        # By name, a topic or queue is added as it is. What came by itself was empty when it came.
        came = selection.pattern is not None or (selection.assign is None and queue[0] in start)
        return state.begin, [_deleted(queue, 0, state)] if came and state.begin > 0 else []
    if _differ(lives_of(start).get(queue), state.life):
        return state.begin, [_recreated(queue, position)]
    if position > state.end:
        return state.begin, [_made_anew(queue, position, state)]
    if position < state.begin:
        return state.begin, [_deleted(queue, position, state)]
    return position, []


def _deleted(queue: Queue, position: int, state: QueueState) -> Loss:
    return Loss(
        queue,
        f"begins at {state.begin}, so the broker deleted offsets {position} to {state.begin - 1}",
    )


def _made_anew(queue: Queue, position: int, state: QueueState) -> Loss:
    return Loss(queue, f"ends at {state.end}, before {position}, so it was made anew")


def _differ(life: int | None, other: int | None) -> bool:
    """True if these are two lives of a topic; False if one of them is not known."""
    return life is not None and other is not None and life != other


def _recreated(queue: Queue, position: int) -> Loss:
    return Loss(
        queue, f"was read up to {position}, and its topic was deleted and created again since"
    )


def _vanished(queue: Queue, position: int | None) -> Loss:
    where = "" if position is None else f", and was read up to {position}"
    return Loss(queue, f"is not there (deleted, or its broker is down){where}")
