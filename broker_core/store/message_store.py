"""The store of one broker: appends messages, reads slices of the log.

A message becomes visible when it enters its consume queue. With ``flush="sync"`` that is after it
is on disk, so no consumer sees a message or offset that a power failure can undo.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Literal

import structlog

from broker_core.errors import MayBeStored
from broker_core.names import Topic
from broker_core.remoting.record_encoding import BatchEntry, Envelope
from broker_core.store.appending import Appender, Part
from broker_core.store.consume_queue import ENTRIES_PER_FILE, ConsumeQueue
from broker_core.store.copies import LogCopies
from broker_core.store.delay_index import DelayIndex, count_visible, ended_queue
from broker_core.store.deletions import deletion_of
from broker_core.store.expiry import delete_first_segment, note_entries
from broker_core.store.files import sync_file
from broker_core.store.gathered_puts import Done, GatheredPuts, PutResults, complete, complete_all
from broker_core.store.group_commit import GroupCommit
from broker_core.store.indexer import KeyIndexer
from broker_core.store.journaled_table import JournaledTable
from broker_core.store.opening import open_store
from broker_core.store.pending import ArrivalListener, Kept, Stored, notify_arrivals
from broker_core.store.reader import StoreReader
from broker_core.store.recovery import Checkpoint
from broker_core.store.segments import Segment
from broker_core.store.tables import JsonTable
from broker_core.tasks import cancel_and_wait, in_thread_of, spawn

_log = structlog.get_logger("store")

Flush = Literal["sync", "async"]

#: Time of messages that a recovery reads again, besides the check of the last segment.
CHECKPOINT_EVERY_S = 5.0
_ASYNC_FLUSH_EVERY_S = 0.5
VISIBLE_WITHIN_S = 5.0  # of a deletion on disk: without replicas at once
#: Queues whose files are written or searched before other work gets its turn: some milliseconds.
QUEUES_AT_ONCE = 64


class MessageStore:
    """The messages in *folder*. One event loop only. Times are milliseconds since 1970.

    Opening blocks: it reads the last segment, or the whole log if consume queues must be rebuilt.
    Raises StoreError if the folder cannot be used. Call ``start`` before the first ``put``.
    """

    def __init__(
        self,
        folder: Path,
        *,
        segment_bytes: int = 256 * 1024 * 1024,
        flush: Flush = "sync",
        entries_per_file: int = ENTRIES_PER_FILE,
    ) -> None:
        opened = open_store(folder, segment_bytes=segment_bytes, entries_per_file=entries_per_file)
        self._data, self.log, self.queues = opened.data, opened.log, opened.queues
        self.key_folder = folder / "index"  # as in RocketMQ's brokers
        self._checkpoint_table, self._checkpoint = opened.checkpoint_table, opened.checkpoint
        self.recovery = opened.recovery
        #: Access to the log for replication.
        self.copies = LogCopies(self.log, self.queues, rejoin=opened.rejoin_table)
        #: Offset up to which messages are as durable as ``flush`` promises.
        self.durable_end = self.log.end_offset
        self._appender = Appender(self.log, self.queues, last_store_ms=self.recovery.last_store_ms)
        self._next_offsets = self._appender.next_offsets
        self._gathered = GatheredPuts(self._append)
        self._changed = set(self.queues)  # since the last checkpoint
        self.reader = StoreReader(
            self.log, self.queues, next_offsets=self._next_offsets, on_repair=self._changed_queue
        )
        for run in self.recovery.damaged:
            self.reader.damaged.add(run)
        self.delays = DelayIndex(self.queues)
        self._ended = ended_queue(self.queues)
        self._flush = flush
        self._visible_end = self.log.end_offset
        self._was_visible = opened.visible_end
        #: Files of consume queues, and their folder if some were dropped.
        self._unsynced = {self.queues.folder} if self.recovery.deletions else set[Path]()
        #: Topics until their messages are gone, with what waits for that.
        self._deleting: dict[Topic, asyncio.Future[None] | None] = {}
        self._checkpoint_turn = asyncio.Lock()
        self._file_thread = ThreadPoolExecutor(1, thread_name_prefix="files")
        self._group_commit: GroupCommit | None = None
        self._on_arrival: ArrivalListener | None = None
        self._on_durable: Callable[[], None] | None = None
        self._replicas: Callable[[int], Awaitable[Kept]] | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def start(
        self,
        on_arrival: ArrivalListener | None = None,
        *,
        on_durable: Callable[[], None] | None = None,
        replicas: Callable[[int], Awaitable[Kept]] | None = None,
    ) -> None:
        """Accept and flush messages from now on. Needs the running loop.

        Args:
            on_arrival: called when messages become visible
            on_durable: called when ``durable_end`` has risen
            replicas: returns how well the log is replicated up to an offset, once that is known;
                each ``put`` waits for it
        """
        self._on_arrival, self._on_durable, self._replicas = on_arrival, on_durable, replicas
        self._group_commit = GroupCommit(
            self.log, before_sync=self._append_gathered, on_synced=self._made_durable
        )
        self._tasks.append(spawn(self._checkpoint_regularly(), name="store checkpoint"))
        if self._flush == "async":
            self._tasks.append(spawn(self._sync_regularly(), name="store flush"))

    async def close(self) -> None:
        """Write everything and release the folder. Raise OSError if the disk fails."""
        await cancel_and_wait(*self._tasks)
        try:
            await self.checkpoint()
        except BaseException:
            self.abandon()
            raise
        self._close_files()
        self._data.close()

    def abandon(self) -> None:
        """Release the folder as a crash would leave it."""
        for task in self._tasks:
            task.cancel()
        self._close_files()
        self._data.release()

    @property
    def end_offset(self) -> int:
        """Log offset after the last message that was put."""
        return self.log.end_offset

    @property
    def visible_end(self) -> int:
        """Log offset after the last visible message."""
        return self._visible_end

    @property
    def largest_put_bytes(self) -> int:
        """Largest size of the stored messages of one ``put_all``, in bytes."""
        return self.log.largest_append_bytes

    def next_to_expire(self, *, before_ms: int | None, keep_bytes: int | None) -> Segment | None:
        """Return the segment that ``delete_expired`` would delete first, or None."""
        if not self.log.has_expired_segment(before_ms=before_ms, keep_bytes=keep_bytes):
            return None
        return self.log.segments[0]

    @property
    def tables_folder(self) -> Path:
        """Folder of the files of ``table``."""
        return self._data.path / "config"

    def table(self, name: str, *, is_derived: bool = False) -> JsonTable:
        """Return the table ``config/NAME.json`` of the folder; *is_derived* as of ``JsonTable``."""
        return JsonTable(self.tables_folder / f"{name}.json", is_derived=is_derived)

    def journaled_table(self, name: str) -> JournaledTable:
        """Return the same table for saving single changes."""
        return JournaledTable(self.tables_folder / f"{name}.json")

    def key_indexer(self) -> KeyIndexer:
        """Return the index of keys; start it, and close it before the store.

        Call it once, before ``start``. Blocks, and raises OSError.
        """
        folder = self.key_folder
        return KeyIndexer(folder, self.log, self.reader, visible_end=lambda: self._visible_end)

    async def put(
        self, envelope: Envelope, entries: Sequence[BatchEntry], *, store_ms: int
    ) -> Stored:
        """Append messages to one queue; return when they are visible (sync: and on disk).

        Messages of a queue get their offsets in the order of the calls. Raises OSError if the disk
        is full or fails, ValueError if they exceed a segment, and LocalProtocolError as
        ``encode_stored``; nothing is visible then, and of these errors only MayBeStored means that
        the next start may find them. A caller that is cancelled has stored them.
        """
        (stored,) = await self.put_all([(envelope, entries)], store_ms=store_ms)
        return stored

    def put_soon(
        self, envelope: Envelope, entries: Sequence[BatchEntry], done: Done, *, store_ms: int
    ) -> None:
        """Append messages as ``put``, but gathered with other puts and without a task.

        *done* receives the result or error of ``put``, perhaps before this returns. Puts are stored
        in the order of the calls, before a deletion that is requested later.
        """
        if self._group_commit is None:
            raise RuntimeError("start() comes before put_soon()")
        if self._replicas is not None:
            try:
                stored = self._append([(envelope, entries)], store_ms)
            except Exception as error:
                complete(done, error)
                return
            spawn(self._complete_once_kept(stored, done), name="put")
            return
        if self._flush == "sync":
            self._group_commit.request()
        elif not self._gathered:  # not after a sync for which nothing waits
            asyncio.get_running_loop().call_soon(self._append_gathered)
        self._gathered.add((envelope, entries), done, store_ms=store_ms)

    async def _complete_once_kept(self, appended: list[Stored], done: Done) -> None:
        try:
            (stored,) = await self._once_kept(appended)
        except Exception as error:
            complete(done, error)
        else:
            complete(done, stored)

    async def put_all(
        self, parts: Sequence[Part], *, store_ms: int, short_segment: bool = False
    ) -> list[Stored]:
        """Append messages to several queues with one write; they become visible together.

        They are adjacent in the log, in the order of *parts*. After a crash the first ones may
        exist without the others. *short_segment*: as ``CommitLog.make_room``. Returns and raises as
        ``put``.
        """
        if self._group_commit is None:
            raise RuntimeError("start() comes before put()")
        stored = self._appender.append(
            parts, store_ms, closed=self._deleting, short_segment=short_segment
        )
        return await self._once_kept(stored)

    async def _once_kept(self, stored: list[Stored]) -> list[Stored]:
        assert self._group_commit is not None
        try:
            await self._as_flushed(self._group_commit)
        except MayBeStored:
            raise
        except OSError as error:  # they are in the log, and are not visible yet
            raise MayBeStored(error.errno, error.strerror) from error
        if self._replicas is not None and stored:
            kept = await self._replicas(stored[-1].log_end)
            if kept is not Kept.WELL:
                return [each._replace(kept=kept) for each in stored]
        return stored

    async def _as_flushed(self, group_commit: GroupCommit) -> None:
        if self._flush == "sync":
            await group_commit.wait(self.log.end_offset)
        else:
            self._made_durable(self.log.end_offset)

    def is_deleting(self, topic: Topic) -> bool:
        """Return whether *topic* rejects messages because it is being deleted."""
        return topic in self._deleting

    def refuse_deleted(self, known: int) -> None:
        """Reject messages of topics with a deletion that a start has found and that is not visible
        yet: from number *known* on. The table of topics has those before.
        """

    def is_deletion_pending(self, topic: Topic) -> bool:
        """Return whether a deletion of *topic* is in the log and not visible yet."""
        return topic in self._deleting and self._appender.will_delete(topic)

    async def delete_topic(self, topic: Topic, *, store_ms: int) -> None:
        """Delete the messages of *topic*; return when they cannot reappear.

        Its queues begin at 0 again. A put to the topic meanwhile raises OSError. Raises OSError if
        the deletion cannot be written; nothing is deleted then, unless the log failed and the next
        start finds more of it than was known. If replicas do not confirm it within seconds, raises
        OSError while the deletion continues.
        """
        if self._group_commit is None:
            raise RuntimeError("start() comes before delete_topic()")
        if topic not in self._deleting:
            # Gathered messages in internal topics belong to the life that ends now.
            self._append_gathered()
            self._append([deletion_of(topic)], store_ms, deletes=topic)
            self._deleting[topic] = None
        if (gone := self._deleting[topic]) is None:
            gone = self._deleting[topic] = asyncio.get_running_loop().create_future()
        await self._group_commit.wait(self.log.end_offset)
        try:
            async with asyncio.timeout(VISIBLE_WITHIN_S):
                await asyncio.shield(gone)
        except TimeoutError:
            raise OSError(errno.ETIMEDOUT, "no replica has confirmed it yet") from None
        # A start with an older checkpoint reads the whole log: entries that it counts are gone.
        await self._checkpoint_or_log()
        await in_thread_of(self._file_thread, self.queues.delete_dropped)

    async def sync(self) -> None:
        """Bring all messages to disk. Raise OSError if it fails."""
        if self._group_commit is not None:
            await self._group_commit.wait(self.log.end_offset)

    async def confirmed(self) -> Kept:
        """Bring all messages to disk; return how durable they are. Raise OSError if it fails."""
        await self.sync()
        return Kept.WELL if self._replicas is None else await self._replicas(self.log.end_offset)

    async def checkpoint(self) -> None:
        """Bring everything to disk and record its extent. Raise OSError if the disk fails."""
        async with self._checkpoint_turn:  # one that began later must not count files of this one
            await self._checkpoint_now()

    async def _checkpoint_now(self) -> None:
        await self.sync()
        await self._flush_queues()
        entries = count_visible(self.queues, self._visible_end)
        checkpoint = Checkpoint(self._visible_end, entries, self.log.first_offset)
        if checkpoint == self._checkpoint:
            return
        changed, self._changed = self._changed, set()
        try:
            for queue in changed:
                queue.flush()
                self._unsynced |= queue.take_written()
            written = tuple(self._unsynced)
            if self._group_commit is not None:
                # With flush="async" messages are visible before they are on disk.
                await self._group_commit.wait(checkpoint.physical)
            await in_thread_of(self._file_thread, self._write_checkpoint, checkpoint, written)
        except BaseException:
            self._changed |= changed
            raise
        self._unsynced.difference_update(written)
        self._checkpoint = checkpoint

    async def delete_expired(
        self, *, before_ms: int | None, keep_bytes: int | None, keep_from: int | None = None
    ) -> int:
        """Delete the oldest expired segments; return their number. Raise OSError.

        Never the last one, and none with messages that are not visible yet: they would vanish
        before a consumer could read them. Do not call it again before it has returned.

        Args:
            before_ms: segments last written earlier than this expire; None: none by age
            keep_bytes: segments beyond the newest bytes of the log expire; None: none by size
            keep_from: log offset of a message; it and newer ones are kept
        """
        deleted, first = 0, self.log.first_offset
        try:
            while self.log.has_expired_segment(before_ms=before_ms, keep_bytes=keep_bytes):
                end = self.log.segments[0].end
                if end > self._visible_end or (keep_from is not None and end > keep_from):
                    break
                if not self._checkpoint or self._checkpoint.physical < end:
                    await note_entries(self.checkpoint)
                await delete_first_segment(self.log, reader=self.reader, thread=self._file_thread)
                deleted += 1
        finally:  # the last one may be gone though its deletion failed
            if (now := self.log.first_offset) > first:
                await self._forget_before(now)
                _log.info("old segments deleted", segments=deleted, log_now_starts_at=now)
        return deleted

    async def _forget_before(self, place: int) -> None:
        """Delete what indexes have of messages before *place* of the log. Raise OSError."""
        for number, (topic, queue_id, queue) in enumerate(list(self.queues.named()), 1):
            if self.queues.find(topic, queue_id) is queue:  # its topic was not deleted meanwhile
                oldest = queue.first_at_or_behind(place)
                queue.delete_before(oldest)
                self.reader.damaged.forget_before(topic, queue_id, oldest)
            if number % QUEUES_AT_ONCE == 0:
                await asyncio.sleep(0)

    async def _flush_queues(self) -> None:
        """Write the entries of changed queues before a checkpoint, which then finds few of them."""
        for number, queue in enumerate(list(self._changed), 1):
            queue.flush()
            self._unsynced |= queue.take_written()
            if number % QUEUES_AT_ONCE == 0:
                await asyncio.sleep(0)

    def _append(
        self, parts: Sequence[Part], store_ms: int, *, deletes: Topic | None = None
    ) -> list[Stored]:
        return self._appender.append(parts, store_ms, closed=self._deleting, deletes=deletes)

    def _append_gathered(self) -> None:
        results: PutResults = []
        while self._gathered:  # a callback of a failure may read the next requests at once
            results += self._gathered.append_all()
        if self._flush == "sync" and results:
            assert self._group_commit is not None
            self._group_commit.call_when(results[-1][1].log_end, partial(complete_all, results))
        elif results:
            self._made_durable(self.log.end_offset)
            complete_all(results, None)

    def _made_durable(self, log_end: int) -> None:
        self.durable_end = max(self.durable_end, log_end)
        self._make_visible(log_end)
        if self._on_durable is not None:
            self._on_durable()

    def _make_visible(self, log_end: int) -> None:
        while (put := self._appender.take(log_end)) is not None:
            self._visible_end = put.log_end
            for added in put.added:
                queue = added.queue
                queue.append(b"".join(added.entries))
                self._changed.add(queue)
                if self._next_offsets[queue] == queue.end_offset:
                    del self._next_offsets[queue]
            if put.ended:
                self._ended.append(put.ended)
                self._changed.add(self._ended)
            if put.deletes is not None:
                self._drop_queues(put.deletes, at=put.log_end)
            if self._on_arrival is not None:
                notify_arrivals(self._on_arrival, put.added)
        # Otherwise log_end may be in the middle of a put without entries.
        if not self._appender.has_pending():
            self._visible_end = max(self._visible_end, log_end)  # async: a sync ends later

    def _changed_queue(self, queue: ConsumeQueue) -> None:
        self._changed.add(queue)

    def _drop_queues(self, topic: Topic, *, at: int) -> None:
        for queue in self.queues.of_topic(topic):
            self.reader.forget(queue)
        self.reader.damaged.forget_topic(topic)
        self._unsynced.add(self.queues.folder)
        try:
            dropped = self.queues.drop(topic, at=at)
        except OSError as error:
            # The old entries are in the way: the topic rejects messages until a start has deleted
            # them.
            _log.error(
                "files of a deleted topic remain until the next start",
                topic=topic,
                reason=str(error),
            )
            gone = self._deleting.get(topic)
        else:
            self._changed.difference_update(dropped)
            for queue in dropped:
                self._next_offsets.pop(queue, None)
            gone = self._deleting.pop(topic, None)
        _end(gone)

    def _end_deletion(self, topic: Topic) -> None:
        """Accept messages of *topic*, which is deleted."""
        _end(self._deleting.pop(topic, None))

    def _write_checkpoint(self, checkpoint: Checkpoint, written: tuple[Path, ...]) -> None:
        for path in sorted(written, reverse=True):  # the content of a folder before the folder
            sync_file(path)
        self._checkpoint_table.save(checkpoint.to_table())

    async def _checkpoint_regularly(self) -> None:
        while True:
            await asyncio.sleep(CHECKPOINT_EVERY_S)
            await self._checkpoint_or_log()

    async def _checkpoint_or_log(self) -> None:
        try:
            await self.checkpoint()
        except OSError as error:
            _log.error(
                "checkpoint not written; the next start reads more of the log", reason=str(error)
            )

    async def _sync_regularly(self) -> None:
        while True:
            await asyncio.sleep(_ASYNC_FLUSH_EVERY_S)
            await self.sync()

    def _close_files(self) -> None:
        if self._group_commit is not None:
            self._group_commit.close()
        self._file_thread.shutdown()
        self.queues.close()
        self.log.close()


def _end(gone: asyncio.Future[None] | None) -> None:
    if gone is not None and not gone.done():
        gone.set_result(None)
