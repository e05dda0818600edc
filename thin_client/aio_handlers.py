"""What the asyncio consumer makes of the handlers that an application gives it."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from thin_client.key_batch import KeyBatch
from thin_client.message import Message
from thin_client.tracing import Tracer

T = TypeVar("T", Message, KeyBatch)  # what one handler takes


class ThreadGoesOn(Exception):
    """The worker has to end, but its handler's thread has not: nobody may get the message yet."""


def traced(handler: Callable[[T], Any], tracer: Tracer) -> Callable[[T], Any]:
    """*handler* inside what *tracer* surrounds it with."""

    async def handle(taken: T) -> None:
        with tracer.handling(taken if isinstance(taken, Message) else taken[0]):
            await handler(taken)

    return handle


def in_thread(
    handler: Callable[[T], object], threads: ThreadPoolExecutor
) -> Callable[[T], Awaitable[None]]:
    """A plain *handler* as a coroutine function. Cancelled, that raises ThreadGoesOn."""

    async def handle(taken: T) -> None:
        loop = asyncio.get_running_loop()
        context = contextvars.copy_context()
        running = loop.run_in_executor(threads, context.run, handler, taken)
        try:
            result = await asyncio.shield(running)
        except asyncio.CancelledError:
            raise ThreadGoesOn from None
        if inspect.isawaitable(result):
            await result

    return handle


def is_coroutine_function(handler: Callable[..., object]) -> bool:
    """Whether calling *handler* gives what can be awaited, as far as that can be told."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)  # noqa: B004  # an object with an async __call__
    )


def being_cancelled() -> bool:
    """True if the current task is to end; false if a handler cancelled something of its own."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
