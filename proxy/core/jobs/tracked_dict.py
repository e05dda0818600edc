"""A dictionary that records which of its keys changed. Pure.

Periodic records must cost as much as the changes, not as the whole state: the recorder reads and
clears the changed keys only.
"""

from __future__ import annotations

from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")

_NONE: Any = object()


class TrackedDict(dict[K, V]):
    """A dictionary whose ``changed`` holds the keys set or removed since it was last cleared. Only
    the mutating methods defined here are supported.
    """

    __slots__ = ("changed",)

    def __init__(self, *given: Any) -> None:
        """Create it like ``dict``; the initial items do not count as changed."""
        super().__init__(*given)
        self.changed: set[K] = set()

    def __setitem__(self, key: K, value: V) -> None:
        self.changed.add(key)
        super().__setitem__(key, value)

    def __delitem__(self, key: K) -> None:
        super().__delitem__(key)
        self.changed.add(key)

    def pop(self, key: K, default: Any = _NONE) -> Any:
        """Remove a key as ``dict.pop`` does."""
        if key in self:
            self.changed.add(key)
            return super().pop(key)
        if default is _NONE:
            raise KeyError(key)
        return default

    def _unknown(self, *_: Any, **__: Any) -> Any:
        raise TypeError("a tracked dictionary is changed key by key")

    clear = popitem = setdefault = update = __ior__ = _unknown
