"""The history of a world: what all processes wrote, in the order in which it happened."""

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
    """Writes the events of one process; times rise with every event of the world."""

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
            # As JSON has them: what the process changes later has been written already.
            self._events += [{**head, **_plain(fields)} for fields in each]

    def silence(self) -> None:
        """Write nothing from now on: the process has died."""
        self.enabled = False

    def close(self) -> None:
        """Write ``stop``: the process ended by its own will."""
        self.write("stop")
        self.enabled = False


def _plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    for value in fields.values():
        if type(value) in _CONTAINERS:
            plain: dict[str, Any] = orjson.loads(orjson.dumps(dict(fields)))
            return plain
    return dict(fields)


def lines(events: Iterable[Event]) -> bytes:
    """The history as files have it: one JSON line an event."""
    return b"".join(orjson.dumps(event, option=orjson.OPT_APPEND_NEWLINE) for event in events)


def digest(events: Iterable[Event]) -> str:
    """A name for the history, the same only for the same bytes."""
    return hashlib.sha256(lines(events)).hexdigest()


def save(events: Iterable[Event], path: Path) -> None:
    """Write it to a file that ``orderlane verify-history`` takes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lines(events))
