"""Pace of the key index: how long it pauses for reads and sends. Pure; time is an argument.

1. While messages are read or sent, the index takes a twentieth of the time.
2. It takes half of the time while neither happens, while a query waits for it, or once it is too
   far behind: by ``MAX_BEHIND_BYTES``, or for ``MAX_BEHIND_NS``. So reads and sends delay it only
   within these bounds.
"""

from __future__ import annotations

from dataclasses import dataclass

_MS = 1_000_000
#: Longest time that the index works before others do.
SLICE_NS = 2 * _MS
#: Pauses after it: half of the time is its own, or a twentieth.
PAUSE_NS, BUSY_PAUSE_NS = SLICE_NS, 19 * SLICE_NS
#: Time after a read or send until the next one in which the store still counts as busy.
BUSY_FOR_NS = 100 * _MS
#: Bytes of the log that may wait while others are served; indexed within the time that a query
#: waits for the index.
MAX_BEHIND_BYTES = 64 * 1024 * 1024
#: Time since the index last was at the end of the log, after which it no longer gives way.
MAX_BEHIND_NS = 30_000 * _MS


@dataclass(slots=True)
class IndexPace:
    """Decides on the pauses of one index."""

    _served: tuple[int, int] | None = None
    _busy_until_ns: int = 0
    _behind_since_ns: int | None = None

    def pause_ns(
        self, now_ns: int, *, served: tuple[int, int], behind_bytes: int, asked: bool
    ) -> int:
        """Return the pause before the next slice. Called after each slice.

        Args:
            now_ns: the time
            served: counters of reads and of sends, or any numbers that change with them
            behind_bytes: visible bytes of the log not indexed yet
            asked: whether a query waits for the index
        """
        if self._served is not None and served != self._served:
            self._busy_until_ns = now_ns + BUSY_FOR_NS
        self._served = served
        if behind_bytes == 0:
            self._behind_since_ns = None
        elif self._behind_since_ns is None:
            self._behind_since_ns = now_ns
        gives_way = (
            now_ns < self._busy_until_ns and not asked and not self._is_late(now_ns, behind_bytes)
        )
        return BUSY_PAUSE_NS if gives_way else PAUSE_NS

    def _is_late(self, now_ns: int, behind_bytes: int) -> bool:
        since_ns = self._behind_since_ns
        return behind_bytes > MAX_BEHIND_BYTES or (
            since_ns is not None and now_ns - since_ns >= MAX_BEHIND_NS
        )
