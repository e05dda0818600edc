"""The end of a stream's next batch, from its limits and the backlog. Pure; time is an argument."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from thin_client.spark.offsets import (
    AtTime,
    Offsets,
    Queue,
    QueueState,
    Slice,
    flat,
    lives_of,
    starting,
    stream_offset,
)
from thin_client.spark.options import ReadOptions
from thin_client.spark.planning import Loss, backlog


@dataclass(frozen=True, slots=True)
class Target:
    """End of the next batch; its start offsets while no batch is due. ``behind``: the batch leaves
    messages for the next one.
    """

    offsets: Offsets
    losses: list[Loss]
    behind: bool


class Admission:
    """Admission control of one stream, across its batches."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._waits_since_s: float | None = None
        self._snapshot: dict[Queue, int] | None = None
        self._seen: dict[tuple[Queue, int | None], int] = {}

    def first(self, states: Sequence[QueueState], at_time: AtTime) -> Offsets:
        """Return the end of a query's first batch: the positions at which the options begin. The
        batch has no messages.

        *at_time* and errors: as of ``offsets.starting``.
        """
        options = self._options
        begun = starting(options.starting, states, at_time=at_time, strategy=options.strategy)
        return stream_offset(flat(begun), {each.queue: each.life for each in states})

    def end_at(self, states: Iterable[QueueState]) -> None:
        """Limit all later batches to the ends in *states*: ``Trigger.AvailableNow`` has started."""
        self._snapshot = {state.queue: state.end for state in states}

    def target(
        self,
        start: Mapping[str, Mapping[str, int]],
        states: Iterable[QueueState],
        *,
        now_s: float,
        limited: bool = True,
    ) -> Target:
        """Return the end of the batch that begins at *start*.

        A batch below ``minOffsetsPerTrigger`` starts the clock of ``maxTriggerDelay``. With
        *limited* False the limits do not apply: Spark asked for all available messages.
        """
        within, lives = list(self._within(states, start)), lives_of(start)
        found = backlog(start, within, self._options.selection, seen=self._seen)
        self._seen = {(each.queue, each.life): each.end for each in within}
        waiting = sum(each.size for each in found.waiting)
        behind = False
        if limited and self._is_held(waiting, now_s):
            before = flat(start)
            ends = {each.queue: before[each.queue] for each in found.waiting}
        else:
            self._waits_since_s = None
            most = self._options.max_offsets_per_trigger if limited else None
            shares = proportional(most, found.waiting)
            behind = sum(shares) < waiting
            ends = {
                each.queue: each.start + share
                for each, share in zip(found.waiting, shares, strict=True)
            }
        lives |= {each.queue: each.life for each in within if each.life is not None}
        offsets = stream_offset(found.kept | found.begun | ends, lives)
        return Target(offsets, found.losses, behind)

    def _within(
        self, states: Iterable[QueueState], start: Mapping[str, Mapping[str, int]]
    ) -> Iterable[QueueState]:
        """Return the states, cut off at the snapshot.

        Queues that appeared after the snapshot are left out; the next query reads them. A query
        that starts at the latest messages determines its start after the snapshot, so it may
        already be at its end.
        """
        if self._snapshot is None:
            return states
        caps, positions = self._snapshot, flat(start)
        return [
            replace(state, begin=min(state.begin, end), end=end)
            for state in states
            if (end := min(state.end, max(caps.get(at := state.queue, -1), positions.get(at, -1))))
            >= 0
        ]

    def _is_held(self, waiting: int, now_s: float) -> bool:
        """Return whether a batch of *waiting* messages is still too small to start."""
        least = self._options.min_offsets_per_trigger
        if least is None or not 0 < waiting < least or self._snapshot is not None:
            return False
        if self._waits_since_s is None:
            self._waits_since_s = now_s
        return (now_s - self._waits_since_s) * 1000 < self._options.max_trigger_delay_ms


def proportional(most: int | None, waiting: Sequence[Slice]) -> list[int]:
    """Split *most* messages (None: no limit) over the queues in proportion to their backlog.

    Each queue gets at least one message where *most* allows it, so that large queues do not starve
    small ones. With more queues than *most*, the queues alternate from batch to batch.
    """
    sizes = [each.size for each in waiting]
    if most is None or most >= sum(sizes):
        return sizes
    busy = [index for index, size in enumerate(sizes) if size > 0]
    shares = [0] * len(sizes)
    if most <= len(busy):
        # Each batch advances the sum by *most*: the next batch starts with the following queue.
        turn = sum(each.start for each in waiting)
        for step in range(most):
            shares[busy[(turn + step) % len(busy)]] = 1
        return shares
    total = sum(sizes)
    for index in busy:
        shares[index] = most * sizes[index] // total
    # The remainder of rounding down goes to the queues that lost most by it.
    by_loss = sorted(busy, key=lambda index: -(most * sizes[index] % total))
    for index in by_loss[: most - sum(shares)]:
        shares[index] += 1
    for index in busy:
        if shares[index] == 0:
            shares[shares.index(max(shares))] -= 1
            shares[index] = 1
    return shares
