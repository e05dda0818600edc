"""Gathering of puts: puts that arrive close together are appended with one write.

They wait while the disk syncs, or until the loop has handled all input of the same pass. One write,
one look at the queues and one notification of listeners then serve all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import structlog

from broker_core.errors import MayBeStored
from broker_core.store.appending import Part
from broker_core.store.pending import Stored

#: Receives where the message was stored, or the error.
Done = Callable[[Stored | Exception], None]
#: Results of puts, with the callbacks that wait for them.
PutResults = list[tuple[Done, Stored]]

_AT_ONCE_BYTES = 4 * 1024 * 1024

_log = structlog.get_logger("store")


class GatheredPuts:
    """Puts that wait for the next write. One event loop only."""

    def __init__(self, append: Callable[[Sequence[Part], int], list[Stored]]) -> None:
        """Gather for *append*.

        *append* receives parts and the time (ms since 1970), and raises as ``Appender.append``.
        """
        self._append = append
        self._parts: list[Part] = []
        self._dones: list[Done] = []
        self._store_ms = 0

    def __bool__(self) -> bool:
        return bool(self._parts)

    def add(self, part: Part, done: Done, *, store_ms: int) -> None:
        """Append *part* with the next write."""
        self._parts.append(part)
        self._dones.append(done)
        self._store_ms = max(self._store_ms, store_ms)

    def append_all(self) -> PutResults:
        """Append all parts in order of arrival; report a failed one to its callback at once."""
        parts, dones = self._parts, self._dones
        self._parts, self._dones = [], []
        results: PutResults = []
        begin = size = 0
        for end, (_, entries) in enumerate(parts, 1):
            size += sum(len(entry.body) for entry in entries)
            if size >= _AT_ONCE_BYTES or end == len(parts):
                results += self._append_some(parts[begin:end], dones[begin:end])
                begin, size = end, 0
        return results

    def _append_some(self, parts: list[Part], dones: list[Done]) -> PutResults:
        try:
            return list(zip(dones, self._append(parts, self._store_ms), strict=True))
        except Exception as error:
            if len(parts) == 1 or isinstance(error, MayBeStored):
                for done in dones:
                    complete(done, error)
                return []
        # Perhaps one of them is at fault: append each separately, so that the others are stored.
        results: PutResults = []
        for part, done in zip(parts, dones, strict=True):
            results += self._append_some([part], [done])
        return results


def complete(done: Done, outcome: Stored | Exception) -> None:
    """Call *done*; log its errors, since other callbacks are waiting."""
    try:
        done(outcome)
    except Exception as error:
        _log.error("callback of a put failed", exc_info=error)


def complete_all(results: PutResults, failure: OSError | None) -> None:
    """Call all callbacks, with *failure* if there is one."""
    for done, stored in results:
        complete(done, stored if failure is None else failure)
