"""What the asyncio consumer makes of the handlers that an application gives it."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from thin_client.handlers import check_result
from thin_client.key_batch import KeyBatch
from thin_client.message import Message
from thin_client.tracing import Tracer

T = TypeVar("T", Message, KeyBatch)  # what one handler takes


class ThreadGoesOn(Exception):
    """The worker has to end before its handler's thread: its message stays leased meanwhile."""


def traced(handler: Callable[[T], Any], tracer: Tracer) -> Callable[[T], Any]:
    """*handler* inside what *tracer* surrounds it with."""

    async def handle(taken: T) -> None:
        with tracer.handling(taken if isinstance(taken, Message) else taken[0]):
            await to_the_end(await handler(taken))

    return handle


def in_thread(
    handler: Callable[[T], object], threads: ThreadPoolExecutor
) -> Callable[[T], Awaitable[object]]:
    """A plain *handler* as a coroutine function. Cancelled, that raises ThreadGoesOn."""

    def call(taken: T) -> object:
        try:
            return handler(taken)
        except StopIteration as error:  # a future cannot hold one, and would never be done
            raise RuntimeError("the handler raised StopIteration") from error

    async def handle(taken: T) -> object:
        loop = asyncio.get_running_loop()
        context = contextvars.copy_context()
        running = loop.run_in_executor(threads, context.run, call, taken)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            raise ThreadGoesOn from None

    return handle


async def to_the_end(result: object) -> None:
    """Await *result*, which a handler returned, and what that gives, as long as it can be awaited.

    Raises TypeError for any other result whose work has not run; see ``handlers``.
    """
    while inspect.isawaitable(result):
        result = await result
    check_result(result)


def being_cancelled() -> bool:
    """True if the current task is to end; false if a handler cancelled something of its own."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
