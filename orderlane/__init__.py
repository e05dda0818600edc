"""The public API of the Python client: everything that programs import.

``orderlane.spark`` has the API for Spark jobs, and ``orderlane.testing`` a gateway for tests of
applications. Other packages of the project may change without notice.
"""

from __future__ import annotations

from thin_client import (
    App,
    AsyncConsumer,
    AsyncProducer,
    AsyncTransaction,
    ClientError,
    ConnectionLost,
    Consumer,
    Decision,
    Defer,
    Enqueued,
    KeyBatch,
    Message,
    Observer,
    Outgoing,
    PreparedMessage,
    Producer,
    ProtocolError,
    ProxyFault,
    Puller,
    Refused,
    Reject,
    Retry,
    SendFailed,
    Timing,
    Tls,
    Tracer,
    Transaction,
    Transactions,
    new_message_id,
    opentelemetry_tracer,
)

__all__ = [
    "App",
    "AsyncConsumer",
    "AsyncProducer",
    "AsyncTransaction",
    "ClientError",
    "ConnectionLost",
    "Consumer",
    "Decision",
    "Defer",
    "Enqueued",
    "KeyBatch",
    "Message",
    "Observer",
    "Outgoing",
    "PreparedMessage",
    "Producer",
    "ProtocolError",
    "ProxyFault",
    "Puller",
    "Refused",
    "Reject",
    "Retry",
    "SendFailed",
    "Timing",
    "Tls",
    "Tracer",
    "Transaction",
    "Transactions",
    "__version__",
    "new_message_id",
    "opentelemetry_tracer",
]

__version__ = "0.2.0"
