"""Figures of a queue of a group, with their source and age. Pure.

The owner of a queue knows everything about it. Without an owner, its last ownership records and the
brokers have the rest. An unknown figure is None, never 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

from broker_core.names import QueueName
from proxy.core.pipeline.effects import PipelineStatistics
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.core.records.paused_key import EVERYTHING, PausedKey
from proxy.core.records.record import Snapshot
from proxy.core.records.replay import LastOwner


class QueueOwner(StrEnum):
    """The owner of a queue, as a proxy sees it."""

    HERE = "here"
    ELSEWHERE = "elsewhere"  # another proxy, which alone knows the figures
    GONE = "gone"  # a proxy that ended without a last record; its lock expires
    FREE = "free"
    UNKNOWN = "unknown"


class Source(StrEnum):
    """Where figures come from."""

    OWNER = "owner"  # this proxy owns the queue
    RELEASED = "released"  # this proxy owned it until then
    RECORDS = "records"  # brokers, and the records of the last owner
    BROKERS = "brokers"  # brokers; the queue never had an owner, or its records are deleted
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownQueue:
    """A queue of a group at ``at_ms`` (since 1970); None: unknown.

    Counts are messages, but keys in ``parked_keys`` and ``paused_keys``. ``parked`` counts copies
    in the parked topic, which are in no other count. ``oldest_ms``: store time of the oldest
    message that waits, None without one. ``pause``: that of the whole group. ``trouble``: why the
    figures are not newer.
    """

    queue: QueueName
    owned: QueueOwner = QueueOwner.UNKNOWN
    source: Source = Source.NONE
    at_ms: int | None = None
    owner: str | None = None
    http: str | None = None
    trouble: str = ""
    ever_owned: bool | None = None
    end: int | None = None
    committed: int | None = None
    lag: int | None = None
    unfinished: int | None = None
    blocked: int | None = None
    parked: int | None = None
    parked_keys: int | None = None
    paused_keys: int | None = None
    attempts: int | None = None
    oldest_ms: int | None = None
    pause: PausedKey | None = None

    def row(self) -> dict[str, Any]:
        """Return plain values by name, for JSON."""
        return {
            "topic": self.queue.topic,
            "queue": self.queue.qid,
            **{name: getattr(self, name) for name in _PLAIN},
            "paused_whole": self.pause is not None,
        }


_PLAIN = tuple(each.name for each in fields(KnownQueue) if each.name not in ("queue", "pause"))


def known_here(pipeline: QueuePipeline, figures: PipelineStatistics, *, wall_ms: int) -> KnownQueue:
    """Return what is known of an owned queue from its *figures*, with its parked copies. *wall_ms*:
    when they were true.
    """
    twin = pipeline.twin
    parked = None if pipeline.parked else 0  # unknown until the twin is open
    if twin is not None:
        parked = twin.jobs.unfinished + max(0, twin.end_offset - twin.position)
    can_read = not figures.read_trouble  # otherwise the broker may have more by now
    return KnownQueue(
        queue=pipeline.queue,
        owned=QueueOwner.HERE,
        source=Source.OWNER,
        at_ms=wall_ms,
        ever_owned=True,
        end=figures.end if can_read else None,
        committed=figures.committed,
        lag=max(0, figures.end - figures.committed) if can_read else None,
        unfinished=figures.unfinished,
        blocked=figures.blocked,
        parked=parked,
        parked_keys=len(pipeline.parked),
        paused_keys=figures.paused,
        attempts=figures.most_attempts,
        oldest_ms=figures.oldest_ms,
        pause=pipeline.recorded_pauses.get(EVERYTHING),
    )


@dataclass(frozen=True, slots=True)
class Offsets:
    """Offsets of a queue at its broker; ``committed``: None if the group never committed."""

    begin: int
    end: int
    committed: int | None = None

    def lag(self, *, from_end: bool = False) -> int:
        """Return the messages that are not committed. *from_end*: a group without a committed
        offset begins at the end, so that none waits for it.
        """
        if self.committed is None and from_end:
            return 0
        return max(0, self.end - max(self.begin, self.committed or 0))


def unfinished_of(last: Snapshot, offsets: Offsets) -> int:
    """Return the messages that the last owner read and did not finish, retention aside."""
    begin = max(offsets.begin, last.begins_at(offsets.committed or 0))
    if begin < last.base:  # the group was moved back by other means
        return last.unread_within(begin, last.read)
    listed = (last.unfinished, *last.spilled.values())
    return sum(begin <= offset < offsets.end for some in listed for offset in some)


def oldest_of(last: Snapshot | None, offsets: Offsets) -> int | None:
    """Return the offset of the oldest message that the next owner delivers; None without one."""
    begin = max(offsets.begin, offsets.committed or 0)
    if last is not None:
        begin = max(offsets.begin, last.begins_at(offsets.committed or 0))
        firsts = (some[0] for some in (last.unfinished, *last.spilled.values()) if some)
        if begin >= last.base:
            begin = min((each for each in firsts if each >= begin), default=max(begin, last.read))
    return begin if begin < offsets.end else None


def parked_copies(twin: LastOwner | None, offsets: Offsets) -> int | None:
    """Return the copies in a parked twin that wait, by the records of its last owner."""
    if twin is None or twin.snapshot is None:
        return None
    snapshot = twin.snapshot
    unread = max(0, offsets.end - max(offsets.begin, snapshot.read))
    return unfinished_of(snapshot, offsets) + unread


@dataclass(frozen=True, slots=True)
class Recorded:
    """The figures in the last records of a queue; None: unknown."""

    unfinished: int | None
    blocked: int | None
    parked_keys: int | None
    paused_keys: int | None
    attempts: int | None
    pause: PausedKey | None = None

    @classmethod
    def of(cls, last: LastOwner | None, offsets: Offsets, *, deleted: bool) -> Recorded:
        """Return the figures of *last*; None: no owner ever read the queue, unless its records are
        *deleted*.
        """
        if last is None and not deleted:
            return cls(0, 0, 0, 0, 0)
        if last is None or last.snapshot is None:
            return cls(None, None, None, None, None)
        snapshot = last.snapshot
        unfinished = unfinished_of(snapshot, offsets)
        return cls(
            unfinished,
            # Which of several messages have the same key, records do not tell.
            0 if unfinished < 2 else None,
            len(snapshot.parked),
            len(snapshot.paused) - (EVERYTHING in snapshot.paused),
            max(snapshot.attempts.values(), default=0),
            snapshot.paused.get(EVERYTHING),
        )


@dataclass(frozen=True, slots=True)
class Figures:
    """The sum over ``queues`` queues; None: not known of one of them.

    ``elsewhere``: queues of other proxies, which are in no sum. ``unowned``: queues without an
    owner; ``unknown``: those without figures. ``at_ms``: time of the oldest part.
    """

    queues: int
    unowned: int
    elsewhere: int
    unknown: int
    at_ms: int | None
    lag: int | None
    unfinished: int | None
    blocked: int | None
    parked: int | None
    parked_keys: int | None
    paused_keys: int | None
    oldest_ms: int | None


#: Of ``KnownQueue``, with a sum in ``Figures``.
_SUMMED = ("lag", "unfinished", "blocked", "parked", "parked_keys", "paused_keys")


def figures_of(known: Iterable[KnownQueue], *, complete: bool = True) -> Figures:
    """Return the sums over *known*; without *complete*, further queues may exist."""
    every = list(known)
    ours = [each for each in every if each.owned is not QueueOwner.ELSEWHERE]
    return Figures(
        queues=len(ours),
        unowned=sum(each.owned is not QueueOwner.HERE for each in ours),
        elsewhere=len(every) - len(ours),
        unknown=sum(each.source is Source.NONE for each in ours),
        at_ms=min((each.at_ms for each in ours if each.at_ms is not None), default=None),
        oldest_ms=min(
            (each.oldest_ms for each in ours if each.oldest_ms is not None), default=None
        ),
        **{
            name: _sum(getattr(each, name) for each in ours) if complete and ours else None
            for name in _SUMMED
        },
    )


def _first(times: Iterable[int | None]) -> int | None:
    return min((each for each in times if each is not None), default=None)


def _sum(values: Iterable[int | None]) -> int | None:
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total
