"""A bulk client and scripted proxies."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from broker_core.names import Topic
from broker_core.remoting.message import encode_host
from broker_core.remoting.record_encoding import BatchEntry, Envelope, encode_stored
from testkit.scripted_proxy import HangUp, Request, ScriptedProxy
from thin_client.spark.bulk_client import BulkClient
from thin_client.spark.options import Connecting
from thin_client.spark.server_order import KnownFailures
from thrift_idl import consumer

TOPIC, QID = "orders", "broker-a_0"


Script = Callable[[Request], Awaitable[object]]


def client_of(
    *proxies: ScriptedProxy,
    patience_s: float = 10.0,
    timeout_s: float = 5.0,
    failures: KnownFailures | None = None,
) -> BulkClient:
    connecting = Connecting(
        servers=tuple(proxy.address for proxy in proxies),
        group="g",
        token="secret",
        tls=None,
        request_timeout_s=timeout_s,
        consumer_id="spark",
    )
    return BulkClient(connecting, patience_s=patience_s, failures=failures)


def stored(*offsets: int) -> bytes:
    """Return stored records at *offsets*."""
    host = encode_host("127.0.0.1", 10911)
    envelope = Envelope(Topic(TOPIC), 0, host, host)
    entry = BatchEntry(0, b"body", b"")
    return b"".join(
        encode_stored(envelope, entry, queue_offset=offset, store_ms=1) for offset in offsets
    )


def answers(following: int, *offsets: int, life: int | None = None) -> Script:
    """Return a script that answers a fetch with the records at *offsets*."""

    async def answer(request: Request) -> consumer.FetchResponse:
        of = consumer.QidResponse(TOPIC, QID, following, [], records=stored(*offsets), life=life)
        return consumer.FetchResponse(results=[of])

    return answer


def has(begin: int, end: int, *, qid: str = QID) -> Script:
    """Return a script that answers a request for ranges with one queue."""

    async def answer(request: Request) -> list[consumer.QueueRange]:
        return [consumer.QueueRange(TOPIC, qid, begin, end)]

    return answer


async def hangs_up(request: Request) -> object:
    raise HangUp
