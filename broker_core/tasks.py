"""The only way to start a task: with a name, a strong reference and a logged failure."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Executor
from contextlib import suppress
from contextvars import copy_context
from typing import Any, ParamSpec, TypeVar

import structlog

P = ParamSpec("P")
T = TypeVar("T")
_log = structlog.get_logger("tasks")
_running: set[asyncio.Task[Any]] = set()  # the loop keeps only weak references


def spawn(coroutine: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
    """Run *coroutine* in the background; log a failure that is not awaited with the task's name."""
    task = asyncio.get_running_loop().create_task(coroutine, name=name)
    _running.add(task)
    task.add_done_callback(_ended)
    return task


async def in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return the result of *work*, which blocks, from a thread; end only when it has ended.

    A thread cannot be stopped. If the caller were cancelled earlier, its files could be closed, or
    opened again, while they are still being written.
    """
    return await in_thread_of(None, work, *args, **kwargs)


async def in_thread_of(
    executor: Executor | None, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Do as ``in_thread`` does, in a thread of *executor*."""
    loop = asyncio.get_running_loop()
    context = copy_context()
    running = loop.run_in_executor(executor, lambda: context.run(work, *args, **kwargs))
    try:
        return await finished(running)
    finally:
        del running  # a failure would refer to this frame


async def finished(work: asyncio.Future[T]) -> T:
    """Return the result of *work*, or raise its error; end only when it has ended.

    If the caller is cancelled, *work* is not: then wait for it, and log its error.
    """
    try:
        await asyncio.wait((work,))
    except asyncio.CancelledError:
        while not work.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait((work,))
        if not work.cancelled() and (error := work.exception()) is not None:
            _log.warning("work of a cancelled task failed", reason=str(error))
        raise
    try:
        return work.result()
    finally:
        del work  # a failure would refer to this frame


async def all_results(*awaitables: Awaitable[T]) -> list[T]:
    """Wait until all *awaitables* have ended; return their results, or raise the first failure.

    Unlike the list of ``asyncio.gather``, no variable keeps a failure, whose traceback would refer
    to the variable's frame: both would wait for the garbage collector.
    """
    ended = await asyncio.gather(*awaitables, return_exceptions=True)
    results = [each for each in ended if not isinstance(each, BaseException)]
    if len(results) == len(ended):
        return results
    failures = [each for each in reversed(ended) if isinstance(each, BaseException)]
    del ended, awaitables
    try:
        raise failures[-1]
    finally:
        failures.clear()


async def cancel_and_wait(*tasks: asyncio.Task[Any] | None) -> None:
    """Cancel *tasks* and wait until all have ended; their errors are logged already."""
    live = [task for task in tasks if task is not None and not task.done()]
    for task in live:
        task.cancel()
    if live:
        await asyncio.wait(live)


class Turns:
    """Gives other tasks a turn after every *every* steps of long work in the event loop."""

    def __init__(self, every: int) -> None:
        self._every = every
        self._steps = 0

    async def step(self) -> None:
        """Count a step, and let others work if it is their turn."""
        self._steps += 1
        if self._steps >= self._every:
            self._steps = 0
            await asyncio.sleep(0)


def _ended(task: asyncio.Task[Any]) -> None:
    _running.discard(task)
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("task failed", task=task.get_name(), exc_info=error)
