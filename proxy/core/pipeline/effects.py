"""Effects of an event on a queue pipeline, in terms that shells and histories share. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from broker_core.names import QueueName
from proxy.core.jobs.chains import Job
from proxy.core.jobs.refills import Refill
from proxy.core.keys.ids import Epoch
from proxy.core.leases.lease_book import Lease
from proxy.core.leases.verdicts import FailedAction, Filtered, Outcome, Skip

What = TypeVar("What")


class _Rare(Generic[What]):
    """An attribute of ``Effects`` that is created on first access."""

    def __init__(self, make: Callable[[], What]) -> None:
        self._make = make

    def __set_name__(self, _owner: type[Effects], name: str) -> None:
        self._name = name

    def __get__(self, effects: Effects, _owner: type[Effects] | None = None) -> What:
        effects.plain = False
        if self._name not in effects.rare:
            effects.rare[self._name] = self._make()
        return cast("What", effects.rare[self._name])

    def __set__(self, effects: Effects, value: What) -> None:
        effects.plain = False
        effects.rare[self._name] = value


class Effects:
    """Effects of one event; the shell writes histories, counts, and stores dead letters.

    A job in ``dead_letters`` keeps running, and its key waits, until ``dead_lettered`` confirms
    that its copy is stored. The messages of ``refills`` must be read again, for ``refilled``.
    ``filtered_by`` contains the rule for each job finished as filtered. ``parked`` jobs are
    finished, too. ``parking``: parked keys may need attention.

    Nearly all events are acks or reads, so rarer lists are created on first access: ``plain`` is
    true until then.
    """

    __slots__ = ("acked", "finished", "keys_changed", "missing_keys", "parking", "plain", "rare")

    finished: list[tuple[int, Outcome]]  # offsets
    acked: list[Lease]
    missing_keys: int
    parking: bool
    keys_changed: bool  # another order key takes effect, or no older message is left
    plain: bool
    rare: dict[str, Any]  # accessed attributes, by name

    nacked = _Rare[list[Lease]](list)
    released = _Rare[list[Lease]](list)
    expired = _Rare[list[Lease]](list)
    revoked = _Rare[list[Lease]](list)  # by an operator
    unsent = _Rare[list[Lease]](list)  # expired before any client received them
    stalled = _Rare[list[Lease]](list)  # expired while the process stood still; not counted
    fenced = _Rare[list[int]](list)  # lease ids (offsets from DDMQ's clients)
    dead_letters = _Rare[list[Job]](list)
    refills = _Rare[list[Refill]](list)
    skips = _Rare[dict[int, Skip]](dict)  # of skipped jobs, by offset
    filtered_by = _Rare[dict[int, Filtered]](dict)  # by offset
    gone = _Rare[dict[int, bytes]](dict)  # order keys of deleted messages, by offset
    failed_actions = _Rare[list[FailedAction]](list)
    parked = _Rare[list[Job]](list)
    copies = _Rare[dict[int, int]](dict)  # offsets of their copies in the twin, by offset
    stopped = _Rare[list[bytes]](list)  # keys whose redrive failed

    def __init__(self) -> None:
        self.plain = True
        self.finished = []
        self.acked = []
        self.missing_keys = 0
        self.parking = self.keys_changed = False
        self.rare = {}

    def note_parking(self) -> Effects:
        """Note that parked keys may need attention. Return self."""
        self.parking = True
        return self

    def note_keys_changed(self) -> Effects:
        """Note that another order key takes effect, or no older message is left. Return self."""
        self.keys_changed = True
        return self

    def note_missing_key(self) -> None:
        """Count a message without an order key."""
        self.missing_keys += 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Effects) and self._said() == other._said()

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        return f"Effects({', '.join(f'{name}={what!r}' for name, what in self._said().items())})"

    def _said(self) -> dict[str, Any]:
        """Return all attributes that are not empty."""
        usual = {name: getattr(self, name) for name in _USUAL}
        return {name: what for name, what in {**usual, **self.rare}.items() if what}


_USUAL = ("finished", "acked", "missing_keys", "parking", "keys_changed")


@dataclass(frozen=True, slots=True)
class PipelineStatistics:
    """State of a pipeline at one moment. Counts are jobs; ``base`` is the committable offset.
    ``uncopied`` are jobs of parked keys without a copy, ``trouble`` is the reason if copying fails.
    """

    queue: QueueName
    epoch: Epoch
    unfinished: int
    ready: int
    leased: int
    retrying: int
    blocked: int
    keys: int
    spilled: int
    held_bytes: int
    base: int
    committed: int
    position: int
    end: int
    draining: bool
    uncopied: int = 0
    trouble: str = ""
    paused: int = 0
    """Number of paused keys."""
    paused_whole: bool = False
    """True if the whole queue is paused because its group is."""
    near_retention: int = 0
    """Number of blocked or parked keys whose messages retention is about to delete."""
    records_damaged: bool = False
    """True if this period began with damaged ownership records."""
    damaged: str = ""
    """A sentence about the first damaged messages that are waited for, if there are any: at the
    read position, or of a key whose messages are to be read again."""
    damaged_from: int = 0
    """The offset of these messages; 0 if there are none."""
    damaged_until: int = 0
    """The offset behind these messages; 0 if there are none."""
    recreated: bool = False
    """True if this period is the first in a new incarnation of the topic."""
    read_trouble: str = ""
    """The reason if reads fail, so that ``end`` is not new; empty if they do not."""
    key_rule: str = ""
    """Order-key rule of messages read now, in words."""
    key_version: int = 1
    older: int = 0
    """Number of unfinished messages whose order key follows the previous rule."""
    key_change: str = ""
    """Reason why a change of the order key waits, in words."""
    reading_paused: str = ""
    """Reason why reading is paused even if clients wait: ``memory`` of the process, or ``jobs`` in
    memory of this queue; empty if it is not.
    """
    oldest_ms: int | None = None
    """Store time of the first unfinished message; None if it is not in memory."""
    most_attempts: int = 0
    """Deliveries of the unfinished message that failed most often."""
    window_used: float = 0.0
    """Used fraction of ``max_jobs_in_memory``."""
    change_waits_for_parked: bool = False
    """True if a change of the order key waits for messages of parked keys only."""
    committed_ns: int = 0
    """Time, by the proxy's clock, of the last commit, or when nothing was left to commit."""

    def __str__(self) -> str:
        return (
            f"{self.queue} epoch={self.epoch} ready={self.ready} leased={self.leased}"
            f" blocked={self.blocked} committed={self.committed}"
        )
