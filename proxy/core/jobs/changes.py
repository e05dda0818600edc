"""A dictionary that notes which of its keys changed. Pure.

What is written down each second must not cost as much as all that is there: whoever writes down
takes the note, and looks at nothing else.
"""

from __future__ import annotations

from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")

_NONE: Any = object()


class Noted(dict[K, V]):
    """``changed`` are the keys that were set or taken out, until somebody clears it. It knows those
    ways of changing alone that are defined here.
    """

    __slots__ = ("changed",)

    def __init__(self, *given: Any) -> None:
        """As ``dict``; what it begins with is no change."""
        super().__init__(*given)
        self.changed: set[K] = set()

    def __setitem__(self, key: K, value: V) -> None:
        self.changed.add(key)
        super().__setitem__(key, value)

    def __delitem__(self, key: K) -> None:
        super().__delitem__(key)
        self.changed.add(key)

    def pop(self, key: K, default: Any = _NONE) -> Any:
        """As ``dict``."""
        if key in self:
            self.changed.add(key)
            return super().pop(key)
        if default is _NONE:
            raise KeyError(key)
        return default

    def _unknown(self, *_: Any, **__: Any) -> Any:
        raise TypeError("a noted dictionary is changed key by key")

    clear = popitem = setdefault = update = __ior__ = _unknown
