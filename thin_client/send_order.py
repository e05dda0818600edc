"""The order of a producer's calls: none may overtake a failed call with the same key. Pure."""

from __future__ import annotations

import threading
from collections.abc import Collection

#: A topic, and the hash of a sharding key or the name of a queue.
Key = tuple[str, int | str]


class SendOrder:
    """Tracks calls from their start to their end. Thread-safe.

    When a call fails, waiting calls with its keys must not be sent, because the application may
    send the failed messages again. Failures are remembered only while calls wait.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = self._inside = 0
        self._failed: dict[Key, int] = {}  # number of the last call before the key's failure

    def enter(self) -> int:
        """Register a call and return its number."""
        with self._lock:
            self._inside += 1
            self._last += 1
            return self._last

    def leave(self, *, failed: Collection[Key] = ()) -> None:
        """Record the end of a call; *failed*: the keys of messages that were not stored."""
        with self._lock:
            self._inside -= 1
            self._failed.update(dict.fromkeys(failed, self._last))
            if not self._inside:
                self._failed.clear()

    def held_back(self, number: int, keys: Collection[Key]) -> bool:
        """Return True if one of the *keys* failed after call *number* was made."""
        with self._lock:
            return any(self._failed.get(key, 0) >= number for key in keys)
