"""The Python thin client: pull, handle and ack messages, and send them.

It has no offsets, no rebalancing and no broker connections. ``session`` decides without I/O and is
the model for the clients in other languages; ``aio`` and ``consumer`` perform its I/O. The package
imports only the standard library, thrift and ``thrift_idl``, never proxy or broker_core.
"""

from __future__ import annotations

from thin_client.aio import AsyncConsumer
from thin_client.aio_producer import AsyncProducer, AsyncTransaction, Enqueued
from thin_client.app import App
from thin_client.consumer import Consumer
from thin_client.delivery import Outgoing, new_message_id
from thin_client.errors import (
    ClientError,
    ConnectionLost,
    ProtocolError,
    ProxyFault,
    Refused,
    SendFailed,
)
from thin_client.key_batch import KeyBatch
from thin_client.message import Defer, Message, Reject, Retry
from thin_client.options import Observer, Timing
from thin_client.producer import Producer, Transaction
from thin_client.puller import Puller
from thin_client.servers import Tls
from thin_client.tracing import Tracer, opentelemetry_tracer
from thin_client.transactions import Decision, PreparedMessage, Transactions

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
    "new_message_id",
    "opentelemetry_tracer",
]
