"""Indexes the keys of messages while following the log, without delaying sends.

It reads visible messages from the log, a few hundred at a time, on the event loop. It gives way to
reads and sends, and may fall behind within bounds (``index_pace``).
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path

import structlog

from broker_core.clock import now_ns
from broker_core.errors import StoreError
from broker_core.names import Topic
from broker_core.remoting.key_hash import plain_key
from broker_core.remoting.message import (
    FIXED_BYTES,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    StoredMessage,
)
from broker_core.remoting.record_fields import fields_of
from broker_core.store.commit_log import FILLER, CommitLog
from broker_core.store.files import sync_file
from broker_core.store.index_keys import has_key, hashes_of, key_hash
from broker_core.store.index_pace import PAUSE_NS, SLICE_NS, IndexPace
from broker_core.store.key_index import IndexRestarted, KeyIndex, RunDamaged
from broker_core.store.log_scan import LogScan, UnreadableAsDamage, is_unreadable
from broker_core.store.reader import StoreReader
from broker_core.store.segments import Segment
from broker_core.tasks import cancel_and_wait, in_thread, spawn

CHUNK_BYTES = 64 * 1024
_IDLE_S, RETRY_S = 0.25, 5.0
_MAGICS = (MAGIC_V1, MAGIC_V2)
_LOOKS = 64  # messages checked before other work runs

_log = structlog.get_logger("store")


class _NotARecord(Exception):
    """Neither a message nor a filler starts at the position of the index."""


class IndexBehind(Exception):
    """The index did not catch up in time; the message gives its position."""


class KeyIndexer:
    """The key index of one store. One event loop only; opening blocks, and raises OSError."""

    def __init__(
        self, folder: Path, log: CommitLog, reader: StoreReader, *, visible_end: Callable[[], int]
    ) -> None:
        self._log = log
        self._reader = reader
        self._visible_end = visible_end
        starts = [segment.start for segment in log.segments]
        self._index = KeyIndex(folder, segments=starts, end=visible_end())
        self._pace = IndexPace()
        self._wanted = 0  # waiting queries
        self._last = -1  # position of the last message entered
        self._moved = asyncio.Event()
        self._asked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def position(self) -> int:
        """Log offset up to which keys are indexed."""
        return self._index.position

    def start(self) -> None:
        """Follow the log from now on. Needs the running loop."""
        self._task = spawn(self._follow(), name="key index")

    async def close(self) -> None:
        """Stop following; before the store is closed."""
        if self._task is not None:
            await cancel_and_wait(self._task)
        self._index.close()

    async def find(
        self, topic: Topic, key: str, *, begin_ms: int, end_ms: int, timeout_s: float
    ) -> AsyncIterator[StoredMessage]:
        """Yield messages of *topic* with *key*, stored from *begin_ms* to *end_ms*, newest first.

        Includes all messages visible now. Raises IndexBehind if the index does not catch up within
        *timeout_s*.
        """
        await self._reach(self._visible_end(), timeout_s)
        wanted = plain_key(key).encode("utf-8", "surrogatepass")
        hashed = key_hash(topic.encode(), wanted)
        looks = 0
        async for place in self._candidates(hashed, begin_ms, end_ms, timeout_s):
            looks += 1
            if place is None or looks % _LOOKS == 0:
                await asyncio.sleep(0)
            if place is None:
                continue
            message = self._message_at(place)
            if (
                message is not None
                and message.topic == topic
                and begin_ms <= message.store_ms <= end_ms
                and has_key(message.raw_properties, wanted)
            ):
                yield message

    def _message_at(self, place: int) -> StoredMessage | None:
        try:
            return self._reader.message_at(place)
        except OSError as error:
            if is_unreadable(error):
                return None  # as any damaged message
            raise

    async def _candidates(
        self, hashed: int, begin_ms: int, end_ms: int, timeout_s: float
    ) -> AsyncIterator[int | None]:
        """Yield candidates as the index does; a damaged part of it is made again first."""
        given: set[int] = set()
        while True:
            try:
                for place in self._index.candidates(hashed, begin_ms=begin_ms, end_ms=end_ms):
                    if place not in given:
                        yield place
                    if place is not None:
                        given.add(place)
                return
            except RunDamaged as error:
                _log.warning("a part of the key index is made again", reason=str(error))
                self._index.restart_at(error.segment)
                self._last = -1
            except IndexRestarted:
                pass
            await self._reach(self._visible_end(), timeout_s)

    async def _reach(self, end: int, timeout_s: float) -> None:
        self._wanted += 1
        self._asked.set()
        try:
            async with asyncio.timeout(timeout_s):
                while self._index.position < end:
                    self._moved.clear()
                    await self._moved.wait()
        except TimeoutError:
            raise IndexBehind(
                f"the key index is being built: it is at byte {self._index.position} of the log,"
                f" which ends at {end}; try again later"
            ) from None
        finally:
            self._wanted -= 1

    # ---- following ------------------------------------------------------------------------------

    async def _follow(self) -> None:
        while True:
            try:
                behind = self._index_some()
                if (finished := self._index.take_finished()) is not None:
                    await in_thread(sync_file, finished)
                self._index.delete_before(self._log.first_offset)
            except (OSError, StoreError, struct.error, IndexError) as error:
                _log.error("keys not indexed, trying again", reason=str(error))
                await asyncio.sleep(RETRY_S)
                continue
            self._moved.set()
            end = self._visible_end()
            pause_ns = self._pace.pause_ns(
                now_ns(),
                served=(self._reader.reads, end),
                behind_bytes=end - self._index.position if behind else 0,
                asked=self._wanted > 0,
            )
            if behind:
                await asyncio.sleep(pause_ns / 1e9)
            else:
                await self._rest()

    async def _rest(self) -> None:
        """Wait until there may be messages to index, or a query waits."""
        self._asked.clear()
        if self._wanted:
            await asyncio.sleep(PAUSE_NS / 1e9)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(_IDLE_S):
                await self._asked.wait()

    def _index_some(self) -> bool:
        """Index for ``SLICE_NS``, at most to the end of a segment; return whether more is left."""
        index = self._index
        index.write_due()
        end, until_ns = self._visible_end(), now_ns() + SLICE_NS
        while index.position < end:
            segment = self._log.segment_at(index.position)
            if segment is None:  # deleted before it was read
                index.delete_before(self._log.first_offset)
                continue
            size = min(CHUNK_BYTES, segment.end - index.position, end - index.position)
            data = self._bytes_at(index.position, size)
            try:
                at_end = self._enter(data, segment.end)
            except (_NotARecord, struct.error, IndexError):
                at_end = self._step_over_damage(segment, end)
            index.write_due()
            if at_end or now_ns() >= until_ns:
                break
        return index.position < end

    def _bytes_at(self, position: int, size: int) -> bytes:
        """Return bytes of the log, as damage where the disk cannot read them."""
        try:
            return self._log.read(position, size)
        except OSError as error:
            segment = self._log.segment_at(position)
            if segment is None or not is_unreadable(error):
                raise
            return UnreadableAsDamage(self._log).read_segment(segment, position, size)

    def _step_over_damage(self, segment: Segment, end: int) -> bool:
        """Continue at the next intact message; return whether it is in another segment.

        The size of the last message may be what is damaged: the search begins there.
        """
        index = self._index
        start = self._last if self._last >= segment.start else index.position
        log = UnreadableAsDamage(self._log)
        for message in LogScan(log, start=start, until=min(segment.end, end)):
            if message.physical_offset > self._last:
                index.advance(message.physical_offset)
                return False
        ended = segment.end <= end
        index.advance(segment.end if ended else end, ends_segment=ended)
        return ended

    def _enter(self, data: bytes, segment_end: int) -> bool:
        """Enter the complete messages of *data*; return whether the segment ended with it."""
        index, position, total = self._index, 0, len(data)
        start = index.position
        room = segment_end - start
        while position + FILLER.size <= total:
            record_bytes, magic = FILLER.unpack_from(data, position)
            if magic == MAGIC_BLANK:
                index.advance(segment_end, ends_segment=True)
                return True
            end = position + record_bytes
            if record_bytes < FIXED_BYTES or magic not in _MAGICS or end > room:
                index.advance(start + position)
                raise _NotARecord
            if end > total:
                if position == 0:  # larger than one read
                    data = self._bytes_at(start, record_bytes)
                    total = len(data)
                    continue
                break
            self._last = place = start + position
            topic, properties, store_ms = fields_of(data, position)
            if hashes := hashes_of(topic, properties):
                index.add(hashes, place, store_ms=store_ms)
            position = end
        ended = start + position == segment_end or segment_end - start - position < FILLER.size
        index.advance(segment_end if ended else start + position, ends_segment=ended)
        return ended
