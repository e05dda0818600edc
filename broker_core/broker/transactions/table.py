"""The undecided transactions, and the action of a check for each of them. Pure.

A transaction begins with a half message. Its *number* is the offset of that message in the queue of
half messages; when a check stores the half message again, the new copy has the same number and
replaces the earlier one.

1. The table is a sum over two queues: half messages and decisions. Reading both from ``progress``
   on yields the same undecided transactions, so a restart is no special case.
2. Decisions are added after all half messages before them in the log.
3. A transaction is decided once: between ``begin`` and its record it is no longer open.

Times are milliseconds since 1970.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from broker_core.broker.check_rules import CheckRules

_REMEMBERED = 10_000  # decisions kept to distinguish a repetition from a contradiction


class Decision(Enum):
    """The end of a transaction; the value is stored in its record."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    GIVE_UP = "give up"


class CheckAction(Enum):
    """The action of a check on an undecided transaction."""

    RENEW = "store it again, ask no producer"
    CHECK = "store it again with one more check, ask a producer"
    GIVE_UP = "move it to the final topic"


class Half(NamedTuple):
    """A stored half message."""

    offset: int  # in the queue of half messages
    place: int  # in the log
    number: int
    checks: int  # number of questions to producers so far
    born_ms: int
    store_ms: int
    immunity_ms: int | None  # as its producer requested; None: the broker's timeout


@dataclass(slots=True)
class _Open:
    newest: Half
    since_ms: int


class _Decided(NamedTuple):
    record_offset: int
    last_half_offset: int


@dataclass(slots=True)
class TransactionTable:
    """The table. ``half_end`` and ``record_end`` are the next offsets to read in the two queues."""

    rules: CheckRules
    half_end: int = 0
    record_end: int = 0
    _open: dict[int, _Open] = field(default_factory=dict)  # by number, in order of newest.offset
    _begun: dict[int, Decision] = field(default_factory=dict)  # whose record was not read yet
    _decided: deque[_Decided] = field(default_factory=deque)  # that a restart must read
    _remembered: OrderedDict[int, Decision] = field(default_factory=OrderedDict)

    def __len__(self) -> int:
        return len(self._open)

    def read_on(self, *, half_end: int, record_end: int) -> None:
        """Start reading the two queues at these offsets."""
        self.half_end, self.record_end = half_end, record_end

    def skip_record(self, record_offset: int) -> None:
        """Skip the next record, which decides no transaction known here."""
        self.record_end = record_offset + 1

    def add_half(self, half: Half) -> None:
        """Add the next half message of the queue."""
        self.half_end = half.offset + 1
        before = self._open.pop(half.number, None)
        since_ms = min(half.born_ms, half.store_ms)  # a producer's clock may be fast
        if before is not None:
            since_ms = min(since_ms, before.since_ms)
        self._open[half.number] = _Open(half, since_ms)

    def add_decision(self, record_offset: int, number: int, decision: Decision) -> None:
        """Add the next record of a decision."""
        self.record_end = record_offset + 1
        self._begun.pop(number, None)
        ended = self._open.pop(number, None)
        if ended is None:
            return
        self._decided.append(_Decided(record_offset, ended.newest.offset))
        self._remembered[number] = decision
        if len(self._remembered) > _REMEMBERED:
            self._remembered.popitem(last=False)

    def begin(self, number: int, decision: Decision) -> None:
        """Begin to store *decision*; no other one is accepted from now on."""
        self._begun[number] = decision

    def cancel(self, number: int) -> None:
        """Reopen the transaction: its decision could not be stored."""
        self._begun.pop(number, None)

    def forget(self, number: int) -> None:
        """Remove an open transaction whose half message is lost; a restart does not find it."""
        self._open.pop(number, None)

    def was_begun(self, number: int) -> bool:
        """Return whether this process made a decision whose record it has not read yet."""
        return number in self._begun

    def newest(self, number: int) -> Half | None:
        """Return the half message of an open transaction; None if it is not open."""
        known = self._open.get(number)
        return None if known is None or number in self._begun else known.newest

    def undecided(self) -> list[Half]:
        """Return the half messages of open transactions, oldest first. O(open transactions)."""
        return [half for number in self._open if (half := self.newest(number)) is not None]

    def decision(self, number: int) -> Decision | None:
        """Return the decision; None if it is open, or decided too long ago."""
        return self._begun.get(number) or self._remembered.get(number)

    def due(self, now_ms: int) -> list[tuple[int, CheckAction]]:
        """Return the actions of a check now, by number: oldest half message first. O(open
        transactions).
        """
        return list(self._due(now_ms))

    def progress(self) -> tuple[int, int]:
        """Return the offsets in both queues from which on a restart must read."""
        half_offset = self.half_end
        for known in self._open.values():
            half_offset = known.newest.offset
            break
        while self._decided and self._decided[0].last_half_offset < half_offset:
            self._decided.popleft()
        record_offset = self._decided[0].record_offset if self._decided else self.record_end
        return half_offset, record_offset

    def oldest_place(self) -> int | None:
        """Return the log offset from which on the log must be kept; None without open
        transactions.
        """
        for known in self._open.values():
            return known.newest.place
        return None

    def _due(self, now_ms: int) -> Iterator[tuple[int, CheckAction]]:
        rules = self.rules
        for number, known in self._open.items():
            half = known.newest
            if number in self._begun:
                continue
            if half.checks >= rules.max_checks:
                yield number, CheckAction.GIVE_UP
                continue
            wait_ms = rules.timeout_ms if half.immunity_ms is None else half.immunity_ms
            # Before its beginning: a clock was set back, so its age is unknown.
            if not 0 <= now_ms - known.since_ms < wait_ms:
                yield number, CheckAction.CHECK
            elif now_ms - half.store_ms >= rules.interval_ms:
                yield number, CheckAction.RENEW  # otherwise a restart would read everything since
