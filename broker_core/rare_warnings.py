"""Warnings that any stranger can cause any number of: one a minute and address reaches the log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import structlog

from broker_core.clock import now_ns

_EVERY_NS = 60_000_000_000
_MAX_REMEMBERED = 1024  # of what was said lately; beyond it the oldest is forgotten


@dataclass(slots=True)
class _Said:
    at_ns: int
    unsaid: int = 0


class RareWarnings:
    """Writes to the log called *name*. One event loop only."""

    def __init__(self, name: str) -> None:
        self._log = structlog.get_logger(name)
        self._said: dict[tuple[str, str], _Said] = {}

    def warn(self, event: str, *, peer: str, **fields: Any) -> None:
        """Log *event* unless it was logged within the last minute for that host.

        *peer* is host:port. ``more`` tells how many were left out since.
        """
        key = event, peer.rpartition(":")[0]
        said = self._said.get(key)
        if said is not None and now_ns() - said.at_ns < _EVERY_NS:
            said.unsaid += 1
            return
        if said is not None:
            del self._said[key]  # to come last again
            fields |= {"more": said.unsaid} if said.unsaid else {}
        elif len(self._said) >= _MAX_REMEMBERED:
            del self._said[next(iter(self._said))]
        self._said[key] = _Said(now_ns())
        self._log.warning(event, peer=peer, **fields)
