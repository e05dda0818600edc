"""Checks of handlers and their results, so that unstarted work is never acked. Pure.

Calling a coroutine function, a generator function or a class only creates an object. So does a
plain function that returns such an object.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import inspect
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterator, ValuesView
from types import FunctionType, MethodType

from thin_client.key_batch import KeyBatch
from thin_client.message import Message

#: Handler of ``Consumer``: a plain function.
PlainHandler = Callable[[Message], None]
PlainBatchHandler = Callable[[KeyBatch], None]
#: Handler of ``AsyncConsumer``: a coroutine function, or a plain function, which runs in a thread.
Handler = Callable[[Message], Awaitable[object] | None]
BatchHandler = Callable[[KeyBatch], Awaitable[object] | None]

#: Modules of iterators that do their work when they are iterated.
_ITERATORS = ("builtins", "itertools", "asyncio.tasks")
#: Attributes, by module, without a value until a process has ended.
_PROCESSES = {
    "subprocess": "returncode",
    "asyncio.subprocess": "returncode",
    "multiprocessing.process": "exitcode",
}


def check_handler(handler: object) -> None:
    """Raise TypeError for a *handler* whose call does not do its work."""
    if not callable(handler):
        raise TypeError(f"the handler is {_shown(handler)}: expected a function")
    for function in _called(handler):
        if inspect.isclass(function):
            raise TypeError(
                f"the handler is the class {function.__qualname__}, whose call only creates an"
                " object: expected a function, or an object with __call__"
            )
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(
                f"the handler {_shown(handler)} is a generator function, whose call runs no code:"
                " expected a function without yield"
            )


def check_plain_handler(handler: object) -> None:
    """Raise TypeError as ``check_handler``, and for a coroutine function too."""
    check_handler(handler)
    if is_coroutine_function(handler):
        raise TypeError(
            f"the handler {_shown(handler)} is a coroutine function, which Consumer cannot await:"
            " use a plain def, or AsyncConsumer"
        )


def is_coroutine_function(handler: object) -> bool:
    """Return whether *handler* is known to return an awaitable."""
    return any(map(inspect.iscoroutinefunction, _called(handler)))


def check_result(result: object) -> None:
    """Raise TypeError if a handler's *result* represents work that has not finished.

    This is an awaitable, an iterator (such as a generator or ``map``), a function, what a
    ``contextmanager`` returns, a pending future or result of a pool, a scheduled callback, a thread
    or process that has not ended, or a collection with one of these, also the sets that the
    functions ``wait`` return. The exception of a finished future is
    raised, and so is a returned exception, also in a collection, as of ``gather(...,
    return_exceptions=True)``: a handler that returns a Retry does not mean an ack.
    """
    if result is None:
        return
    for each in _parts(result):
        if isinstance(each, BaseException):
            raise each
        if isinstance(each, concurrent.futures.Future | asyncio.Future) and each.done():
            each.result()
            continue
        what = _not_run(each)
        if what is None:
            continue
        if inspect.iscoroutine(each):
            each.close()  # otherwise Python logs a warning later
        raise TypeError(
            f"the handler returned {what}, so its work has not run: await or call it in the handler"
        )


def _parts(result: object) -> Collection[object]:
    if isinstance(result, tuple) and all(isinstance(each, set) for each in result):
        return [each for some in result for each in some]  # of wait: what is done, and what is not
    if isinstance(result, list | tuple | set | frozenset | deque | ValuesView):
        return result
    return result.values() if isinstance(result, dict) else (result,)


def _not_run(result: object) -> str | None:
    """Return a description of *result* if it represents unfinished work, else None."""
    if inspect.isawaitable(result):
        return f"a {type(result).__name__} that was not awaited"
    if _is_generator(result):
        return "a generator that was not iterated"
    if isinstance(result, Iterator) and _is_of(result, *_ITERATORS):
        return f"a {type(result).__name__} that was not iterated"
    if _is_of(result, "contextlib") and _is_generator(getattr(result, "gen", None)):
        return "a context manager that was not entered"
    if isinstance(result, FunctionType | MethodType | functools.partial):
        return "a function that was not called"
    if isinstance(result, concurrent.futures.Future):
        return "a Future that is not done"
    if _is_of(result, "multiprocessing.pool"):
        ready = getattr(result, "ready", None)
        if ready is not None and not ready():
            return f"a {type(result).__name__} that is not ready"
    if isinstance(result, asyncio.Handle):
        return "a callback that is only scheduled"
    return _at_work(result)


def _at_work(result: object) -> str | None:
    """Return a description of *result* if it is a thread or process that has not ended."""
    if isinstance(result, threading.Thread):
        return "a thread that has not ended" if result.ident is None or result.is_alive() else None
    for module, code in _PROCESSES.items():
        if _is_of(result, module) and getattr(result, code, 0) is None:
            poll = getattr(result, "poll", None)
            return None if poll is not None and poll() is not None else "a process that runs"
    return None


def _is_generator(value: object) -> bool:
    return inspect.isgenerator(value) or inspect.isasyncgen(value)


def _is_of(result: object, *modules: str) -> bool:
    """Return whether the class of *result*, or one of its bases except ``object``, is of *modules*.

    Iterators of others may be cursors, whose statement has run.
    """
    return any(each.__module__ in modules for each in type(result).__mro__[:-1])


def _called(handler: object) -> Iterator[object]:
    """Yield the callables that calling *handler* may run: itself, and its ``__call__``."""
    handler = _without_arguments(handler)
    yield handler
    yield _without_arguments(getattr(handler, "__call__", None))  # noqa: B004


def _without_arguments(function: object) -> object:
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _shown(handler: object) -> str:
    name = getattr(_without_arguments(handler), "__qualname__", None)
    return name if isinstance(name, str) else repr(handler)
