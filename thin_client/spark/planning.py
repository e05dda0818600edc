"""Planning of batches: the offsets of each task, and the losses. Pure.

Each queue is checked twice: when a stream determines the end of its next batch (``backlog``), and
when the batch is planned (``plan_stream``), because after a crash Spark plans a batch whose end was
determined before. The rules:

- A queue that is not in the checkpoint is read from its oldest message.
- Unread messages before the oldest one are lost. Those of a topic added by name to a query with a
  checkpoint do not count as unread.
- A queue that ends before its position was created again: it is read from its beginning, and the
  unread messages of the old queue are lost.
- A queue in another life of its topic (if brokers report lives) was created again, however long it
  is.
- A queue that is missing keeps its position, because it may return with its broker. A queue that is
  no longer selected also keeps it, without a loss.

The caller decides whether a loss fails the query or is logged.
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
    """Unread messages of one queue that are gone."""

    queue: Queue
    reason: str

    def __str__(self) -> str:
        topic, qid = self.queue
        return f"queue {qid!r} of the topic {topic!r} {self.reason}"


class MessagesGone(Exception):
    """Unread messages are gone, and ``failOnDataLoss`` is true."""

    def __init__(self, losses: Sequence[Loss]) -> None:
        self.losses = tuple(losses)
        super().__init__(
            f"unread messages are gone: {loss_summary(losses)}; set failOnDataLoss to false to"
            " continue with the remaining messages, or restart the query with a new checkpoint"
        )

    def __reduce__(self) -> tuple[type[MessagesGone], tuple[tuple[Loss, ...]]]:
        return MessagesGone, (self.losses,)


@dataclass(frozen=True, slots=True)
class Backlog:
    """Backlog of a stream: a slice for each queue, unchanged positions, and losses."""

    waiting: list[Slice]
    kept: dict[Queue, int]
    losses: list[Loss]


@dataclass(frozen=True, slots=True)
class Plan:
    """Tasks of a batch, in the order of queues and offsets, and its losses."""

    slices: list[Slice]
    losses: list[Loss]


def loss_summary(losses: Iterable[Loss]) -> str:
    """Return the losses as a clause of a sentence, the first ones in full."""
    found = sorted(set(losses))
    shown = "; ".join(map(str, found[:_SHOWN]))
    return f"{shown}; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else shown


def backlog(
    start: Mapping[str, Mapping[str, int]], states: Iterable[QueueState], selection: Selection
) -> Backlog:
    """Return the backlog after *start* in those queues of *states* that *selection* includes."""
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
    """Plan the batch between two offsets of a stream; *states*: of its ``changed_queues``."""
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
            losses.append(_truncated(queue, last, state))
        elif position is not None and last < position:
            losses.append(_truncated(queue, position, state))
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
    """Plan a batch query; a queue whose end is before its start has nothing to read."""
    lasts, there = flat(end), by_queue(states)
    slices: list[Slice] = []
    losses: list[Loss] = []
    for queue, first in flat(start).items():
        last, state = lasts.get(queue, first), there[queue]
        if first < min(last, state.begin):
            losses.append(_deleted(queue, first, state))
        slices.append(Slice(*queue, max(first, state.begin), min(last, state.end), state.life))
    return Plan(split(slices, min_partitions, max_records), sorted(losses))


def changed_queues(
    start: Mapping[str, Mapping[str, int]], end: Mapping[str, Mapping[str, int]]
) -> list[Queue]:
    """Return the queues whose states are needed to plan a batch between two offsets."""
    before, lives, later = flat(start), lives_of(start), lives_of(end)
    return sorted(
        queue
        for queue, last in flat(end).items()
        if before.get(queue) != last or _differ(lives.get(queue), later.get(queue))
    )


def split(
    slices: Iterable[Slice], min_partitions: int | None, max_records: int | None = None
) -> list[Slice]:
    """Split into slices of at most *max_records* offsets, and into at least *min_partitions*
    slices if there are enough offsets.

    The slice with the largest pieces is split once more until there are enough, which minimizes the
    largest piece.
    """
    found = sorted(each for each in slices if each.size > 0)
    parts = [1 if max_records is None else -(-each.size // max_records) for each in found]
    missing = min(min_partitions or 0, sum(each.size for each in found)) - sum(parts)
    # heapq pops the smallest item first.
    largest = [(-each.size / parts[index], index) for index, each in enumerate(found)]
    heapq.heapify(largest)
    for _ in range(missing):
        index = largest[0][1]
        parts[index] += 1
        heapq.heapreplace(largest, (-found[index].size / parts[index], index))
    return [
        part
        for each, count in zip(found, parts, strict=True)
        for part in _split_evenly(each, count)
    ]


def _split_evenly(whole: Slice, count: int) -> list[Slice]:
    """Split *whole* into *count* slices whose sizes differ by at most 1."""
    edges = [whole.start + whole.size * index // count for index in range(count + 1)]
    return [Slice(*whole.queue, first, last, whole.life) for first, last in pairwise(edges)]


def _first(
    queue: Queue,
    position: int | None,
    state: QueueState,
    start: Mapping[str, Mapping[str, int]],
    selection: Selection,
) -> tuple[int, list[Loss]]:
    """Return the first offset to read in an existing queue, and its losses."""
    if position is None:
        # A topic or queue added by name may have a history. One that appeared during the query was
        # empty at first.
        came = selection.pattern is not None or (selection.assign is None and queue[0] in start)
        return state.begin, [_deleted(queue, 0, state)] if came and state.begin > 0 else []
    if _differ(lives_of(start).get(queue), state.life):
        return state.begin, [_recreated(queue, position)]
    if position > state.end:
        return state.begin, [_truncated(queue, position, state)]
    if position < state.begin:
        return state.begin, [_deleted(queue, position, state)]
    return position, []


def _deleted(queue: Queue, position: int, state: QueueState) -> Loss:
    return Loss(
        queue,
        f"starts at {state.begin}: the broker deleted offsets {position} to {state.begin - 1}",
    )


def _truncated(queue: Queue, position: int, state: QueueState) -> Loss:
    return Loss(queue, f"ends at {state.end}, before {position}: it was created again")


def _differ(life: int | None, other: int | None) -> bool:
    """Return whether these are two lives of a topic; False if one of them is unknown."""
    return life is not None and other is not None and life != other


def _recreated(queue: Queue, position: int) -> Loss:
    return Loss(queue, f"was read up to {position}; its topic was deleted and created again since")


def _vanished(queue: Queue, position: int | None) -> Loss:
    where = "" if position is None else f"; it was read up to {position}"
    return Loss(queue, f"is missing (deleted, or its broker is down){where}")
