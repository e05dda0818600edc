"""Which handlers a consumer can call, and which results mean that their work has not run. Pure.

A call of a coroutine function, a generator function or a class makes an object and does no work.
So does a plain function that returns what such a call made. Neither may count as an ack.
"""

from __future__ import annotations

import concurrent.futures
import functools
import inspect
from collections.abc import Awaitable, Callable, Iterator
from types import FunctionType, MethodType

from thin_client.key_batch import KeyBatch
from thin_client.message import Message

#: What ``Consumer`` calls: a plain function, whose return acks.
PlainHandler = Callable[[Message], None]
PlainBatchHandler = Callable[[KeyBatch], None]
#: What ``AsyncConsumer`` calls: a coroutine function, or a plain one, which runs in a thread.
Handler = Callable[[Message], Awaitable[object] | None]
BatchHandler = Callable[[KeyBatch], Awaitable[object] | None]


def check_handler(handler: object) -> None:
    """Raise TypeError for a *handler* whose call would do none of its work."""
    if not callable(handler):
        raise TypeError(f"the handler is {_shown(handler)}: expected a function")
    for function in _called(handler):
        if inspect.isclass(function):
            raise TypeError(
                f"the handler is the class {function.__qualname__}, whose call only makes an"
                " object: expected a function, or an object with __call__"
            )
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(
                f"the handler {_shown(handler)} is a generator function, whose call runs none of"
                " it: expected a function without yield"
            )


def check_plain_handler(handler: object) -> None:
    """As ``check_handler``, for a consumer without an event loop: raise TypeError for a coroutine
    function too.
    """
    check_handler(handler)
    if is_coroutine_function(handler):
        raise TypeError(
            f"the handler {_shown(handler)} is a coroutine function, which Consumer cannot await:"
            " use a plain def, or AsyncConsumer"
        )


def is_coroutine_function(handler: object) -> bool:
    """Whether calling *handler* gives what can be awaited, as far as that can be told."""
    return any(map(inspect.iscoroutinefunction, _called(handler)))


def check_result(result: object) -> None:
    """Raise TypeError if *result*, which a handler returned, says that its work has not run, or may
    still run: an awaitable, a generator, a function, a future that is not done, or a list with such
    a thing in it. A future that is done raises what its work raised, and an exception that was
    returned is raised: a handler that returns a Retry does not mean an ack.
    """
    if result is None:
        return
    if isinstance(result, BaseException):
        raise result
    for each in result if isinstance(result, list | tuple) else (result,):
        if isinstance(each, concurrent.futures.Future) and each.done():
            each.result()
            continue
        what = _not_run(each)
        if what is None:
            continue
        if inspect.iscoroutine(each):
            each.close()  # or Python warns of it later, at some other place
        raise TypeError(
            f"the handler returned {what}, so its work has not run: a message is acked only when"
            " the handler has done its work"
        )


def _not_run(result: object) -> str | None:
    """What *result* is if it stands for work that is still to be done, else None."""
    if inspect.isawaitable(result):
        return f"a {type(result).__name__} that nobody awaits"
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        return "a generator that nobody iterates"
    if isinstance(result, FunctionType | MethodType | functools.partial):
        return "a function that nobody calls"
    if isinstance(result, concurrent.futures.Future):
        return "a Future that nobody waits for"
    return None


def _called(handler: object) -> Iterator[object]:
    """What a call of *handler* runs: itself, and the ``__call__`` of an object."""
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
