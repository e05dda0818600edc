"""Adapters that let the asyncio consumer call an application's handlers."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from thin_client.handlers import check_result
from thin_client.key_batch import KeyBatch
from thin_client.message import Message
from thin_client.tracing import Handling, Tracer

T = TypeVar("T", Message, KeyBatch)  # a handler's argument
A = TypeVar("A")


class ThreadStillRuns(Exception):
    """The worker ends before its handler's thread, so the message stays leased."""


def traced(handler: Callable[[T], Any], tracer: Tracer) -> Callable[[T], Any]:
    """Return *handler*, run in the context that *tracer* returns."""

    async def handle(taken: T) -> None:
        with Handling(tracer, taken if isinstance(taken, Message) else taken[0]):
            await await_fully(await handler(taken))

    return handle


def in_thread(
    handler: Callable[[T], object], threads: ThreadPoolExecutor
) -> Callable[[T], Awaitable[object]]:
    """Return a plain *handler* as a coroutine function; cancelled, it raises ThreadStillRuns."""

    async def handle(taken: T) -> object:
        ended: Future[tuple[object, BaseException | None]] = Future()
        context = contextvars.copy_context()

        def run() -> None:
            if ended.set_running_or_notify_cancel():
                ended.set_result(context.run(outcome_of, handler, taken))

        try:
            threads.submit(run)
        except RuntimeError:  # no further thread can start, but another one may take it
            if ended.cancel():
                raise
        try:
            result, error = await asyncio.shield(asyncio.wrap_future(ended))
        except asyncio.CancelledError:
            raise ThreadStillRuns from None
        if error is not None:
            try:
                raise error
            finally:
                del error, taken  # it refers to this frame, and so would keep the message
        return result

    return handle


def outcome_of(function: Callable[[A], Any], argument: A) -> tuple[Any, BaseException | None]:
    """Call *function*; return its result and exception.

    As values, because some exceptions have a meaning of their own in a future: it cannot store
    StopIteration, and takes CancelledError for its own.
    """
    try:
        return function(argument), None
    except StopIteration as error:
        name = getattr(function, "__qualname__", repr(function))
        raised = RuntimeError(f"{name} raised StopIteration")
        raised.__cause__ = error
        return None, raised
    except BaseException as error:
        return None, error


async def await_fully(result: object) -> None:
    """Await a handler's *result*, and the results of that, while they are awaitable.

    Raises TypeError for another result that represents unstarted work; see ``handlers``.
    """
    while inspect.isawaitable(result):
        result = await result
    check_result(result)


def is_cancelled() -> bool:
    """Return True if the current task was cancelled, False if what it awaited was."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def is_ending(ends: Callable[[], bool]) -> bool:
    """Return whether a CancelledError in the current task ends it; *ends* tells if its owner ends.

    Otherwise a handler cancelled its own task, as home-made time-outs do, or awaited something that
    was cancelled: then the task goes on.
    """
    task = asyncio.current_task()
    if task is None or not is_cancelled():
        return False
    if ends():
        return True
    while task.cancelling():
        task.uncancel()
    await asyncio.sleep(0)  # if all tasks of the loop are cancelled, the owner's has its turn now
    return ends()
