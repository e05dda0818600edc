"""The order of a producer's calls: none may overtake a failed call with the same key. Pure."""

from __future__ import annotations

import threading
from collections.abc import Collection

#: A topic, and the hash of a sharding key or the name of a queue.
Key = tuple[str, int | str]

#: Numbers of a failed call and of the last call that was made before it ended: it holds back the
#: calls behind the first, up to the second.
_Failure = tuple[int, int]


class SendOrder:
    """Tracks calls from their start to their end. Thread-safe.

    When a call fails, the calls behind it that wait with its keys must not be sent, because the
    application may send the failed messages again. Calls ahead of it are sent: a waiting call may
    end before them, for example because it is cancelled. Failures are remembered only while calls
    wait.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0
        self._inside: set[int] = set()
        self._failed: dict[Key, list[_Failure]] = {}

    def enter(self) -> int:
        """Register a call and return its number."""
        with self._lock:
            self._last += 1
            self._inside.add(self._last)
            return self._last

    def leave(self, number: int, *, failed: Collection[Key] = ()) -> None:
        """Record the end of call *number*; *failed*: the keys of messages that were not stored."""
        with self._lock:
            self._inside.remove(number)
            if not self._inside:
                self._failed.clear()
                return
            for key in failed:
                self._fail(key, number)

    def held_back(self, number: int, keys: Collection[Key]) -> bool:
        """Return True if a call with one of the *keys* failed that was made before call *number*
        and ended after that.
        """
        with self._lock:
            failures = self._failed
            return any(
                first < number <= last for key in keys for first, last in failures.get(key, ())
            )

    def _fail(self, key: Key, number: int) -> None:
        """Note that call *number* failed with *key*."""
        failures = self._failed.get(key)
        if not failures:
            self._failed[key] = [(number, self._last)]
            return
        first, last = failures[-1]
        if first <= number <= last:
            failures[-1] = (first, self._last)
            return
        oldest = min(self._inside)
        waited_for = [each for each in failures if each[0] < number and each[1] >= oldest]
        self._failed[key] = [*waited_for, (number, self._last)]
