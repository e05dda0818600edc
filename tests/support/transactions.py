"""Transactional producers for tests, with their transaction checks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from broker_core.client import BrokerClient, TransactionProducer, TransactionState
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.message import StoredMessage
from testkit.broker_process import AnyCluster

TOPIC = Topic("invoices")
GROUP = Group("billing")
HALF = QueueName(Topic("RMQ_SYS_TRANS_HALF_TOPIC"), "broker-a", 0)
GIVEN_UP = QueueName(Topic("TRANS_CHECK_MAX_TIME_TOPIC"), "broker-a", 0)
#: Checks start at once and repeat often.
QUICK = {"transaction_timeout_s": 0.05, "transaction_check_interval_s": 0.1}

COMMIT, ROLLBACK, UNKNOWN = (
    TransactionState.COMMIT,
    TransactionState.ROLLBACK,
    TransactionState.UNKNOWN,
)


@dataclass(slots=True)
class Desk:
    """A producer's transaction checks: the requests received, and the answers to give."""

    answer: Callable[[StoredMessage], TransactionState] = lambda _: UNKNOWN
    asked: list[StoredMessage] = field(default_factory=list)

    async def check(self, half: StoredMessage) -> TransactionState:
        self.asked.append(half)
        return self.answer(half)


async def producer(
    cluster: AnyCluster, desk: Desk, topic: Topic = TOPIC, *, name: str = "producer"
) -> tuple[BrokerClient, TransactionProducer]:
    client = await cluster.client(name)
    made = TransactionProducer(client, group=GROUP, check=desk.check, heartbeat_s=0.1)
    await made.start([topic])
    return client, made


async def visible(client: BrokerClient, queues: list[QueueName]) -> list[StoredMessage]:
    found = []
    for queue in queues:
        offset = await client.min_offset(queue)
        while offset < await client.max_offset(queue):
            pulled = await client.pull(queue, group=GROUP, offset=offset, suspend_ms=0)
            found += pulled.messages
            offset = pulled.next_offset
    return found
