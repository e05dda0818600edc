"""Options and requests of both producers. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

from thin_client.arguments import check_timeout, check_token
from thin_client.clock import now_ns, wall_s
from thin_client.delivery import (
    Delivery,
    Outgoing,
    Stamp,
    cancellation,
    deliveries,
    ending,
    preparation,
)
from thin_client.servers import Servers, Tls
from thin_client.tracing import Tracer
from thin_client.transactions import CheckRounds, Transactions


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
        transactions: Transactions | None,
    ) -> None:
        check_timeout("timeout_s", timeout_s)
        check_token(token)
        if not isinstance(transactions, Transactions | None):
            raise TypeError(f"transactions is {transactions!r}: expected Transactions, or None")
        self._servers = Servers(servers, tls=tls)
        self._check_servers = Servers(servers, tls=tls)
        self._transactions = transactions
        self._running: set[str] = set()  # ids of transactions whose blocks run
        self._timeout_ns = int(timeout_s * 1e9)
        self._stamp = Stamp(token, None if tracer is None else tracer.inject, wall_s)

    def _deliveries(self, messages: Sequence[Outgoing]) -> list[Delivery]:
        return deliveries(messages, deadline_ns=now_ns() + self._timeout_ns, stamp=self._stamp)

    def _cancellation(self, topic: str, delay_id: str) -> Delivery:
        deadline_ns = now_ns() + self._timeout_ns
        return cancellation(topic, delay_id, deadline_ns=deadline_ns, stamp=self._stamp)

    def _preparation(self, message: Outgoing) -> Delivery:
        """Return the request for a half message. Raises ValueError or TypeError."""
        options = self._transactions
        if options is None:
            raise ValueError(
                "the producer was created without transactions: create it with"
                " transactions=Transactions(group=..., topics=..., check=...)"
            )
        prepared = preparation(
            message,
            group=options.group,
            check_after_s=options.check_after_s,
            deadline_ns=now_ns() + self._timeout_ns,
            stamp=self._stamp,
        )
        if message.topic not in options.topics:
            raise ValueError(
                f"topic {message.topic!r} is not one of the topics of Transactions,"
                f" {list(options.topics)}: add it there, so that its checks are answered"
            )
        return prepared

    def _ending(self, prepared: Delivery, commit: bool) -> Delivery:
        deadline_ns = now_ns() + self._timeout_ns
        return ending(prepared, commit=commit, deadline_ns=deadline_ns, stamp=self._stamp)

    def _check_rounds(self) -> CheckRounds | None:
        options = self._transactions
        if options is None:
            return None
        return CheckRounds(options, token=self._stamp.token, running=self._running)
