"""Which calls of a producer may still go: none that overtakes a failed one of its key. Pure."""

from __future__ import annotations

import threading
from collections.abc import Collection

#: A topic, and the hash of a sharding key.
Key = tuple[str, int]


class SendOrder:
    """Calls enter when they are made, and leave when they have ended. Threads may share it.

    When a call fails, those of its keys that were made before that, and wait, must not go: the
    application may send the failed one again. Remembers failures only while calls wait.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = self._inside = 0
        self._failed: dict[Key, int] = {}  # the last call made before the key's failure

    def enter(self) -> int:
        """Return the call's number."""
        with self._lock:
            self._inside += 1
            self._last += 1
            return self._last

    def leave(self, *, failed: Collection[Key] = ()) -> None:
        """A call has ended; *failed* are the keys of what it did not store."""
        with self._lock:
            self._inside -= 1
            self._failed.update(dict.fromkeys(failed, self._last))
            if not self._inside:
                self._failed.clear()

    def held_back(self, number: int, keys: Collection[Key]) -> bool:
        """True if call *number* was made before one of its *keys* failed."""
        with self._lock:
            return any(self._failed.get(key, 0) >= number for key in keys)
