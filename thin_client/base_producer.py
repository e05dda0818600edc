"""Options and requests of both producers. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

from thin_client.arguments import check_seconds, check_token
from thin_client.clock import now_ns, wall_s
from thin_client.delivery import Delivery, Outgoing, Stamp, cancellation, deliveries
from thin_client.servers import Servers, Tls
from thin_client.tracing import Tracer


class SendOptions(TypedDict, total=False):
    """Optional arguments of a send; see Outgoing."""

    key: str | None
    sharding_key: str | None
    tag: str | None
    properties: Mapping[str, str]
    sharding_path: str | None
    queue: int | str | None
    delay_s: float | None


class BaseProducer:
    """Base of both producers: the proxies, and the requests of calls."""

    def __init__(
        self,
        servers: str | Sequence[str],
        *,
        timeout_s: float,
        token: str | None,
        tls: Tls | None,
        tracer: Tracer | None,
    ) -> None:
        check_seconds("timeout_s", timeout_s)
        check_token(token)
        self._servers = Servers(servers, tls=tls)
        self._timeout_ns = int(timeout_s * 1e9)
        self._stamp = Stamp(token, (tracer or Tracer()).inject, wall_s)

    def _deliveries(self, messages: Sequence[Outgoing]) -> list[Delivery]:
        return deliveries(messages, deadline_ns=now_ns() + self._timeout_ns, stamp=self._stamp)

    def _cancellation(self, topic: str, delay_id: str) -> Delivery:
        deadline_ns = now_ns() + self._timeout_ns
        return cancellation(topic, delay_id, deadline_ns=deadline_ns, stamp=self._stamp)
