"""The history of a world: the events of all processes, in the order in which they happened."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import orjson

from broker_core.clock import now_ns, wall_ms

Event = dict[str, Any]
_CONTAINERS = frozenset((list, dict, tuple))


class Pen:
    """Writes the events of one process; times increase with every event of the world."""

    def __init__(self, events: list[Event], node: str, *, parts: Iterable[str] = ()) -> None:
        self.enabled = True
        self._events, self._node = events, node
        self.write("start", pid=1, parts=list(parts))

    def write(self, event: str, **fields: Any) -> None:
        """Write one event."""
        self.write_many(event, (fields,))

    def write_many(self, event: str, each: Iterable[Mapping[str, Any]]) -> None:
        """Write several events of one kind."""
        if self.enabled:
            last_ns = self._events[-1]["t_ns"] if self._events else 0
            at_ns = max(now_ns(), last_ns + 1)
            head = {"e": event, "t_ns": at_ns, "wall_ms": wall_ms(), "node": self._node}
            # Converted to JSON values now, because the process may change them later.
            self._events += [{**head, **_plain(fields)} for fields in each]

    def silence(self) -> None:
        """Discard all further events: the process has died."""
        self.enabled = False

    def close(self) -> None:
        """Write ``stop``: the process stopped by itself."""
        self.write("stop")
        self.enabled = False


def _plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    for value in fields.values():
        if type(value) in _CONTAINERS:
            plain: dict[str, Any] = orjson.loads(orjson.dumps(dict(fields)))
            return plain
    return dict(fields)


def lines(events: Iterable[Event]) -> bytes:
    """Return the history as in files: one JSON line per event."""
    return b"".join(orjson.dumps(event, option=orjson.OPT_APPEND_NEWLINE) for event in events)


def digest(events: Iterable[Event]) -> str:
    """Return a digest of the history, equal only for equal bytes."""
    return hashlib.sha256(lines(events)).hexdigest()


def save(events: Iterable[Event], path: Path) -> None:
    """Write it to a file that ``orderlane verify-history`` accepts."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lines(events))
