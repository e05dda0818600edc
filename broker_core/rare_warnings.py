"""Warnings that strangers can cause without limit: the log gets one per minute and address."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import structlog

from broker_core.clock import now_ns

_EVERY_NS = 60_000_000_000
_MAX_REMEMBERED = 1024  # recent warnings; the oldest is forgotten beyond it


@dataclass(slots=True)
class _Said:
    at_ns: int
    unsaid: int = 0


class RareWarnings:
    """Rate-limited warnings in the log called *name*. One event loop only."""

    def __init__(self, name: str) -> None:
        self._log = structlog.get_logger(name)
        self._said: dict[tuple[str, str], _Said] = {}

    def warn(self, event: str, *, peer: str, **fields: Any) -> None:
        """Log *event* unless it was logged for the same host within the last minute.

        *peer* is host:port. The field ``more`` is the number of warnings omitted since.
        """
        key = event, peer.rpartition(":")[0]
        said = self._said.get(key)
        if said is not None and now_ns() - said.at_ns < _EVERY_NS:
            said.unsaid += 1
            return
        if said is not None:
            del self._said[key]  # moves it to the end
            fields |= {"more": said.unsaid} if said.unsaid else {}
        elif len(self._said) >= _MAX_REMEMBERED:
            del self._said[next(iter(self._said))]
        self._said[key] = _Said(now_ns())
        self._log.warning(event, peer=peer, **fields)
