"""Bodies that would wait for the garbage collector, which servers run rarely (``cli/garbage``)."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any


class Body(bytes):
    """A body that is counted until it is freed: see ``alive``."""

    _alive = 0

    def __new__(cls, content: bytes) -> Body:
        """Return a counted copy of *content*."""
        cls._alive += 1
        return super().__new__(cls, content)

    def __del__(self) -> None:
        type(self)._alive -= 1

    @classmethod
    def alive(cls) -> int:
        """Return the number of bodies that are not freed."""
        return cls._alive


@contextmanager
def no_collector() -> Iterator[None]:
    """Collect what is garbage already, then nothing."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def no_body_waits(least_bytes: int) -> Iterator[None]:
    """Assert that no content of at least *least_bytes* becomes garbage in a reference cycle."""
    with no_collector():
        yield
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            gc.collect()
            found = list(_large(gc.garbage, least_bytes))
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
    assert not found, "\n".join(found)


def _large(garbage: Iterable[Any], least_bytes: int) -> Iterator[str]:
    """Yield a line for each object of *garbage* that refers to such content."""
    for each in garbage:
        for held in gc.get_referents(each):
            if isinstance(held, (bytes, bytearray, memoryview)) and len(held) >= least_bytes:
                shown = repr(each) if type(each).__name__ in ("frame", "coroutine") else type(each)
                yield f"{shown} in a cycle refers to {len(held)} {type(held).__name__}"
