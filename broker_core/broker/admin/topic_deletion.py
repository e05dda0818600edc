"""Deleting topics: from the log, from the tables, and from those who wait for messages.

The record in the log is the deletion; the tables follow. Each of them says how many of these
records it knows, so a start makes up for what a crash kept it from.
"""

from __future__ import annotations

from contextlib import suppress

import structlog

from broker_core.broker.groups.offsets import CommittedOffsets
from broker_core.broker.pulling.long_polls import LongPolls
from broker_core.broker.table_saver import TableSaver
from broker_core.broker.topics.directory import TopicDirectory
from broker_core.broker.topics.ended_lives import deletions_since
from broker_core.clock import wall_ms
from broker_core.errors import StoreError
from broker_core.names import Topic
from broker_core.store.deletions import DELETIONS
from broker_core.store.message_store import MessageStore

_log = structlog.get_logger("broker")


class TopicDeletion:
    """Deletes one topic at a time, and nobody can make or use it meanwhile.

    Its tables follow the log by ``catch_up``: at the start, and whenever a record becomes visible.
    """

    def __init__(
        self,
        store: MessageStore,
        *,
        directory: TopicDirectory,
        offsets: CommittedOffsets,
        offset_saver: TableSaver,
        long_polls: LongPolls,
    ) -> None:
        self._store = store
        self._directory = directory
        self._offsets = offsets
        self._offset_saver = offset_saver
        self._long_polls = long_polls

    async def delete(self, topic: Topic) -> None:
        """Delete *topic*, its messages and all groups' offsets in it; on return that is on disk.
        Nothing is done for one that does not exist. Its locks are left to expire.

        Raises OSError: nothing is deleted then, or only the topic's table could not be saved.
        """
        exists = self._directory.topics.find(topic) is not None
        if exists or self._store.reader.has_topic(topic):
            await self._directory.remove(topic, delete_messages=self._delete_messages)
        else:
            await self._directory.save()  # perhaps it could not be saved the last time

    def arrived(self, topic: Topic) -> None:
        """A message of *topic* became visible: if it is a record, the tables follow."""
        if topic == DELETIONS:
            try:
                self.catch_up(ahead=self._directory.read_only)
            except (OSError, StoreError) as error:
                _log.error("tables do not follow a deletion before a restart", reason=str(error))

    def catch_up(self, *, ahead: bool = False) -> None:
        """Delete from the tables what the log says is deleted, if they do not know that yet.

        *ahead*: tables of a master may know records that are not visible here yet. Raises OSError
        and StoreError if the log cannot be read.
        """
        reader, topics = self._store.reader, self._directory.topics
        known, number = topics.deletions, reader.end_offset(DELETIONS, 0)
        for topic, _ in deletions_since(reader, known):
            topics.remove(topic, now_ms=wall_ms())
            self._long_polls.end(topic)
        for topic, _ in deletions_since(reader, self._offsets.deletions):
            self._offsets.delete_topic(topic)
        # A log that lost its tail may have fewer: the next ones would be taken for those. But what
        # a table knows and replicas have yet to confirm must not be done to it a second time.
        most = None if ahead else reader.next_offset(DELETIONS, 0)
        topics.know_deletions(_known(known, number, most))
        self._offsets.know_deletions(_known(self._offsets.deletions, number, most))
        if topics.deletions != known:
            self._directory.must_save()

    async def _delete_messages(self, topic: Topic) -> None:
        # What was deleted before must not come back behind this: epochs of a group, say, when the
        # topic goes whose offsets they are.
        await self._offset_saver.save()
        await self._store.delete_topic(topic, store_ms=wall_ms())
        with suppress(OSError):  # they are saved again soon, and a start makes up for it
            await self._offset_saver.save()


def _known(before: int, visible: int, most: int | None) -> int:
    return max(visible, before if most is None else min(before, most))
