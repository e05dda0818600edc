"""Thin clients inside the test process, whose handlers write histories."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from broker_core.tasks import spawn
from proxy.cli.history_observer import HistoryObserver
from proxy.history.record import HistoryWriter
from testkit.gateway import Gateway
from thin_client.aio import AsyncConsumer
from thin_client.message import Message

Handle = Callable[[Message], Awaitable[None]]


async def at_once(_message: Message) -> None:
    """Handle a message successfully."""


@asynccontextmanager
async def consuming(
    gateway: Gateway,
    address: str,
    name: str,
    *,
    handle: Handle = at_once,
    **options: Any,
) -> AsyncIterator[HistoryObserver]:
    """Run a consumer with its own history while the context lasts, and drain it at the end."""
    history = HistoryWriter(gateway.histories, f"handler-{name}")
    observer = HistoryObserver(history, group=gateway.group, consumer=name)
    consumer = AsyncConsumer(
        address,
        group=gateway.group,
        client_id=name,
        observer=observer,
        **{"concurrency": 8, **options},
    )
    running = spawn(consumer.run(handle, handle_signals=False), name=f"consumer {name}")
    try:
        yield observer
    finally:
        consumer.stop()
        await running
        history.close()
