"""The topics of a broker, saved and announced when they change."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import orjson

from broker_core.broker.table_saver import uncancelled
from broker_core.broker.topics.topics import Topics
from broker_core.clock import wall_ms
from broker_core.errors import BrokerError
from broker_core.names import Topic
from broker_core.remoting.codes import ResponseCode
from broker_core.remoting.route_bodies import Perm, TopicConfig
from broker_core.store.tables import JsonTable


class TopicDirectory:
    """Finds topics and checks the permissions of a request."""

    def __init__(
        self,
        topics: Topics,
        table: JsonTable,
        *,
        announce: Callable[[], Awaitable[None]],
        read_only: bool = False,
    ) -> None:
        """Manage *topics*.

        *announce* notifies the nameservers and does not raise. *read_only*: topics come only from a
        master, by ``replace``.
        """
        self.topics = topics
        self.read_only = read_only
        self._table = table
        self._announce = announce
        self._turn = asyncio.Lock()
        self._unsaved = False

    async def define(self, config: TopicConfig) -> None:
        """Create or change a topic; on return it is on disk and announced.

        It cannot be used before it is on disk, or a crash could remove a topic with acknowledged
        messages. Raises OSError without a change.
        """
        await uncancelled(self._define(config), name=f"define topic {config.topic}")

    async def _define(self, config: TopicConfig) -> None:
        async with self._turn:
            now_ms = wall_ms()
            changed = self.topics.copy()
            if not changed.put(config, now_ms=now_ms):
                return
            await self._write(changed)
            self.topics.put(config, now_ms=now_ms)
        await self._announce()

    async def remove(
        self, topic: Topic, *, delete_messages: Callable[[Topic], Awaitable[None]]
    ) -> None:
        """Delete a topic, if it exists; on return that is on disk and announced.

        It exists until *delete_messages*, which admits no more messages, has returned; only then
        can it be created again. Raises the errors of that, and OSError if the table cannot be
        saved, which ``save`` repeats.
        """
        await uncancelled(self._remove(topic, delete_messages), name=f"delete topic {topic}")

    async def _remove(
        self, topic: Topic, delete_messages: Callable[[Topic], Awaitable[None]]
    ) -> None:
        before = self.topics.version
        async with self._turn:
            await delete_messages(topic)
            self.topics.remove(topic, now_ms=wall_ms())
            self._unsaved = True
        await self.save()
        if self.topics.version != before:
            await self._announce()

    def must_save(self) -> None:
        """Make the next ``save`` write the table: it was changed elsewhere."""
        self._unsaved = True

    async def save(self) -> None:
        """Write the table if it lacks a deletion. Raise OSError."""
        if self._unsaved:
            async with self._turn:
                await self._write(self.topics)

    async def _write(self, topics: Topics) -> None:
        self._unsaved = True
        await asyncio.to_thread(self._table.save_bytes, orjson.dumps(topics.to_table()))
        self._unsaved = False

    async def replace(self, topics: Topics) -> None:
        """Replace the topics by the master's, durably. Raise OSError."""
        async with self._turn:
            await asyncio.to_thread(self._table.save_bytes, orjson.dumps(topics.to_table()))
            self.topics.replace(topics)
        await self._announce()

    def readable(self, topic: Topic, queue_id: int) -> TopicConfig:
        """Return the topic; raise BrokerError if it, or its queue, cannot be read."""
        return self._checked(topic, queue_id, need=Perm.READ)

    def writable(self, topic: Topic, queue_id: int) -> TopicConfig:
        """Return the topic; raise BrokerError if it, or its queue, cannot be written."""
        return self._checked(topic, queue_id, need=Perm.WRITE)

    def life(self, topic: Topic) -> int | None:
        """Return the life of *topic*, as ``Topics.life``."""
        return self.topics.life(topic)

    def has_queue(self, topic: Topic, queue_id: int) -> bool:
        """Return whether *topic* has that queue here, for reading or writing."""
        config = self.topics.find(topic)
        return config is not None and 0 <= queue_id < max(config.read_queues, config.write_queues)

    def _checked(self, topic: Topic, queue_id: int, *, need: int) -> TopicConfig:
        config = self.topics.find(topic)
        if config is None:
            raise BrokerError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic {topic!r} does not exist on this broker, create it first",
            )
        reading = need == Perm.READ
        if not config.perm & need:
            verb = "read" if reading else "written"
            raise BrokerError(ResponseCode.NO_PERMISSION, f"topic {topic!r} must not be {verb}")
        queues = config.read_queues if reading else config.write_queues
        if not 0 <= queue_id < queues:
            raise BrokerError(  # senders then refresh their route
                ResponseCode.SYSTEM_ERROR if reading else ResponseCode.TOPIC_NOT_EXIST,
                f"queue {queue_id} of topic {topic!r} does not exist: it has queues 0 to"
                f" {queues - 1}",
            )
        return config
