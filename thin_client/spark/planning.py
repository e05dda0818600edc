"""Planning of batches: the offsets of each task, and the losses. Pure.

The checkpoint alone defines the batches of a stream (``offsets.batch_of``). Each queue is checked
twice: when a stream determines the end of its next batch (``backlog``), and when the batch is
planned (``plan_stream``), because after a crash Spark plans a batch whose end was determined
before. The rules:

- A queue that is not in the checkpoint begins with its oldest message.
- Unread messages before the oldest one are lost. Those of a topic added by name to a query with a
  checkpoint do not count as unread.
- A queue in another life of its topic (if brokers report lives) was created again, however long it
  is; so was a queue that ends before its position. It begins with its oldest message, and the
  unread messages of the old queue are lost.
- A queue that is missing keeps its position, because it may return with its broker, unless its
  topic has been created again there without this queue. A queue that is no longer selected also
  keeps its position, without a loss.

The caller decides whether a loss fails the query or is logged.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from thin_client.spark.offsets import (
    ANOTHER_LIFE,
    Offsets,
    Queue,
    QueueState,
    Slice,
    batch_of,
    by_queue,
    differ,
    flat,
    lives_of,
)
from thin_client.spark.selection import Selection

_SHOWN = 4


@dataclass(frozen=True, slots=True, order=True)
class Loss:
    """Unread messages of one queue that are gone.

    *messages*: how many are known to be gone; there may be more if the queue itself is gone.
    *returns*: whether they may return, with their broker.
    """

    queue: Queue
    reason: str
    messages: int = field(default=0, compare=False)
    returns: bool = field(default=False, compare=False)

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
    """Backlog of a stream: the slices that wait in its queues, the positions at which further
    queues begin, positions that stay, and losses. Queues in none of the three are dropped.
    """

    waiting: list[Slice]
    begun: dict[Queue, int]
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
    start: Mapping[str, Mapping[str, int]],
    states: Iterable[QueueState],
    selection: Selection,
    *,
    seen: Mapping[tuple[Queue, int | None], int] | None = None,
) -> Backlog:
    """Return the backlog after *start* in those queues of *states* that *selection* includes.

    *seen*: the last known end of each queue, by its life, to count what is lost with a topic.
    """
    positions, lives, ends = flat(start), lives_of(start), seen or {}
    there = by_queue(selection.of(states))
    waiting: list[Slice] = []
    begun: dict[Queue, int] = {}
    losses: list[Loss] = []
    for queue, state in there.items():
        position, life = positions.get(queue), lives.get(queue)
        if position is None:
            begun[queue] = state.begin
            losses += _missed(state, start, selection)
        elif differ(life, state.life) or position > state.end:
            begun[queue] = state.begin
            losses.append(_recreated(position, life, state, ends.get((queue, life))))
        else:
            if position < state.begin:
                losses.append(_deleted(queue, position, state.begin, state))
            first = max(position, state.begin)
            waiting.append(Slice(*queue, first, state.end, state.life))
    gone = without_queue(start, there.values())
    kept = {}
    for queue, position in positions.items():
        if queue in gone and selection.wants(queue):
            losses.append(_left_out(queue, position, ends.get((queue, lives[queue]))))
        elif queue not in there:
            kept[queue] = position
            losses += [_vanished(queue, position)] if selection.wants(queue) else []
    return Backlog(sorted(waiting), begun, kept, sorted(losses))


def without_queue(
    start: Mapping[str, Mapping[str, int]], states: Iterable[QueueState]
) -> set[Queue]:
    """Return the queues of *start* whose topics have been created again without them: *states* have
    other queues of their topics at their brokers, in other lives.
    """
    lives, later = lives_of(start), {}
    there = set()
    for state in states:
        there.add(state.queue)
        later[state.topic, _broker(state.qid)] = state.life
    return {
        (topic, qid)
        for topic, qid in flat(start)
        if (topic, qid) not in there
        and differ(lives.get((topic, qid)), later.get((topic, _broker(qid))))
    }


def plan_stream(
    start: Mapping[str, Mapping[str, int]],
    end: Mapping[str, Mapping[str, int]],
    states: Iterable[QueueState],
    *,
    min_partitions: int | None = None,
    max_records: int | None = None,
) -> Plan:
    """Plan the batch between two offsets of a stream; *states*: of the queues of ``batch_of``.

    Raises OptionError as ``batch_of`` does.
    """
    there = by_queue(states)
    slices: list[Slice] = []
    losses: list[Loss] = []
    for part in batch_of(start, end):
        state = there.get(part.queue)
        if state is None or differ(part.life, state.life) or part.end > state.end:
            losses.append(_given_up(part, state))
            continue
        first = min(max(part.start, state.begin), part.end)
        if first > part.start:
            losses.append(_deleted(part.queue, part.start, first, state))
        slices.append(replace(part, start=first, life=state.life))
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
            losses.append(_deleted(queue, first, min(last, state.begin), state))
        slices.append(Slice(*queue, max(first, state.begin), min(last, state.end), state.life))
    return Plan(split(slices, min_partitions, max_records), sorted(losses))


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


def pack(
    slices: Iterable[Slice], most: int, max_records: int | None = None
) -> list[tuple[Slice, ...]]:
    """Join slices into at most *most* tasks of similar size, each in the order of queues; into more
    if a task would exceed *max_records* offsets.
    """
    found = sorted(slices)
    if len(found) <= most:
        return [(each,) for each in found]
    tasks: list[list[Slice]] = [[] for _ in range(most)]
    smallest = [(0, index) for index in range(most)]
    for each in sorted(found, key=lambda part: -part.size):
        size, index = smallest[0]
        if size and max_records is not None and size + each.size > max_records:
            heapq.heappush(smallest, (each.size, len(tasks)))
            tasks.append([each])
        else:
            heapq.heapreplace(smallest, (size + each.size, index))
            tasks[index].append(each)
    return sorted(tuple(sorted(task)) for task in tasks)


def _split_evenly(whole: Slice, count: int) -> list[Slice]:
    """Split *whole* into *count* slices whose sizes differ by at most 1."""
    edges = [whole.start + whole.size * index // count for index in range(count + 1)]
    return [Slice(*whole.queue, first, last, whole.life) for first, last in pairwise(edges)]


def _missed(
    state: QueueState, start: Mapping[str, Mapping[str, int]], selection: Selection
) -> list[Loss]:
    """Return the losses of a queue that the checkpoint does not name.

    A topic or queue added by name may have a history. One that appeared during the query was empty
    at first.
    """
    topic, _ = state.queue
    came = selection.pattern is not None or (selection.assign is None and topic in start)
    return [_deleted(state.queue, 0, state.begin, state)] if came and state.begin > 0 else []


def _deleted(queue: Queue, position: int, following: int, state: QueueState) -> Loss:
    return Loss(
        queue,
        f"starts at {state.begin}: the broker deleted offsets {position} to {following - 1}"
        f" ({_messages(following - position)})",
        following - position,
    )


def _recreated(position: int, life: int | None, state: QueueState, seen: int | None) -> Loss:
    """*seen*: the old queue's last known end."""
    if differ(life, state.life):
        what = f"was read up to {position}; its topic was {ANOTHER_LIFE}"
    else:
        what = f"ends at {state.end}, before {position}: it was created again"
    unread = max(0, (seen or 0) - position)
    return Loss(
        state.queue,
        f"{what}, {_with_unread(seen, unread)}; the new one has"
        f" {_messages(state.end - state.begin)}",
        unread,
    )


def _left_out(queue: Queue, position: int, seen: int | None) -> Loss:
    unread = max(0, (seen or 0) - position)
    return Loss(
        queue,
        f"was read up to {position}; its topic was deleted and created again since without this"
        f" queue, {_with_unread(seen, unread)}",
        unread,
    )


def _with_unread(seen: int | None, unread: int) -> str:
    if seen is None:
        return "with an unknown number of unread messages"
    return f"with at least {unread} unread message{'s' * (unread != 1)}"


def _given_up(part: Slice, state: QueueState | None) -> Loss:
    """Return the loss of a planned slice that can no longer be read."""
    if state is None:
        why = "is missing (deleted, or its broker is down)"
    elif differ(part.life, state.life):
        why = f"belongs to a topic that was {ANOTHER_LIFE}"
    else:
        why = f"ends at {state.end}: it was created again"
    return Loss(
        part.queue,
        f"{why}; the batch had offsets {part.start} to {part.end - 1} of it"
        f" ({_messages(part.size)})",
        part.size,
        returns=state is None,
    )


def _vanished(queue: Queue, position: int) -> Loss:
    why = "is missing (deleted, no longer in the group, or its broker is down)"
    return Loss(queue, f"{why}; it was read up to {position}")


def _messages(count: int) -> str:
    return f"{count} message{'s' * (count != 1)}"


def _broker(qid: str) -> str:
    return qid.rpartition("_")[0]
