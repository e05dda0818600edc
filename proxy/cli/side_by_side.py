"""Runs computations in several processes."""

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

#: Forked processes call the last entry, which they inherit with all its data.
_work: list[Callable[[Any], Any]] = []


def side_by_side(work: Callable[[Item], Found], items: Iterable[Item]) -> Iterator[Found]:
    """Map *work* over *items* with one process per available processor.

    Processes inherit the data of *work*; items and results are pickled. Raises the exceptions of
    *work*, and OrderlaneError if a process is killed.
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
            f"one of {processes} processes was killed; if the machine is short of memory, use a"
            " smaller sample"
        ) from None
    finally:
        _work.remove(work)


def _processors() -> int:
    """Return the number of available processors; 1 on systems where forking is unsafe."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process ends them


def _one(item: Any) -> Any:
    return _work[-1](item)
