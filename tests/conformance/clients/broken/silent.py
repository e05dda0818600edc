"""Wrong without a word: nothing fails, and messages are lost, repeated or never come."""

from __future__ import annotations

from tests.conformance.clients.broken.registry import breaks
from thin_client import aio, chance, forks
from thin_client.aio import AsyncConsumer
from thin_client.keeper import Keeper


@breaks("work-that-did-not-run-is-not-acked", "whatever a handler returns is an ack")
def any_result_acks() -> None:
    async def take(result: object) -> None:
        """As if it had run."""

    aio.to_the_end = take


@breaks("leases-outlive-a-blocked-handler", "nobody extends while a handler blocks the client")
def blocked_clients_lose_their_leases() -> None:
    Keeper._keep = lambda _self: None  # type: ignore[method-assign]


@breaks("a-message-that-is-not-settled", "a loop that settles nothing waits for ever")
def loops_wait_for_ever() -> None:
    async def look_away(self: AsyncConsumer) -> None:
        """As if all were settled."""

    AsyncConsumer._check_yielded = look_away  # type: ignore[method-assign]


@breaks("a-child-process-sends", "a child process goes on with the connection of its parent")
def children_share_connections() -> None:
    forks.register = lambda _each: None


@breaks("connections-begin-at-a-random-number", "every connection counts from 0")
def counts_from_zero() -> None:
    chance.request_number = lambda: 0
