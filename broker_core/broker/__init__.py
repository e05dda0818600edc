"""The embedded broker: maps request codes to decisions, on top of the store.

This package owns a broker's state besides its messages (topics, members of groups, orderly locks,
committed offsets, held pulls) and the answer to each request code. Bytes on the wire belong to
``broker_core.remoting``, files to ``broker_core.store``.

Pure, with the time as an argument: ``queue_locks``, ``groups``, ``offsets``, ``topics``.
"""

from broker_core.broker.server import Broker
from broker_core.broker.settings import BrokerSettings

__all__ = ["Broker", "BrokerSettings"]
