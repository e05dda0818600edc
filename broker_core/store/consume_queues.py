"""All consume queues of a store, in folders ``TOPIC/QUEUE_ID`` as in RocketMQ.

The queues of a deleted topic are moved to a name that no topic can have until their files are
deleted: a folder is renamed at once, whatever its size.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from broker_core.names import TIMER_TOPIC, Topic
from broker_core.private_files import make_folder
from broker_core.store.consume_queue import ENTRIES_PER_FILE, ConsumeQueue
from broker_core.store.files import OpenFiles

_DROPPED = ".dropped"
#: Receives topic, queue id, queue, the first offset and the number of wrong entries.
Repair = Callable[[Topic, int, ConsumeQueue, int, int], None]


class ConsumeQueues:
    """The queues found in *folder*, and new ones. One thread only."""

    def __init__(self, folder: Path, *, entries_per_file: int = ENTRIES_PER_FILE) -> None:
        self.folder = folder
        self._entries_per_file = entries_per_file
        self._files = OpenFiles()
        self._queues: dict[tuple[Topic, int], ConsumeQueue] = {}
        self._by_topic: dict[Topic, dict[int, ConsumeQueue]] = {}
        self._repair: Repair | None = None
        make_folder(folder)
        self.delete_dropped()
        for queue_folder in folder.glob("*/*"):
            if queue_folder.name.isdigit():
                self.obtain(Topic(queue_folder.parent.name), int(queue_folder.name))

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter(self._queues.values())

    def named(self) -> Iterator[tuple[Topic, int, ConsumeQueue]]:
        """Yield all queues, with topic and id."""
        for (topic, queue_id), queue in self._queues.items():
            yield topic, queue_id, queue

    def repair_with(self, repair: Repair) -> None:
        """Call *repair* for entries that do not match their checksums, from now on."""
        self._repair = repair

    def _wrong(self, queue: ConsumeQueue, first: int, count: int) -> bool:
        topic, queue_id = Topic(queue.folder.parent.name), int(queue.folder.name)
        is_ended = (topic, queue_id) == (TIMER_TOPIC, 1)  # its entries name no messages of it
        if self._repair is None or is_ended or self._queues.get((topic, queue_id)) is not queue:
            return False
        self._repair(topic, queue_id, queue, first, count)
        return True

    def find(self, topic: Topic, queue_id: int) -> ConsumeQueue | None:
        """Return the queue, or None if it never had a message."""
        return self._queues.get((topic, queue_id))

    def obtain(self, topic: Topic, queue_id: int) -> ConsumeQueue:
        """Return the queue, creating an empty one if needed."""
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            folder = self.folder / topic / str(queue_id)
            queue = ConsumeQueue(
                folder,
                files=self._files,
                entries_per_file=self._entries_per_file,
                on_wrong=self._wrong,
            )
            self._queues[topic, queue_id] = queue
            self._by_topic.setdefault(topic, {})[queue_id] = queue
        return queue

    def of_topic(self, topic: Topic) -> list[ConsumeQueue]:
        """Return the queues of *topic*."""
        return list(self._by_topic.get(topic, {}).values())

    def has_topic(self, topic: Topic) -> bool:
        """Return whether any queue of *topic* ever had a message."""
        return topic in self._by_topic

    def drop(self, topic: Topic, *, at: int) -> list[ConsumeQueue]:
        """Remove the queues of *topic* and return them; they must not be used any more.

        *at* must differ for each drop. On OSError the queues are removed from memory, but files
        that stay on disk reappear at the next start.
        """
        queue_ids = self._by_topic.pop(topic, {})
        dropped = [self._queues.pop((topic, queue_id)) for queue_id in queue_ids]
        for queue in dropped:
            queue.leave()
        folder = self.folder / topic
        if folder.exists():
            folder.rename(self.folder / f"{topic}.{at}{_DROPPED}")
        return dropped

    def delete_dropped(self) -> None:
        """Delete the files of dropped queues as far as possible; in any thread."""
        for folder in self.folder.glob(f"*{_DROPPED}"):
            shutil.rmtree(folder, ignore_errors=True)

    def count(self) -> int:
        """Return the number of all entries ever made, over all queues."""
        return sum(queue.end_offset for queue in self)

    def count_by_topic(self) -> dict[Topic, int]:
        """Return the number of all entries ever made, by topic."""
        return {topic: self.count_of(topic) for topic in self._by_topic}

    def count_of(self, topic: Topic) -> int:
        """Return the number of entries ever made of *topic*."""
        return sum(queue.end_offset for queue in self._by_topic.get(topic, {}).values())

    def close(self) -> None:
        """Close the files; the next recovery rebuilds entries that were not flushed."""
        self._files.close()
