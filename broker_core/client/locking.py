"""Orderly locks: requested, renewed and released at all brokers concurrently.

Requests for one queue form a sequence. A request without an answer may arrive late, after later
ones. The embedded broker detects late requests by their number. For other brokers a lock belongs to
a name only, so if the outcome of an unlock is unknown, the next lock of that queue is requested
under another name, which the late unlock cannot release.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import count

import structlog

from broker_core.client.requests import BrokerRequests
from broker_core.client.results import LockAnswer
from broker_core.clock import now_ns
from broker_core.errors import BrokerError, RemotingError
from broker_core.names import Group, QueueName
from broker_core.remoting.bodies import LockBatch, locked_from_json
from broker_core.remoting.codes import RequestCode
from broker_core.remoting.lock_renewal import LockName, RenewLocksHeader, lock_names_from_json
from broker_core.tasks import all_results

_log = structlog.get_logger("broker-client")


class Locking:
    """The locks of one client."""

    def __init__(self, requests: BrokerRequests, client_id: str) -> None:
        self._requests = requests
        self._client_id = client_id
        # From the clock, so that a later client of the same name in this process continues.
        self._sequence = count(now_ns())
        #: Number of releases with an unknown outcome, by lock.
        self._unknown: Counter[tuple[Group, QueueName]] = Counter()

    async def lock(
        self, group: Group, queues: Iterable[QueueName], *, timeout_s: float | None
    ) -> LockAnswer:
        """Request or renew locks. Raises nothing."""
        batches = self._batches(group, queues)
        answers = await asyncio.gather(
            *(self._lock_at(broker, batch, timeout_s) for broker, batch in batches)
        )
        return LockAnswer(
            granted=frozenset().union(*(answer.granted for answer in answers)),
            unanswered=frozenset().union(*(answer.unanswered for answer in answers)),
        )

    def are_plain(self, group: Group, queues: Iterable[QueueName]) -> bool:
        """Return whether all locks of *queues* are held under this client's own name."""
        unknown = self._unknown
        return not unknown or all((group, queue) not in unknown for queue in queues)

    async def renew(self, broker: str, locks: bytes, *, timeout_s: float) -> frozenset[LockName]:
        """Renew *locks* of all groups at *broker*, as encoded by ``lock_names_to_json``; return
        those that were not renewed.

        Raises BrokerError with REQUEST_CODE_NOT_SUPPORTED at other brokers than the embedded one.
        """
        header = RenewLocksHeader(client_id=self._client_id)
        answer = await self._requests.ask(
            broker, RequestCode.RENEW_LOCKS, header.to_ext(), body=locks, timeout_s=timeout_s
        )
        return frozenset(lock_names_from_json(answer.body))

    async def unlock(
        self, group: Group, queues: Iterable[QueueName], *, timeout_s: float | None
    ) -> None:
        """Release locks at all brokers; raise the first failure."""
        await all_results(
            *(
                self._unlock_at(broker, batch, timeout_s)
                for broker, batch in self._batches(group, queues)
            )
        )

    async def _lock_at(self, broker: str, batch: LockBatch, timeout_s: float | None) -> LockAnswer:
        try:
            answer = await self._requests.ask(
                broker, RequestCode.LOCK_BATCH_MQ, body=batch.to_json(), timeout_s=timeout_s
            )
            return LockAnswer(granted=batch.queues & locked_from_json(answer.body))
        except RemotingError as error:
            _log.info("lock not answered", broker=broker, group=batch.group, reason=str(error))
            return LockAnswer(unanswered=batch.queues)

    async def _unlock_at(self, broker: str, batch: LockBatch, timeout_s: float | None) -> None:
        answered = False
        try:
            await self._requests.ask(
                broker, RequestCode.UNLOCK_BATCH_MQ, body=batch.to_json(), timeout_s=timeout_s
            )
            answered = True
        except BrokerError:
            answered = True
            raise
        finally:
            if not answered:  # or cancelled
                self._unknown.update((batch.group, queue) for queue in batch.queues)

    def _batches(self, group: Group, queues: Iterable[QueueName]) -> list[tuple[str, LockBatch]]:
        by_holder: defaultdict[tuple[str, str], set[QueueName]] = defaultdict(set)
        for queue in sorted(queues):
            by_holder[queue.broker, self._holder(group, queue)].add(queue)
        sequence = next(self._sequence)
        return [
            (
                broker,
                LockBatch(
                    group=group, client_id=holder, queues=frozenset(those), sequence=sequence
                ),
            )
            for (broker, holder), those in by_holder.items()
        ]

    def _holder(self, group: Group, queue: QueueName) -> str:
        times = self._unknown.get((group, queue), 0)
        return f"{self._client_id}~{times}" if times else self._client_id
