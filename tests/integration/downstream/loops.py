"""Runs tests on both event loops, which differ in sockets, buffers and timers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
import uvloop


def on_both_loops(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run *test*, which takes no fixtures, on asyncio's own loop and on uvloop."""

    def both(run: Callable[[Awaitable[None]], None]) -> None:
        run(test())

    both.__name__, both.__doc__ = test.__name__, test.__doc__
    loops = [asyncio.run, uvloop.run]
    marked: Callable[..., None] = pytest.mark.parametrize("run", loops, ids=["asyncio", "uvloop"])(
        both
    )
    return pytest.mark.sockets(marked)
