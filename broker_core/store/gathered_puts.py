"""Puts that come close together are appended by one write.

While the disk syncs, or until the loop has seen to all that arrived in the same turn, they wait
here: a write, a look at the queues and a word to whoever listens cost the same for one as for all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import structlog

from broker_core.store.appending import Part
from broker_core.store.pending import Stored

#: Told where it was stored, or why not.
Done = Callable[[Stored | Exception], None]
#: What was appended, with those who wait to hear of it.
Told = list[tuple[Done, Stored]]

_AT_ONCE_BYTES = 4 * 1024 * 1024

_log = structlog.get_logger("store")


class GatheredPuts:
    """Puts that wait for the next write. One event loop only."""

    def __init__(self, append: Callable[[Sequence[Part], int], list[Stored]]) -> None:
        """*append* gets parts and the time (ms since 1970), and raises as ``Appender.append``."""
        self._append = append
        self._parts: list[Part] = []
        self._dones: list[Done] = []
        self._store_ms = 0

    def __bool__(self) -> bool:
        return bool(self._parts)

    def add(self, part: Part, done: Done, *, store_ms: int) -> None:
        """Have *part* appended with the next ones."""
        self._parts.append(part)
        self._dones.append(done)
        self._store_ms = max(self._store_ms, store_ms)

    def append_all(self) -> Told:
        """Append all, in the order of their coming; who cannot be served hears so at once."""
        parts, dones = self._parts, self._dones
        self._parts, self._dones = [], []
        told: Told = []
        begin = size = 0
        for end, (_, entries) in enumerate(parts, 1):
            size += sum(len(entry.body) for entry in entries)
            if size >= _AT_ONCE_BYTES or end == len(parts):
                told += self._append_some(parts[begin:end], dones[begin:end])
                begin, size = end, 0
        return told

    def _append_some(self, parts: list[Part], dones: list[Done]) -> Told:
        try:
            return list(zip(dones, self._append(parts, self._store_ms), strict=True))
        except Exception as error:
            if len(parts) == 1:
                tell(dones[0], error)
                return []
        # One of them, perhaps: each by itself then, so that the others get in.
        told: Told = []
        for part, done in zip(parts, dones, strict=True):
            told += self._append_some([part], [done])
        return told


def tell(done: Done, outcome: Stored | Exception) -> None:
    """Call *done*; what it raises is logged, for others wait to be told as well."""
    try:
        done(outcome)
    except Exception as error:
        _log.error("a put was not answered", exc_info=error)


def tell_all(told: Told, failure: OSError | None) -> None:
    """Call all of *told*; with *failure*, if there is one."""
    for done, stored in told:
        tell(done, stored if failure is None else failure)
