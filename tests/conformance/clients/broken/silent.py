"""Wrong without a word: nothing fails, and messages are lost, repeated or never come."""

from __future__ import annotations

from unittest.mock import patch

from tests.conformance.clients.broken.registry import Patch, breaks
from thin_client import AsyncConsumer, aio, chance, forks
from thin_client.keeper import Keeper


@breaks("work-that-did-not-run-is-not-acked", "any result of a handler is an ack")
def any_result_acks() -> Patch:
    async def take(result: object) -> None:
        """As if it had run."""

    return patch.object(aio, "await_fully", take)


@breaks("leases-outlive-a-blocked-handler", "a blocked client extends no leases")
class BlockedClientsLoseTheirLeases(Keeper):
    def _keep(self) -> None:
        """Extend nothing."""


@breaks("a-message-that-is-not-settled", "a loop that does not settle waits for ever")
class LoopsWaitForEver(AsyncConsumer):
    async def _check_yielded(self) -> None:
        """As if all were settled."""


@breaks("a-child-process-sends", "a child process uses its parent's connection")
def children_share_connections() -> Patch:
    return patch.object(forks, "register", lambda _each: None)


@breaks("connections-begin-at-a-random-number", "every connection counts from 0")
def counts_from_zero() -> Patch:
    return patch.object(chance, "request_number", lambda: 0)
