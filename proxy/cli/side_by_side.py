"""Work without I/O that is done in several processes at a time."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from proxy.errors import OrderlaneError

Item = TypeVar("Item")
Found = TypeVar("Found")

#: What forked processes are to call, the last of it; they have it, and all that it knows, as this
#: one had it.
_work: list[Callable[[Any], Any]] = []


def side_by_side(work: Callable[[Item], Found], items: Iterable[Item]) -> Iterator[Found]:
    """As ``map``, with a process for each processor that this one may use. What *work* knows is
    not copied; items and what is found travel by pickle.

    Raises what *work* raises, and OrderlaneError if a process is killed, by the system if need be.
    """
    items = list(items)
    processes = min(len(items), _processors())
    if processes <= 1:
        yield from map(work, items)
        return
    _work.append(work)
    context = multiprocessing.get_context("fork")
    try:
        with ProcessPoolExecutor(processes, context, initializer=_begin) as pool:
            yield from pool.map(_one, items)
    except BrokenProcessPool:
        raise OrderlaneError(
            f"one of {processes} processes was killed before it was done; if the machine is short"
            " of memory, take a smaller sample"
        ) from None
    finally:
        _work.remove(work)


def _processors() -> int:
    """One where the system does not say: there, forking is not safe either."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process ends them


def _one(item: Any) -> Any:
    return _work[-1](item)
