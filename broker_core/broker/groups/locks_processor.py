"""Requests for orderly locks: codes 41 and 42."""

from __future__ import annotations

from broker_core.broker.groups.directory import GroupDirectory
from broker_core.broker.groups.queue_locks import QueueLocks
from broker_core.broker.limits import NO_LIMIT, Limit
from broker_core.broker.table_saver import Saver
from broker_core.broker.topics.directory import TopicDirectory
from broker_core.clock import now_ns
from broker_core.errors import BrokerError
from broker_core.names import Group, QueueName
from broker_core.remoting.bodies import LockBatch, locked_to_json
from broker_core.remoting.codes import RequestCode, ResponseCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting_channel import Answer, Handler, RemotingChannel


class LockProcessor:
    """Grants queues of this broker only, and answers only once the grant is on disk."""

    def __init__(
        self,
        locks: QueueLocks,
        *,
        saver: Saver,
        directory: TopicDirectory,
        broker_name: str,
        from_ns: int = 0,
        groups: GroupDirectory | None = None,
        limit: Limit = NO_LIMIT,
    ) -> None:
        """Grant locks of *locks*, but none before *from_ns*: locks of another broker may be
        alive.

        *groups*: the groups that may have locks (None: all), and *limit* on the number of locks.
        """
        self._groups = groups
        self._limit = limit
        self._from_ns = from_ns
        self._locks = locks
        self._saver = saver
        self._directory = directory
        self._broker_name = broker_name

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {RequestCode.LOCK_BATCH_MQ: self._lock, RequestCode.UNLOCK_BATCH_MQ: self._unlock}

    async def _lock(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        granted = await self.grant(LockBatch.from_json(request.body))
        return request.response(body=locked_to_json(granted))

    async def grant(self, wanted: LockBatch) -> frozenset[QueueName]:
        """Return the queues that are locked now, once that is on disk. Raise BrokerError."""
        if now_ns() < self._from_ns:
            return frozenset()
        ours = [queue for queue in wanted.queues if self._is_ours(queue)]
        if ours and self._groups is not None:
            self._groups.config(wanted.group)
        ours = self._within_limit(wanted.group, ours)
        grant = self._locks.lock(
            wanted.group, wanted.client_id, ours, now_ns=now_ns(), sequence=wanted.sequence
        )
        try:
            await self._saver.save(grant.to_save)
        except OSError as error:
            # Kept in memory nevertheless: no other client gets it, and the next request saves
            # again.
            raise BrokerError(
                ResponseCode.SYSTEM_ERROR, f"the lock table cannot be saved: {error.strerror}"
            ) from error
        # The disk may have taken long: an expired lock may have another holder now.
        holder, now = self._locks.holder, now_ns()
        return frozenset(
            queue
            for queue in grant.queues
            if holder(wanted.group, queue, now_ns=now) == wanted.client_id
        )

    def _within_limit(self, group: Group, queues: list[QueueName]) -> list[QueueName]:
        """Return *queues* without the last of those whose locks would be too many.

        Locks that exist are renewed whatever the limit: their queues would get other owners. Raises
        BrokerError if no queue is left.
        """
        new, held = self._locks.new(group, queues), len(self._locks)
        room = self._limit.room(held)
        if room is None or len(new) <= room:
            return queues
        left_out = set(sorted(new)[room:])
        some = "the" if len(left_out) == len(queues) else "some"
        refusal = self._limit.refusal(
            refused=f"{some} queues of group {group} are not locked",
            held=f"this broker has {held} orderly locks",
        )
        if len(left_out) == len(queues):
            raise refusal
        return [queue for queue in queues if queue not in left_out]

    def _unlock(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        self.free(LockBatch.from_json(request.body))
        return request.response()

    def free(self, unlock: LockBatch) -> None:
        """Release the queues held by the client of *unlock*, unless it requested them since."""
        self._locks.unlock(
            unlock.group,
            unlock.client_id,
            unlock.queues,
            now_ns=now_ns(),
            sequence=unlock.sequence,
        )

    def _is_ours(self, queue: QueueName) -> bool:
        return queue.broker == self._broker_name and self._directory.has_queue(
            queue.topic, queue.queue_id
        )
