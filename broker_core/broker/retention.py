"""Retention: deletes old segments of the log, after moving waiting messages out of them.

A message grows old by ``RetentionClock``, so a wall clock that jumps ahead deletes nothing. Files
are dated by it too, so one that was behind deletes nothing when it is set right.
Messages that wait for replicas are kept: they would vanish before a consumer could see them.
Messages that a group has not read are deleted like others. That is announced from 80 % of the age
or size on at which they are deleted, and again when it happens.
"""

from __future__ import annotations

import asyncio
import errno
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import structlog

from broker_core.broker.delays.delivery import DelayedDelivery
from broker_core.broker.retention_clock import RetentionClock
from broker_core.broker.settings import BrokerSettings
from broker_core.broker.unread_messages import Unread, UnreadMessages
from broker_core.clock import boot_id, now_ns, wall_ms
from broker_core.errors import StoreError
from broker_core.rare_warnings import RareWarnings
from broker_core.store.message_store import MessageStore
from broker_core.store.tables import JsonTable
from broker_core.store.write_times import WriteTimes
from broker_core.tasks import in_thread

#: Share of the age or size at which the deletion of unread messages is announced.
_NEAR = 0.8
_MAX_JUMP_MS, _MIN_JUMP_MS = 300_000, 2000
#: Share of the retention that an unnoticed jump may cost.
_JUMP_SHARE = 0.05
#: On a full disk the table of the clock is left as it is: the deletion is to relieve the disk.
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
#: Start of the file that was written when files were last dated, in the table of the clock.
_NEWEST_FILE = "newest_file"
#: Groups and topics named in the log at a time; the rest is counted.
_NAMED = 20

_log = structlog.get_logger("broker")


@dataclass(slots=True)
class RetentionFigures:
    """Unread messages that the retention is about to delete, and has deleted since the start."""

    #: Unread messages that are near their deletion, by group and topic.
    expiring: Unread = field(default_factory=dict)
    deleted: Counter[tuple[str, str]] = field(default_factory=Counter)


def load_clock(table: JsonTable, settings: BrokerSettings, *, newest_ms: int) -> RetentionClock:
    """Return the clock after a start; see ``RetentionClock.started``. Blocks, raises StoreError."""
    hours = settings.retention_hours
    share_ms = _MAX_JUMP_MS if hours is None else int(hours * 3_600_000 * _JUMP_SHARE)
    try:
        clock = RetentionClock.started(
            table.load(),
            boot=boot_id(),
            jump_ms=max(_MIN_JUMP_MS, min(_MAX_JUMP_MS, share_ms)),
            newest_ms=newest_ms,
            now_ns=now_ns(),
            wall_ms=wall_ms(),
        )
    except ValueError as error:
        raise StoreError(f"{table.path} cannot be used: {error}") from error
    return clock


class Retention:
    """The retention of one broker; call ``run`` periodically."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        store: MessageStore,
        delayed: DelayedDelivery,
        keep_from: Callable[[], int | None],
        clock: RetentionClock,
        clock_table: JsonTable,
        unread: UnreadMessages,
    ) -> None:
        """Apply *settings* to *store*. Blocks, raises OSError.

        *keep_from* returns the log offset from which on nothing may be deleted, or None. The state
        of *clock* is saved in *clock_table*.
        """
        self._keep_from = keep_from
        self._settings = settings
        self._store = store
        self._delayed = delayed
        self._clock = clock
        self._clock_table = clock_table
        self._unread = unread
        before = clock_table.load().get(_NEWEST_FILE)  # later ones may be written since then
        self._dated = before if isinstance(before, int) else self._newest_file
        self._write_times = WriteTimes(
            each.path
            for each in store.log.segments
            if not isinstance(before, int) or each.start < before
        )
        self.figures = RetentionFigures()
        self._turn = asyncio.Lock()
        self._warnings = RareWarnings("broker")
        self._had_jumped = False
        self._save()  # a crash before the first look must not hide which files it is to date

    @property
    def clock(self) -> RetentionClock:
        """The clock by which messages grow old."""
        return self._clock

    async def run(self) -> None:
        """Delete expired segments, the oldest first. Raise OSError."""
        async with self._turn:
            now_ms = await self._look()
            await self._announce(now_ms)
            await self._run(now_ms)

    async def look(self) -> None:
        """Watch the wall clock and date files, without deleting any: for slaves, whose master
        decides what is deleted. Raise OSError.
        """
        async with self._turn:
            await self._look()

    async def confirm_clock(self, *, by: str, reason: str) -> int:
        """Adopt the wall clock after a jump, on record; return by how many ms it was ahead.

        Raises OSError if it cannot be recorded; nothing is adopted then.
        """
        async with self._turn:
            confirmed = replace(self._clock)
            ahead_ms = confirmed.confirm(now_ns=now_ns(), wall_ms=wall_ms(), by=by, reason=reason)
            await in_thread(self._clock_table.save, self._table(confirmed))
            self._clock = confirmed
            _log.warning(
                "the wall clock was confirmed: messages grow old by it again",
                ahead_s=ahead_ms // 1000,
                by=by,
                reason=reason,
            )
            self._had_jumped = False
            return ahead_ms

    async def _look(self) -> int:
        now_ms = self._clock.look(now_ns=now_ns(), wall_ms=wall_ms())
        if self._clock.jumped and not self._had_jumped:
            unknown = self._clock.unknown_since_ns is not None
            _log.warning(
                "the wall clock is ahead of the time that has passed: messages do not grow old by"
                " it until it returns, or until you run orderlane retention confirm-clock"
                + (", or for an hour after this start" if unknown else ""),
                ahead_s=self._clock.ahead_ms // 1000,
            )
        elif self._had_jumped and not self._clock.jumped:
            _log.warning("the wall clock agrees again with the time that has passed")
        self._had_jumped = self._clock.jumped
        newest = self._newest_file
        await in_thread(
            self._write_times.correct,
            [segment.path for segment in self._store.log.segments],
            now_ms=self._clock.steady_ms,
            tolerance_ms=self._clock.jump_ms,
        )
        self._dated = newest
        await in_thread(self._save)
        return now_ms

    def _save(self) -> None:
        try:
            self._clock_table.save(self._table(self._clock))
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise

    def _table(self, clock: RetentionClock) -> dict[str, Any]:
        return {**clock.to_table(), _NEWEST_FILE: self._dated}

    @property
    def _newest_file(self) -> int:
        segments = self._store.log.segments
        return segments[-1].start if segments else 0

    async def _announce(self, now_ms: int) -> None:
        """Warn about unread messages that are near their deletion."""
        end = self._near_end(now_ms)
        begin = self._store.log.first_offset
        self.figures.expiring = {} if end is None else await self._unread.between(begin, end)
        for (group, topic), messages in sorted(self.figures.expiring.items())[:_NAMED]:
            self._warnings.warn(
                "retention is about to delete messages that a group has not read: consume them, or"
                " raise retention_hours or retention_bytes",
                peer=f"{group} {topic}:",
                group=group,
                topic=topic,
                messages=messages,
            )

    def _near_end(self, now_ms: int) -> int | None:
        """Return the log offset below which everything is near its deletion, None without any."""
        hours, keep_bytes = self._settings.retention_hours, self._settings.retention_bytes
        before_ms = None if hours is None else now_ms - int(hours * 3_600_000 * _NEAR)
        log, end = self._store.log, None
        for segment in log.segments[:-1]:
            by_size = keep_bytes is not None and log.end_offset - segment.end >= keep_bytes * _NEAR
            if not by_size and not (
                before_ms is not None and segment.path.stat().st_mtime * 1000 < before_ms
            ):
                break
            end = segment.end
        return end

    async def _run(self, now_ms: int) -> None:
        hours = self._settings.retention_hours
        before_ms = None if hours is None else now_ms - int(hours * 3_600_000)
        keep_bytes = self._settings.retention_bytes
        cleared = 0
        while True:
            segment = self._store.next_to_expire(before_ms=before_ms, keep_bytes=keep_bytes)
            if segment is None or segment.end <= cleared:
                break
            if segment.end > self._store.visible_end:
                if self._settings.needed_replicas > 1:  # otherwise for the time of a sync
                    self._warnings.warn(
                        "old messages kept: replicas have not confirmed them, so no consumer could"
                        " read them yet; connect the slaves that are missing",
                        peer="",
                        segment=str(segment.path),
                    )
                break
            keep_from = self._keep_from()
            if keep_from is not None and segment.end > keep_from:
                self._warnings.warn(
                    "old messages kept: those of an undecided transaction are among them, which the"
                    " next check of transactions stores again",
                    peer="",
                    segment=str(segment.path),
                )
                break
            # A short segment, made on a full disk, contains only waiting messages.
            length = max(segment.capacity, self._settings.segment_bytes)
            if not await self._delayed.make_way(segment.end, length):
                self._warnings.warn(
                    "old messages kept: delayed ones among them are too many or too large to move,"
                    " or replicas have not confirmed their copies yet",
                    peer="",
                    segment=str(segment.path),
                )
                break
            cleared = segment.end
            unread = await self._unread.between(self._store.log.first_offset, segment.end)
            await self._store.delete_expired(
                before_ms=before_ms, keep_bytes=keep_bytes, keep_from=cleared
            )
            self._deleted(unread)

    def _deleted(self, unread: Unread) -> None:
        for number, ((group, topic), messages) in enumerate(sorted(unread.items())):
            self.figures.deleted[group, topic] += messages
            if number < _NAMED:
                _log.warning(
                    "messages that a group has not read were deleted",
                    group=group,
                    topic=topic,
                    messages=messages,
                )

    def shown(self) -> dict[str, int]:
        """Return the figures for the broker's runtime table."""
        return {
            "retentionClockAheadMillis": self._clock.ahead_ms if self._clock.jumped else 0,
            "retentionUnreadExpiring": sum(self.figures.expiring.values()),
            "retentionUnreadDeleted": sum(self.figures.deleted.values()),
        }
