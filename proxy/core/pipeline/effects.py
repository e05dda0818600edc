"""What an event of a queue pipeline leads to, in words that shells and histories share. Pure."""

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
    """An attribute of ``Effects`` that is made at the first look at it."""

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
    """What one event led to; the shell writes histories, counts, and stores the dead letters.

    A job in ``dead_letters`` stays running, its key waiting, until ``dead_lettered`` confirms that
    its copy is stored. The messages of ``refills`` are to be read again, for ``refilled``.
    ``filtered_by`` says which rule ended each that is finished as filtered. ``parked`` jobs are
    finished as well. ``parking``: parked keys may have to be looked after.

    Nearly all events are acks, or messages that were read. So the rarer lists are made at the first
    look at them: ``plain`` is true while there was none.
    """

    __slots__ = ("acked", "finished", "keys_changed", "missing_keys", "parking", "plain", "rare")

    finished: list[tuple[int, Outcome]]  # offsets
    acked: list[Lease]
    missing_keys: int
    parking: bool
    keys_changed: bool  # another order key begins to hold, or no older message is left
    plain: bool
    rare: dict[str, Any]  # what somebody looked at, by name

    nacked = _Rare[list[Lease]](list)
    released = _Rare[list[Lease]](list)
    expired = _Rare[list[Lease]](list)
    revoked = _Rare[list[Lease]](list)  # by a person
    unsent = _Rare[list[Lease]](list)  # expired, and no client ever had them
    fenced = _Rare[list[int]](list)  # lease ids (offsets from DDMQ's clients)
    dead_letters = _Rare[list[Job]](list)
    refills = _Rare[list[Refill]](list)
    skips = _Rare[dict[int, Skip]](dict)  # of those that finished so, by offset
    filtered_by = _Rare[dict[int, Filtered]](dict)  # by offset
    gone = _Rare[dict[int, bytes]](dict)  # order keys of those that were deleted, by offset
    failed_actions = _Rare[list[FailedAction]](list)
    parked = _Rare[list[Job]](list)
    copies = _Rare[dict[int, int]](dict)  # where in the twin the copies of those stand, by offset
    stopped = _Rare[list[bytes]](list)  # keys whose redrive failed

    def __init__(self) -> None:
        self.plain = True
        self.finished = []
        self.acked = []
        self.missing_keys = 0
        self.parking = self.keys_changed = False
        self.rare = {}

    def note_parking(self) -> Effects:
        """Parked keys may have to be looked after. Returns the same."""
        self.parking = True
        return self

    def note_keys_changed(self) -> Effects:
        """Another order key begins to hold, or no older message is left. Returns the same."""
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
        """All that happened."""
        usual = {name: getattr(self, name) for name in _USUAL}
        return {name: what for name, what in {**usual, **self.rare}.items() if what}


_USUAL = ("finished", "acked", "missing_keys", "parking", "keys_changed")


@dataclass(frozen=True, slots=True)
class PipelineStatistics:
    """A moment of a pipeline. Counts are jobs; ``base`` is the committable offset. ``uncopied`` are
    those of parked keys that have no copy yet, ``trouble`` says why if they cannot get one.
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
    """Paused keys."""
    paused_whole: bool = False
    """All of the queue is paused, since its group is."""
    near_retention: int = 0
    """Keys, blocked or parked, whose messages the broker is about to delete."""
    records_damaged: bool = False
    """This period began with damaged ownership records."""
    recreated: bool = False
    """This period is the first in an incarnation of the topic that others came before."""
    key_rule: str = ""
    """By which rule messages that are read now have their order keys, in words."""
    key_version: int = 1
    older: int = 0
    """Unfinished messages that have their order keys by the rule before."""
    key_change: str = ""
    """What a change of the order key waits for, in words."""
    reading_paused: str = ""
    """Why nothing more is read though clients may wait: ``memory`` of the process, or ``jobs`` in
    memory of this queue; empty: it is read on.
    """
    oldest_ms: int | None = None
    """When the broker stored the first unfinished message; None without one in memory."""
    most_attempts: int = 0
    """Hand-outs of the unfinished message that failed most often."""
    window_used: float = 0.0
    """Part of ``max_jobs_in_memory`` that is taken."""
    committed_ns: int = 0
    """When ``committed`` was last stored, or nothing was left to commit, by the proxy's clock."""

    def __str__(self) -> str:
        return (
            f"{self.queue} epoch={self.epoch} ready={self.ready} leased={self.leased}"
            f" blocked={self.blocked} committed={self.committed}"
        )
