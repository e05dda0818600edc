"""A store with replicas, or a replica: messages become visible once they are confirmed.

Messages are confirmed when the required number of stores has them. The caller reports this
position, and it survives a restart as of the last checkpoint: later messages are in the log, but in
no queue before they are confirmed again. So no consumer sees a message that the loss of one store
can undo.
"""

from __future__ import annotations

from pathlib import Path

from broker_core.clock import now_ns
from broker_core.errors import StoreError
from broker_core.names import Topic
from broker_core.store.consume_queue import (
    ENTRIES_PER_FILE,
    ENTRY,
    LOST_BYTES,
    ConsumeQueue,
)
from broker_core.store.copies import Copied, lost_copy
from broker_core.store.copying import Chunk, CopiedGap, LostRun
from broker_core.store.damage import DamagedRun
from broker_core.store.damaged_copies import lost_in
from broker_core.store.deletions import DELETIONS
from broker_core.store.log_scan import Gap
from broker_core.store.message_store import Flush, MessageStore
from broker_core.store.pending import Added, notify_arrivals
from broker_core.store.recovery import taken_back
from broker_core.store.unconfirmed import FoundUnconfirmed, Unconfirmed

#: Time for ``confirm_some``, and bytes of the log between two looks at it.
CONFIRM_NS = 10_000_000
CONFIRMED_AT_ONCE_BYTES = 128 * 1024


class ReplicatedStore(MessageStore):
    """A ``MessageStore`` with replicas. A master puts messages, a slave copies them."""

    def __init__(
        self,
        folder: Path,
        *,
        segment_bytes: int = 256 * 1024 * 1024,
        flush: Flush = "sync",
        entries_per_file: int = ENTRIES_PER_FILE,
    ) -> None:
        super().__init__(
            folder, segment_bytes=segment_bytes, flush=flush, entries_per_file=entries_per_file
        )
        self._visible_end = self.confirmed_end = self._was_visible
        #: Damage that was copied: its start in the log, and why.
        self._gaps: dict[int, str] = {}
        for gap in self.recovery.gaps:
            self._gaps[gap.start] = gap.reason
        #: Deletions among the unconfirmed messages that the start has found, by number.
        self._found_deletions: dict[int, Topic] = {}
        #: In the log, not visible, before all pending ones.
        self._unconfirmed = self._found()

    def _found(self) -> Unconfirmed:
        """Take the messages that are not confirmed back from their queues; return them."""
        start, found = self._visible_end, FoundUnconfirmed(self.queues)
        gaps = [
            CopiedGap(each.start, each.end, each.reason)
            for each in self.recovery.gaps
            if each.start >= start
        ]
        lost = sorted(lost_in(self.queues, gaps), key=lambda run: run.place)
        self.copies.name_lost(lost)
        for message in taken_back(self.log, self.queues, behind=start):
            found.add(message)
        self._found_deletions = found.deletions
        for topic, ends in found.ends.items():
            for queue_id, end in ends.items():
                self._next_offsets[self.queues.obtain(topic, queue_id)] = end
        for run in lost:
            queue = self.queues.obtain(run.topic, run.queue_id)
            self._next_offsets[queue] = max(run.end, self._next_offsets.get(queue, 0))
        sizes = {each.start: each.end - each.start for each in gaps}
        copies = [lost_copy(run, size=sizes.get(run.place, 0)) for run in lost]
        return Unconfirmed(self.log, start=start, found=found, lost=copies)

    def refuse_deleted(self, known: int) -> None:
        """As the base: senders would get an answer, and then the deletion takes the topic."""
        for number, topic in self._found_deletions.items():
            if number >= known:
                self._deleting.setdefault(topic)

    def is_deletion_pending(self, topic: Topic) -> bool:
        """Return whether a deletion of *topic* is in the log and not visible yet."""
        if super().is_deletion_pending(topic):
            return True
        return topic in self._deleting and topic in self._found_deletions.values()

    async def copy(self, chunk: Chunk) -> None:
        """Append a chunk of another log to the end of this one; return when it is durable.

        Raises StoreError if it does not fit, OSError as ``put``; nothing is appended then.
        """
        if self._group_commit is None:
            raise RuntimeError("start() comes before copy()")
        for message in self.copies.append(chunk):
            self._hold(message)
        self._gaps.update({each.start: each.reason for each in chunk.gaps})
        self._appender.not_before(self.copies.last_store_ms)
        await self._as_flushed(self._group_commit)

    def confirm(self, end: int) -> None:
        """Make messages before *end* visible as soon as they are durable here.

        Raises StoreError if a copied one does not continue its queue.
        """
        if end > self.confirmed_end:
            self.confirmed_end = end
            self._make_visible(self.durable_end)

    def confirm_some(self, end: int) -> int:
        """Confirm as ``confirm``, but stop after about 10 ms; return the offset that was reached.

        What was stored in hours may be confirmed at once.
        """
        until_ns = now_ns() + CONFIRM_NS
        while self.confirmed_end < end:
            has_more = self.confirmed_end < self.durable_end
            step = self.confirmed_end + CONFIRMED_AT_ONCE_BYTES if has_more else end
            self.confirm(min(step, end))
            if now_ns() >= until_ns:
                break
        return min(self.confirmed_end, end)

    def _hold(self, message: Copied) -> None:
        self._unconfirmed.add(message)
        queue = self.queues.obtain(message.topic, message.queue_id)
        self._next_offsets[queue] = message.queue_end

    def _make_visible(self, log_end: int) -> None:
        log_end = min(log_end, self.confirmed_end)
        if log_end <= self._visible_end:
            return
        while (message := self._unconfirmed.first(log_end)) is not None:
            self._enter(message)  # may fail, and is repeated then
            self._unconfirmed.remove_first()
            self._visible_end = message.end
        if not self._unconfirmed:
            super()._make_visible(log_end)

    def _enter(self, message: Copied) -> None:
        queue = self.queues.obtain(message.topic, message.queue_id)
        if message.lost is not None:
            self._enter_lost(queue, message.lost)
            return
        if queue.end_offset < message.queue_offset and queue.is_empty:
            # The master's retention deleted the messages before, confirmed or not.
            queue.start_at(message.queue_offset)
        if self._gaps and queue.end_offset != message.queue_offset:
            queue = self._after_damage(queue, message)
        if queue.end_offset != message.queue_offset:
            raise StoreError(
                f"the message copied to {message.physical} has offset {message.queue_offset} in"
                f" queue {message.queue_id} of {message.topic}, where {queue.end_offset} is next"
            )
        queue.append(ENTRY.pack(message.physical, message.size, message.code))
        self._changed.add(queue)
        if message.ended:
            self._ended.append(message.ended)
            self._changed.add(self._ended)
        if self._next_offsets.get(queue) == queue.end_offset:
            del self._next_offsets[queue]
        if message.deletes is not None:
            self._drop_queues(message.deletes, at=message.end)
        elif message.topic == DELETIONS:
            self._end_found_deletion(message.queue_offset)
        self._notify(message, queue)

    def _end_found_deletion(self, number: int) -> None:
        """Accept messages of the topic again: the recovery has dropped its queues already."""
        topic = self._found_deletions.pop(number, None)
        if topic is not None and not self.is_deletion_pending(topic):
            self._end_deletion(topic)

    def _enter_lost(self, queue: ConsumeQueue, run: LostRun) -> None:
        """Leave out the offsets of messages that are damaged at the original too."""
        if queue.is_empty and queue.end_offset < run.first:
            queue.start_at(run.first)
        count = run.end - queue.end_offset
        if count > 0:
            first = queue.end_offset
            queue.append(ENTRY.pack(run.place, 0 if run.unwritten else LOST_BYTES, 0) * count)
            self._changed.add(queue)
            if not run.unwritten:
                gap = self._gap_at(run.place)
                self.reader.damaged.add(DamagedRun(run.topic, run.queue_id, first, run.end, gap))
        if self._next_offsets.get(queue) == queue.end_offset:
            del self._next_offsets[queue]

    def _after_damage(self, queue: ConsumeQueue, message: Copied) -> ConsumeQueue:
        """Return the queue that *message* continues, if damage that a restart has found is between
        it and the one before: messages are left out, or the record of a deletion.
        """
        last = queue.entry(queue.end_offset - 1)[0] if not queue.is_empty else -1
        places = [each for each in self._gaps if last <= each < message.physical]
        if not places:
            return queue
        if queue.end_offset < message.queue_offset:
            run = (queue.end_offset, message.queue_offset, max(places))
            self._enter_lost(queue, LostRun(message.topic, message.queue_id, *run))
        elif message.queue_offset == 0 < queue.end_offset:
            self._drop_queues(message.topic, at=message.physical)
            return self.queues.obtain(message.topic, message.queue_id)
        return queue

    def _gap_at(self, place: int) -> Gap:
        segment = self.log.segment_at(place)
        assert segment is not None
        reason = self._gaps.get(place, "it was copied so")
        return Gap(place, place + 1, segment.path, place - segment.start, reason)

    def _notify(self, message: Copied, queue: ConsumeQueue) -> None:
        if self._on_arrival is not None:
            added = Added(message.topic, message.queue_id, queue, [], {message.code})
            notify_arrivals(self._on_arrival, (added,))
