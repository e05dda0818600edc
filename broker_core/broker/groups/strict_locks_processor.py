"""Orderly locks in strict mode: codes 41 and 42, granted by a majority of the replicas.

Votes without a majority are left to expire. If they were withdrawn at once, they could release a
queue whose holder does not know yet that its renewal failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from broker_core.broker.groups.lock_votes import granted
from broker_core.broker.groups.locks_processor import LockProcessor
from broker_core.client.connection_pool import ConnectionPool
from broker_core.errors import RemotingError
from broker_core.names import QueueName
from broker_core.rare_warnings import RareWarnings
from broker_core.remoting.bodies import LockBatch, locked_from_json, locked_to_json
from broker_core.remoting.codes import RequestCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.route_bodies import ClusterTable
from broker_core.remoting_channel import Answer, Handler, RemotingChannel

_VOTE_S = 0.4  # a proxy waits 0.5 s for a lock


class StrictLockProcessor:
    """Asks the other replicas. A request with ``onlyThisBroker`` gets this broker's vote only."""

    def __init__(
        self,
        local: LockProcessor,
        *,
        total_replicas: int,
        others: Callable[[], Awaitable[list[str]]],
        pool: ConnectionPool,
        check_master: Callable[[], None] = lambda: None,
        vote_s: float = _VOTE_S,
    ) -> None:
        """Combine *local* votes with those of other replicas.

        Args:
            local: grants this broker's locks
            total_replicas: number of replicas, the master included
            others: returns the addresses of the other replicas
            pool: connections to the replicas
            check_master: raises BrokerError if clients have to ask another replica
            vote_s: time limit of a vote
        """
        self._local = local
        self._total_replicas = total_replicas
        self._others = others
        self._pool = pool
        self._check_master = check_master
        self._vote_s = vote_s
        self._warnings = RareWarnings("broker")

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {RequestCode.LOCK_BATCH_MQ: self._lock, RequestCode.UNLOCK_BATCH_MQ: self._unlock}

    async def _lock(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        wanted = LockBatch.from_json(request.body)
        if not wanted.only_this_broker:
            self._check_master()
        queues = await self._local.grant(wanted)
        if queues and not wanted.only_this_broker:
            asked = replace(wanted, queues=queues, only_this_broker=True)
            votes = await asyncio.gather(
                *(self._vote(each, asked) for each in await self._others())
            )
            queues = granted([queues, *votes], total_replicas=self._total_replicas)
        return request.response(body=locked_to_json(queues))

    async def _unlock(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        unlock = LockBatch.from_json(request.body)
        if not unlock.only_this_broker:
            self._check_master()
        self._local.free(unlock)
        if not unlock.only_this_broker:
            body = replace(unlock, only_this_broker=True).to_json()
            await asyncio.gather(
                *(
                    self._ask(each, RequestCode.UNLOCK_BATCH_MQ, body)
                    for each in await self._others()
                )
            )
        return request.response()

    async def _vote(self, address: str, wanted: LockBatch) -> set[QueueName]:
        answer = await self._ask(address, RequestCode.LOCK_BATCH_MQ, wanted.to_json())
        try:
            return set() if answer is None else locked_from_json(answer.body) & wanted.queues
        except RemotingError as error:
            self._warnings.warn("invalid vote", peer=address, reason=str(error))
            return set()

    async def _ask(self, address: str, code: RequestCode, body: bytes) -> RemotingCommand | None:
        try:
            answer = await self._pool.request(
                address, RemotingCommand(code, body=body), timeout_s=self._vote_s
            )
        except RemotingError as error:
            self._warnings.warn("replica gave no vote", peer=address, reason=str(error))
            return None
        return answer if answer.code == 0 else None


class RegisteredReplicas:
    """Finds the replicas of a broker name through nameservers."""

    def __init__(
        self,
        broker_name: str,
        *,
        address: Callable[[], str],
        clusters: Callable[[], Awaitable[ClusterTable]],
    ) -> None:
        """*address* returns this broker's own; *clusters* asks a nameserver for all brokers."""
        self._broker_name = broker_name
        self._address = address
        self._clusters = clusters
        self._known: list[str] = []
        self._warnings = RareWarnings("broker")

    async def others(self) -> list[str]:
        """Return addresses of the other replicas; the last known ones while no nameserver
        answers.
        """
        try:
            found = (await self._clusters()).brokers.get(self._broker_name)
        except RemotingError as error:
            self._warnings.warn("no nameserver returned the replicas", peer="", reason=str(error))
        else:
            self._known = [] if found is None else list(found.addresses.values())
        return [each for each in self._known if each != self._address()]
