"""How far the next batch of a stream goes: limits, and what is there. Pure; time is an argument."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from thin_client.spark.offsets import (
    Offsets,
    Queue,
    QueueState,
    Slice,
    flat,
    lives_of,
    sorted_offsets,
    with_lives,
)
from thin_client.spark.options import ReadOptions
from thin_client.spark.planning import Loss, backlog


@dataclass(frozen=True, slots=True)
class Target:
    """Where the next batch ends; the offset that it began with, if there is none yet."""

    offsets: Offsets
    losses: list[Loss]


class Admission:
    """What one stream may read next, from one batch to the next."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._waits_since_s: float | None = None
        self._snapshot: dict[Queue, int] | None = None

    def end_at(self, states: Iterable[QueueState]) -> None:
        """From now on read no further than *states*: what AvailableNow found when it began."""
        self._snapshot = {state.queue: state.end for state in states}

    def target(
        self,
        start: Mapping[str, Mapping[str, int]],
        states: Iterable[QueueState],
        *,
        now_s: float,
        limited: bool = True,
    ) -> Target:
        """Where the batch behind *start* ends. *limited*: False where Spark wants all there is.

        Caller: ``latestOffset``. Affects: since when a small batch waits.
        """
        within, lives = list(self._within(states, start)), lives_of(start)
        found = backlog(start, within, self._options.selection)
        total = sum(each.size for each in found.waiting)
        if limited and self._is_held(total, now_s):
            held = sorted_offsets(flat(start).items())
            return Target(with_lives(held, lives), found.losses)
        self._waits_since_s = None
        most = self._options.max_offsets_per_trigger if limited else None
        shares = proportional(most, found.waiting)
        ends = [
            (each.queue, each.start + share)
            for each, share in zip(found.waiting, shares, strict=True)
        ]
        offsets = sorted_offsets([*found.kept.items(), *ends])
        return Target(
            with_lives(offsets, lives | {each.queue: each.life for each in within}), found.losses
        )

    def _within(
        self, states: Iterable[QueueState], start: Mapping[str, Mapping[str, int]]
    ) -> Iterable[QueueState]:
        """The states as the snapshot lets them be seen. Queues that came later are not there; one
        that was away when it was taken, and is back, waits for the next query. A query that begins
        at the latest messages asks for them after the snapshot, so it may be at its end already.
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
        """Is a batch of so many messages too small for now?"""
        least = self._options.min_offsets_per_trigger
        if least is None or not 0 < waiting < least or self._snapshot is not None:
            return False
        if self._waits_since_s is None:
            self._waits_since_s = now_s
        return (now_s - self._waits_since_s) * 1000 < self._options.max_trigger_delay_ms


def proportional(most: int | None, waiting: Sequence[Slice]) -> list[int]:
    """How many messages each queue gives, of *most* in all (None: everything).

    In proportion to what waits, but at least one of each where *most* allows it: a small queue
    beside large ones is not left waiting. Where there are more queues than that, they take turns.
    """
    sizes = [each.size for each in waiting]
    if most is None or most >= sum(sizes):
        return sizes
    busy = [index for index, size in enumerate(sizes) if size > 0]
    shares = [0] * len(sizes)
    if most <= len(busy):
        # Each batch moves the sum on by *most*: the next one begins where this one ended.
        turn = sum(each.start for each in waiting)
        for step in range(most):
            shares[busy[(turn + step) % len(busy)]] = 1
        return shares
    total = sum(sizes)
    for index in busy:
        shares[index] = most * sizes[index] // total
    # What rounding down left over goes to those that lost most by it.
    by_loss = sorted(busy, key=lambda index: -(most * sizes[index] % total))
    for index in by_loss[: most - sum(shares)]:
        shares[index] += 1
    for index in busy:
        if shares[index] == 0:
            shares[shares.index(max(shares))] -= 1
            shares[index] = 1
    return shares
