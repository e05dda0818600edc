"""Orderly locks: codes 41 and 42."""

from __future__ import annotations

from broker_core.broker.queue_locks import QueueLocks
from broker_core.broker.table_saver import TableSaver
from broker_core.broker.topic_directory import TopicDirectory
from broker_core.clock import now_ns
from broker_core.errors import BrokerError
from broker_core.names import QueueName
from broker_core.remoting.bodies import LockBatch, locked_to_json
from broker_core.remoting.codes import RequestCode, ResponseCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting_channel import Answer, Handler, RemotingChannel


class LockProcessor:
    """Grants queues of this broker only, and says so only once it is on disk."""

    def __init__(
        self,
        locks: QueueLocks,
        *,
        saver: TableSaver,
        directory: TopicDirectory,
        broker_name: str,
    ) -> None:
        self._locks = locks
        self._saver = saver
        self._directory = directory
        self._broker_name = broker_name

    def handlers(self) -> dict[int, Handler]:
        """Request codes served."""
        return {RequestCode.LOCK_BATCH_MQ: self._lock, RequestCode.UNLOCK_BATCH_MQ: self._unlock}

    async def _lock(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        wanted = LockBatch.from_json(request.body)
        ours = [queue for queue in wanted.queues if self._is_ours(queue)]
        grant = self._locks.lock(wanted.group, wanted.client_id, ours, now_ns=now_ns())
        try:
            await self._saver.save(grant.to_save)
        except OSError as error:
            # Held in memory all the same: nobody else gets it, and the next request saves again.
            raise BrokerError(
                ResponseCode.SYSTEM_ERROR, f"the lock table cannot be saved: {error.strerror}"
            ) from error
        return request.response(body=locked_to_json(grant.queues))

    def _unlock(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        unlock = LockBatch.from_json(request.body)
        self._locks.unlock(unlock.group, unlock.client_id, unlock.queues)
        return request.response()

    def _is_ours(self, queue: QueueName) -> bool:
        return queue.broker == self._broker_name and self._directory.has_queue(
            queue.topic, queue.queue_id
        )
