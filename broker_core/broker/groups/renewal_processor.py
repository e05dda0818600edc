"""Requests for the renewal of all locks of a client: code 7106."""

from __future__ import annotations

from dataclasses import dataclass

from broker_core.broker.groups.queue_locks import QueueLocks
from broker_core.broker.table_saver import Saver
from broker_core.broker.topics.directory import TopicDirectory
from broker_core.clock import now_ns
from broker_core.errors import BrokerError
from broker_core.names import Group, QueueName
from broker_core.remoting.codes import RequestCode, ResponseCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.lock_renewal import (
    RenewLocksHeader,
    lock_names_from_json,
    lock_names_to_json,
)
from broker_core.remoting.route_bodies import DataVersion
from broker_core.remoting_channel import Answer, Handler, RemotingChannel

#: Bodies that are kept decoded, and their bytes; the one that came longest ago is forgotten beyond.
REMEMBERED, REMEMBERED_BYTES = 256, 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class _Decoded:
    version: DataVersion  # of the topics, by which queues were checked
    here: list[tuple[Group, QueueName]]
    unknown: list[tuple[Group, QueueName]]  # their queues do not exist


class RenewalProcessor:
    """Renews locks, and takes none. A renewal costs one look-up per lock."""

    def __init__(
        self,
        locks: QueueLocks,
        *,
        saver: Saver,
        directory: TopicDirectory,
        broker_name: str,
        from_ns: int = 0,
    ) -> None:
        """Renew locks of *locks*, but none before *from_ns*, as ``LockProcessor``."""
        self._locks = locks
        self._saver = saver
        self._directory = directory
        self._broker_name = broker_name
        self._from_ns = from_ns
        self._decoded: dict[tuple[str, bytes], _Decoded] = {}  # the last one renewed last
        #: Bytes of the bodies that are kept decoded.
        self.remembered_bytes = 0

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {RequestCode.RENEW_LOCKS: self._renew}

    async def _renew(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        client_id = RenewLocksHeader.from_ext(request.ext).client_id
        wanted = self._decode(client_id, bytes(request.body))
        if now_ns() < self._from_ns:
            refused = wanted.here
        else:
            refused, to_save = self._locks.renew(client_id, wanted.here, now_ns=now_ns())
            change = self._locks.change
            try:
                await self._saver.save(to_save)
            except OSError as error:
                raise BrokerError(
                    ResponseCode.SYSTEM_ERROR, f"the lock table cannot be saved: {error.strerror}"
                ) from error
            if self._locks.change != change:
                # The disk took time: an expired lock may have another holder now.
                holder, now = self._locks.holder, now_ns()
                refused = [name for name in wanted.here if holder(*name, now_ns=now) != client_id]
        body = lock_names_to_json(
            (group, queue.topic, queue.queue_id) for group, queue in [*refused, *wanted.unknown]
        )
        return request.response(body=body)

    def _decode(self, client_id: str, body: bytes) -> _Decoded:
        version = self._directory.topics.version
        known = before = self._decoded.pop((client_id, body), None)
        if known is None or known.version != version:
            here: list[tuple[Group, QueueName]] = []
            unknown: list[tuple[Group, QueueName]] = []
            for group, topic, queue_id in lock_names_from_json(body):
                exists = self._directory.has_queue(topic, queue_id)
                name = group, QueueName(topic, self._broker_name, queue_id)
                (here if exists else unknown).append(name)
            known = _Decoded(version, here, unknown)
        if before is None:  # not earlier: an invalid body is not kept, so its bytes do not count
            self.remembered_bytes += len(body)
        self._decoded[client_id, body] = known
        while len(self._decoded) > REMEMBERED or self.remembered_bytes > REMEMBERED_BYTES:
            oldest = next(iter(self._decoded))
            del self._decoded[oldest]
            self.remembered_bytes -= len(oldest[1])
        return known
