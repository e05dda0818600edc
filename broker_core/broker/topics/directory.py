"""The topics of a broker, saved and announced when they change."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import orjson

from broker_core.broker.limits import NO_LIMIT, Limit
from broker_core.broker.table_saver import uncancelled
from broker_core.broker.topics.topics import Topics
from broker_core.clock import wall_ms
from broker_core.errors import BrokerError
from broker_core.names import Topic
from broker_core.remoting.codes import ResponseCode
from broker_core.remoting.route_bodies import Perm, TopicConfig
from broker_core.store.journaled_table import JournaledTable
from broker_core.tasks import in_thread


class TopicDirectory:
    """Finds topics and checks the permissions of a request."""

    def __init__(
        self,
        topics: Topics,
        table: JournaledTable,
        *,
        announce: Callable[[Iterable[Topic] | None], Awaitable[None]],
        read_only: bool = False,
        is_deleting: Callable[[Topic], bool] = lambda topic: False,
        limit: Limit = NO_LIMIT,
    ) -> None:
        """Manage *topics*.

        *announce* notifies the nameservers of new or changed topics, as ``Registration.announce``
        does, and does not raise. *read_only*: topics come only from a master, by ``replace``.
        *is_deleting* returns whether a deletion of a topic will take effect, by which a topic that
        is defined before would be gone. *limit*: on the number of topics, the broker's own not
        included.
        """
        self.topics = topics
        self.read_only = read_only
        self._table = table
        self._announce = announce
        self._is_deleting = is_deleting
        self._limit = limit
        self._turn = asyncio.Lock()
        self._unsaved: set[Topic] = set()  # changes that the table lacks
        self._is_saving = False  # such changes
        self._must_save = False

    async def define(self, *configs: TopicConfig) -> None:
        """Create or change topics; on return they are on disk and announced.

        They cannot be used before they are on disk, or a crash could remove a topic with
        acknowledged messages. Raises OSError without a change, and BrokerError without one if they
        would exceed the limit, or one of them is being deleted.
        """
        names = ", ".join(config.topic for config in configs[:3])
        await uncancelled(self._define(configs), name=f"define topic {names}")

    async def _define(self, configs: Sequence[TopicConfig]) -> None:
        async with self._turn:
            now_ms = wall_ms()
            wanted = list({config.topic: config for config in configs}.values())
            self._check_deleted(wanted)
            changed = [each for each in wanted if self.topics.find(each.topic) != each]
            if not changed:
                await self._write_unsaved()  # perhaps an earlier change of them is not on disk
                return
            self._check_room(changed)
            names = [config.topic for config in changed]
            await self._write_planned(changed, names, now_ms)
            for config in changed:
                self.topics.put(config, now_ms=now_ms)
        await self._announce(names)

    async def _write_planned(
        self, changed: Sequence[TopicConfig], names: Sequence[Topic], now_ms: int
    ) -> None:
        planned = self.topics.plan(changed, now_ms=now_ms)
        await self._write(planned)
        # A deletion that becomes visible in between counts for topics of the table that is on disk,
        # perhaps for one of these: a start would delete it.
        while (newer := self.topics.plan(changed, now_ms=now_ms)) != planned:
            planned = newer
            try:
                await self._write(planned)
            except BaseException:
                self._unsaved.update(names)  # the table has the first plan
                raise

    def _check_deleted(self, wanted: Iterable[TopicConfig]) -> None:
        """Refuse to define a topic that would be gone a moment later."""
        for config in wanted:
            if self._is_deleting(config.topic):
                raise BrokerError(
                    ResponseCode.SERVICE_NOT_AVAILABLE,
                    f"topic {config.topic!r} is still being deleted: create it again when that is"
                    " done",
                )

    def _check_room(self, wanted: Iterable[TopicConfig]) -> None:
        new = [each.topic for each in wanted if self.topics.find(each.topic) is None]
        if new:
            more = f" nor {len(new) - 1} more" if len(new) > 1 else ""
            self._limit.check(
                len(self.topics) + len(new),
                refused=f"topic {new[0]!r} is not created{more}",
                held=f"this broker has {len(self.topics)} topics",
            )

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
            self._unsaved.add(topic)
        await self.save()
        if self.topics.version != before:
            await self._announce(())

    def must_save(self, topics: Iterable[Topic]) -> None:
        """Make the next ``save`` write *topics* and the number of deletions: they were changed
        elsewhere.
        """
        self._unsaved.update(topics)
        self._must_save = True

    async def save(self) -> None:
        """Write the changes that the table lacks, such as deletions. Raise OSError."""
        if self._unsaved or self._must_save or self._is_saving:
            async with self._turn:
                await self._write_unsaved()

    async def fold(self) -> None:
        """Write the whole table as one file. Raise OSError."""
        async with self._turn:
            await in_thread(self._table.fold)

    async def _write_unsaved(self) -> None:
        if self._unsaved or self._must_save:
            await self._write()

    async def _write(self, *patches: dict[str, Any]) -> None:
        """Append *patches* to the table, after the changes that it lacks."""
        unsaved = self._unsaved
        missing = (self.topics.patch(unsaved),) if unsaved or self._must_save else ()
        # A topic that changes meanwhile is unsaved again.
        self._must_save, self._unsaved = False, set()
        self._is_saving = bool(missing)
        try:
            await in_thread(self._table.append, *missing, *patches)
        except BaseException:
            self._must_save = self._must_save or bool(missing)
            self._unsaved |= unsaved
            raise
        finally:
            self._is_saving = False

    async def replace(self, topics: Topics) -> None:
        """Replace the topics by the master's, durably. Raise OSError."""
        async with self._turn:
            await in_thread(self._table.save_bytes, orjson.dumps(topics.to_table()))
            self.topics.replace(topics)
        await self._announce(None)

    def readable(self, topic: Topic, queue_id: int) -> TopicConfig:
        """Return the topic; raise BrokerError if it, or its queue, cannot be read."""
        return self._checked(topic, queue_id, need=Perm.READ)

    def writable(self, topic: Topic, queue_id: int) -> TopicConfig:
        """Return the topic; raise BrokerError if it, or its queue, cannot be written."""
        return self._checked(topic, queue_id, need=Perm.WRITE)

    def life(self, topic: Topic) -> int | None:
        """Return the life of *topic*, as ``Topics.life``."""
        return self.topics.life(topic)

    def former_lives(self, topic: Topic, queue_id: int) -> dict[int, int]:
        """Return the lives that the current one continues, as ``Topics.former_lives``."""
        return self.topics.former_lives(topic, queue_id)

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
