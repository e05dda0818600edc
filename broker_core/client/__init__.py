"""The asyncio client of brokers and nameservers, for the proxy and the command line.

Every failure is a RemotingError; callers decide by its ``retriable``. Queue ownership is not
decided here, and only ``Producer`` retries.
"""

from broker_core.client.broker_client import BrokerClient
from broker_core.client.membership import Membership
from broker_core.client.producer import Producer
from broker_core.client.queue_ranges import QueueRange
from broker_core.client.read_sessions import ReadSessions
from broker_core.client.results import (
    EncodedReceipt,
    LockAnswer,
    LogSpan,
    PulledRecords,
    PullResult,
    PullStatus,
    SendReceipt,
    SendStatus,
    TopicLife,
)
from broker_core.client.transactions import Transaction, TransactionProducer, TransactionState

__all__ = [
    "BrokerClient",
    "EncodedReceipt",
    "LockAnswer",
    "LogSpan",
    "Membership",
    "Producer",
    "PullResult",
    "PullStatus",
    "PulledRecords",
    "QueueRange",
    "ReadSessions",
    "SendReceipt",
    "SendStatus",
    "TopicLife",
    "Transaction",
    "TransactionProducer",
    "TransactionState",
]
