"""Adapters that let the asyncio consumer call an application's handlers."""

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

T = TypeVar("T", Message, KeyBatch)  # a handler's argument
A = TypeVar("A")


class ThreadStillRuns(Exception):
    """The worker ends before its handler's thread, so the message stays leased."""


def traced(handler: Callable[[T], Any], tracer: Tracer) -> Callable[[T], Any]:
    """Return *handler*, run in the context that *tracer* returns."""

    async def handle(taken: T) -> None:
        with tracer.handling(taken if isinstance(taken, Message) else taken[0]):
            await await_fully(await handler(taken))

    return handle


def in_thread(
    handler: Callable[[T], object], threads: ThreadPoolExecutor
) -> Callable[[T], Awaitable[object]]:
    """Return a plain *handler* as a coroutine function; cancelled, it raises ThreadStillRuns."""

    async def handle(taken: T) -> object:
        loop = asyncio.get_running_loop()
        run = contextvars.copy_context().run
        running = loop.run_in_executor(threads, run, without_stop_iteration, handler, taken)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            raise ThreadStillRuns from None

    return handle


def without_stop_iteration(function: Callable[[A], Any], argument: A) -> Any:
    """Call *function*; raise RuntimeError instead of StopIteration, which no future can store: the
    one that waits for the thread would never be done.
    """
    try:
        return function(argument)
    except StopIteration as error:
        name = getattr(function, "__qualname__", repr(function))
        raise RuntimeError(f"{name} raised StopIteration") from error


async def await_fully(result: object) -> None:
    """Await a handler's *result*, and the results of that, while they are awaitable.

    Raises TypeError for another result that represents unstarted work; see ``handlers``.
    """
    while inspect.isawaitable(result):
        result = await result
    check_result(result)


def is_cancelled() -> bool:
    """Return True if the current task is cancelled, False if a handler cancelled its own task."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
