"""Deletion of topics: from the log, from the tables, from held pulls and from counts.

The record in the log is the deletion; the tables follow. Each table stores the number of these
records that it has applied, so a start completes what a crash interrupted.
"""

from __future__ import annotations

from contextlib import suppress

import structlog

from broker_core.broker.groups.offsets import CommittedOffsets
from broker_core.broker.pulling.long_polls import LongPolls
from broker_core.broker.table_saver import Saver
from broker_core.broker.topics.directory import TopicDirectory
from broker_core.broker.topics.ended_lives import deletions_since
from broker_core.broker.traffic import Traffic
from broker_core.clock import wall_ms
from broker_core.errors import StoreError
from broker_core.names import Topic
from broker_core.store.deletions import DELETIONS
from broker_core.store.message_store import MessageStore

_log = structlog.get_logger("broker")


class TopicDeletion:
    """Deletes one topic at a time; meanwhile it cannot be created or used.

    Tables follow the log by ``catch_up``: at the start, and whenever a record becomes visible.
    """

    def __init__(
        self,
        store: MessageStore,
        *,
        directory: TopicDirectory,
        offsets: CommittedOffsets,
        offset_saver: Saver,
        long_polls: LongPolls,
        traffic: Traffic,
    ) -> None:
        self._store = store
        self._directory = directory
        self._offsets = offsets
        self._offset_saver = offset_saver
        self._long_polls = long_polls
        self._traffic = traffic

    async def delete(self, topic: Topic) -> None:
        """Delete *topic*, its messages and all groups' offsets in it, durably.

        Does nothing if it does not exist. Its locks are left to expire. Raises OSError: nothing is
        deleted then, or only the topic's table could not be saved.
        """
        exists = self._directory.topics.find(topic) is not None
        if exists or self._store.reader.has_topic(topic):
            await self._directory.remove(topic, delete_messages=self._delete_messages)
        else:
            await self._directory.save()  # the last save may have failed

    def arrived(self, topic: Topic) -> None:
        """Apply a record of *topic* to the tables if one of its messages became visible."""
        if topic == DELETIONS:
            try:
                self.catch_up(ahead=self._directory.read_only)
            except (OSError, StoreError) as error:
                _log.error("deletion not applied to the tables until a restart", reason=str(error))

    def catch_up(self, *, ahead: bool = False) -> None:
        """Delete from the tables what records of the log delete, unless done already.

        *ahead*: tables of a master may include records that are not visible here yet. Raises
        OSError, or StoreError if the log cannot be read.
        """
        reader, topics = self._store.reader, self._directory.topics
        known, number = topics.deletions, reader.end_offset(DELETIONS, 0)
        removed = [topic for topic, _ in deletions_since(reader, known)]
        for topic in removed:
            topics.remove(topic, now_ms=wall_ms())
            self._long_polls.end(topic)
            self._traffic.forget_topic(topic)
        for topic, _ in deletions_since(reader, self._offsets.deletions):
            self._offsets.delete_topic(topic)
        # A log that lost its tail may have fewer records: the next ones would be taken for those.
        # But a record that a table has applied and replicas have yet to confirm must not be applied
        # twice.
        most = None if ahead else reader.next_offset(DELETIONS, 0)
        topics.know_deletions(_known(known, number, most))
        self._offsets.know_deletions(_known(self._offsets.deletions, number, most))
        if topics.deletions != known:
            self._directory.must_save(removed)

    async def _delete_messages(self, topic: Topic) -> None:
        # Save earlier deletions first, or they could be undone later: the epochs of a group, say,
        # when the topic is deleted whose offsets they are.
        await self._offset_saver.save()
        await self._store.delete_topic(topic, store_ms=wall_ms())
        with suppress(OSError):  # saved again soon, and a start completes it
            await self._offset_saver.save()


def _known(before: int, visible: int, most: int | None) -> int:
    return max(visible, before if most is None else min(before, most))
