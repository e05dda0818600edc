"""The topics of a broker, saved and made known when they change."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from broker_core.broker.table_saver import TableSaver
from broker_core.broker.topics import Topics
from broker_core.clock import wall_ms
from broker_core.errors import BrokerError
from broker_core.names import Topic
from broker_core.remoting.codes import ResponseCode
from broker_core.remoting.route_bodies import Perm, TopicConfig
from broker_core.store.tables import JsonTable


class TopicDirectory:
    """Finds topics and checks what a request may do with them."""

    def __init__(
        self, topics: Topics, table: JsonTable, *, announce: Callable[[], Awaitable[None]]
    ) -> None:
        """*announce* tells the nameservers; it does not raise."""
        self.topics = topics
        self._announce = announce
        self._saver = TableSaver(
            table, content=topics.to_table, change=lambda: topics.version.counter
        )

    async def define(self, config: TopicConfig) -> None:
        """Create or change a topic; on return it is on disk and announced. Raises OSError."""
        changed = self.topics.put(config, now_ms=wall_ms())
        await self._saver.save()
        if changed:
            await self._announce()

    def readable(self, topic: Topic, queue_id: int) -> TopicConfig:
        """Return the topic; raises BrokerError if it, or its queue, is not there to be read."""
        return self._checked(topic, queue_id, need=Perm.READ)

    def writable(self, topic: Topic, queue_id: int) -> TopicConfig:
        """Return the topic; raises BrokerError if it, or its queue, is not there to be written."""
        return self._checked(topic, queue_id, need=Perm.WRITE)

    def has_queue(self, topic: Topic, queue_id: int) -> bool:
        """True if *topic* has that queue here, for reading or writing."""
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
            raise BrokerError(
                ResponseCode.SYSTEM_ERROR,
                f"queue {queue_id} of topic {topic!r} does not exist: it has queues 0 to"
                f" {queues - 1}",
            )
        return config
