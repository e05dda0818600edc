"""Answers that all operators share, and readers, limited in number.

An operator's request may need thousands of offsets, or read megabytes. Neither may keep the event
loop, the brokers or other operators waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from broker_core.clock import now_ns
from proxy.errors import Overloaded

T = TypeVar("T")

#: Time for which an answer is shared, as a multiple of the time that it took, and answers kept.
_KEEP, _MOST_KEPT = 9, 256
#: Operators' requests that read messages or many offsets at a time, and how long others wait.
_MOST_READERS, _WAIT_S = 4, 5.0


@dataclass(slots=True)
class _Kept(Generic[T]):
    """An answer, while it counts, and the turn to ask."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    until_ns: int = 0
    basis: Hashable = None
    answer: T | None = None


class SharedAnswers(Generic[T]):
    """Answers for all viewers. A question is asked once at a time, and its answer counts for nine
    times as long as it took: however many look, it takes at most a tenth of the time. One that is
    *partial* counts only for as long as it took: that was mostly a wait for what is missing.
    """

    def __init__(self, *, is_partial: Callable[[T], bool] = lambda _: False) -> None:
        self._is_partial = is_partial
        self._kept: dict[Hashable, _Kept[T]] = {}

    def __len__(self) -> int:
        """Number of kept answers."""
        return len(self._kept)

    async def of(
        self, question: Hashable, ask: Callable[[], Awaitable[T]], *, basis: Hashable = None
    ) -> T:
        """Return the answer to *question*, from *ask* unless it is known on the same *basis*; an
        answer on another basis is forgotten. Raises what *ask* raises, to each viewer.
        """
        kept = self._kept.setdefault(question, _Kept())
        async with kept.turn:
            if kept.answer is None or kept.basis != basis or now_ns() >= kept.until_ns:
                kept.answer, kept.basis, began_ns = None, basis, now_ns()
                kept.answer = await ask()
                ended_ns = now_ns()
                keep = 1 if self._is_partial(kept.answer) else _KEEP
                kept.until_ns = ended_ns + keep * (ended_ns - began_ns)
                self._forget(ended_ns)
            return kept.answer

    def _forget(self, at_ns: int) -> None:
        if len(self._kept) > _MOST_KEPT:
            self._kept = {
                question: kept
                for question, kept in self._kept.items()
                if kept.turn.locked() or at_ns < kept.until_ns
            }


class Readers:
    """Admits a few readers at a time, in order of arrival. One object per process.

    Each holds its place for one page only, whose size and time are limited, so that neither a
    reader that is slow to take its answer nor many of them keep others out.
    """

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(_MOST_READERS)

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Hold a place. Raises Overloaded if none becomes free within 5 s."""
        try:
            async with asyncio.timeout(_WAIT_S):
                await self._places.acquire()
        except TimeoutError:
            raise Overloaded(
                "readers of the admin API",
                f"{_MOST_READERS} other requests of operators are reading: try again in a moment",
            ) from None
        try:
            yield
        finally:
            self._places.release()
