"""Bodies that would wait for the garbage collector, which servers run rarely (``cli/garbage``)."""

from __future__ import annotations

import gc
from collections.abc import Iterator
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


def _large(garbage: list[Any], least_bytes: int) -> Iterator[str]:
    """Yield a line for each object of *garbage* that refers to such content, with those that refer
    to it.
    """
    found = [
        (each, held)
        for each in garbage
        for held in gc.get_referents(each)
        if isinstance(held, (bytes, bytearray, memoryview)) and len(held) >= least_bytes
    ]
    if not found:
        return
    referrers: dict[int, Any] = {}
    for each in garbage:
        for held in gc.get_referents(each):
            referrers.setdefault(id(held), each)
    for each, held in found:
        way = " of ".join(_way_to(each, referrers))
        yield f"{len(held)} {type(held).__name__} of {way} wait for the collector"


def _way_to(found: Any, referrers: dict[int, Any], *, most: int = 20) -> list[str]:
    """Return what *found* is, and what refers to it, and so on."""
    way = [_shown(found)]
    while len(way) < most and (found := referrers.get(id(found))) is not None:
        way.append(_shown(found))
    return way


def _shown(each: Any) -> str:
    name = type(each).__name__
    return repr(each) if name in ("frame", "coroutine", "function", "method") else name
