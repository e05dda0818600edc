"""The embedded broker: request codes in, decisions, the store behind.

What belongs here: what a RocketMQ broker knows beside its messages (topics, members of groups,
orderly locks, committed offsets, held pulls) and the answers to each request code. What never
does: bytes on the wire (``broker_core.remoting``) or on disk (``broker_core.store``).

Pure, with the time as an argument: ``queue_locks``, ``groups``, ``offsets``, ``topics``.
"""

from broker_core.broker.server import Broker
from broker_core.broker.settings import BrokerSettings

__all__ = ["Broker", "BrokerSettings"]
