"""Orderly locks: asked for, renewed and given back, at all brokers at the same time."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable

import structlog

from broker_core.client.requests import BrokerRequests
from broker_core.client.results import LockAnswer
from broker_core.errors import RemotingError
from broker_core.names import Group, QueueName
from broker_core.remoting.bodies import LockBatch, locked_from_json
from broker_core.remoting.codes import RequestCode

_log = structlog.get_logger("broker-client")


async def lock(
    requests: BrokerRequests,
    client_id: str,
    group: Group,
    queues: Iterable[QueueName],
    *,
    timeout_s: float | None,
) -> LockAnswer:
    """Ask for locks, or renew them. Raises nothing."""
    batches = _batches(client_id, group, queues)
    answers = await asyncio.gather(
        *(_lock_at(requests, broker, batch, timeout_s) for broker, batch in batches.items())
    )
    return LockAnswer(
        granted=frozenset().union(*(answer.granted for answer in answers)),
        unanswered=frozenset().union(*(answer.unanswered for answer in answers)),
    )


async def unlock(
    requests: BrokerRequests,
    client_id: str,
    group: Group,
    queues: Iterable[QueueName],
    *,
    timeout_s: float | None,
) -> None:
    """Give locks back. All brokers are asked; the first failure is raised."""
    code = RequestCode.UNLOCK_BATCH_MQ
    results = await asyncio.gather(
        *(
            requests.ask(broker, code, body=batch.to_json(), timeout_s=timeout_s)
            for broker, batch in _batches(client_id, group, queues).items()
        ),
        return_exceptions=True,
    )
    for result in results:
        if isinstance(result, BaseException):
            raise result


async def _lock_at(
    requests: BrokerRequests, broker: str, batch: LockBatch, timeout_s: float | None
) -> LockAnswer:
    try:
        answer = await requests.ask(
            broker, RequestCode.LOCK_BATCH_MQ, body=batch.to_json(), timeout_s=timeout_s
        )
        return LockAnswer(granted=batch.queues & locked_from_json(answer.body))
    except RemotingError as error:
        _log.info("lock not answered", broker=broker, group=batch.group, reason=str(error))
        return LockAnswer(unanswered=batch.queues)


def _batches(client_id: str, group: Group, queues: Iterable[QueueName]) -> dict[str, LockBatch]:
    by_broker: dict[str, set[QueueName]] = defaultdict(set)
    for queue in sorted(queues):
        by_broker[queue.broker].add(queue)
    return {
        broker: LockBatch(group=group, client_id=client_id, queues=frozenset(those))
        for broker, those in by_broker.items()
    }
