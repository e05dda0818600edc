"""The retry and dead-letter topics of groups, created when needed."""

from __future__ import annotations

from broker_core import chance
from broker_core.broker.groups.directory import GroupDirectory
from broker_core.broker.groups.queue_locks import QueueLocks
from broker_core.broker.groups.retries import (
    dead_letter_topic,
    is_sent_to_give_up,
    most_times,
    retry_topic,
)
from broker_core.broker.topics.directory import TopicDirectory
from broker_core.clock import now_ns
from broker_core.errors import BrokerError
from broker_core.names import RETRY_PREFIX, Group, Topic, check_name
from broker_core.remoting.codes import ResponseCode
from broker_core.remoting.headers import SendMessageHeader
from broker_core.remoting.route_bodies import TopicConfig


class RetryTopics:
    """Finds topic and queue for messages that a group failed to handle."""

    def __init__(
        self, directory: TopicDirectory, *, groups: GroupDirectory, locks: QueueLocks
    ) -> None:
        self.groups = groups
        self._directory = directory
        self._locks = locks

    async def for_retry(self, group: Group) -> tuple[Topic, int]:
        """Return a queue of the group's retry topic. Raise BrokerError if it cannot be written
        to.
        """
        queues = max(1, self.groups.config(group).retry_queue_nums)
        return await self._queue_of(retry_topic(group), queues)

    async def offer(self, group: Group) -> None:
        """Create the group's retry topic, unless it wants none; a slave leaves it to the master.

        Raises BrokerError on failure.
        """
        queues = self.groups.config(group).retry_queue_nums
        if queues and not self._directory.read_only:
            await self._make(retry_topic(group), queues)

    async def for_dead_letter(self, group: Group) -> tuple[Topic, int]:
        """Return a queue of the group's dead-letter topic; raise as ``for_retry``."""
        return await self._queue_of(dead_letter_topic(group), 1)

    async def for_sent(
        self, topic: Topic, header: SendMessageHeader, *, version: int
    ) -> tuple[Topic, int] | None:
        """Return the new place of a message sent to a retry topic, if it was given up.

        None if it stays in *topic*. Raises BrokerError as ``for_retry``.
        """
        if not topic.startswith(RETRY_PREFIX):
            return None
        group = Group(topic.removeprefix(RETRY_PREFIX))
        config = self.groups.config(group)
        if is_sent_to_give_up(
            header.reconsume_times or 0,
            most=most_times(config.retry_max_times, header.max_reconsume_times, version=version),
            version=version,
            locked=self._locks.has_any(group, now_ns=now_ns()),
        ):
            return await self.for_dead_letter(group)
        await self.for_retry(group)
        return None

    async def _queue_of(self, topic: Topic, queues: int) -> tuple[Topic, int]:
        await self._make(topic, queues)
        config = self._directory.writable(topic, 0)
        return topic, chance.number_below(config.write_queues)

    async def _make(self, topic: Topic, queues: int) -> None:
        if self._directory.topics.find(topic) is not None:
            return
        try:
            check_name("topic", topic)
            await self._directory.define(
                TopicConfig(topic=topic, read_queues=queues, write_queues=queues)
            )
        except ValueError as error:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, str(error)) from error
        except OSError as error:
            raise BrokerError(
                ResponseCode.SYSTEM_ERROR,
                f"topic {topic!r} cannot be created now: {error.strerror}",
            ) from error
