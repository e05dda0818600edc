"""A key, or a whole queue, paused by an operator, in the ownership records. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

#: Used instead of a key if the whole queue is paused because its group is.
EVERYTHING = None


@dataclass(frozen=True, slots=True)
class PausedKey:
    """A pause by the actor ``by`` for a ``reason``, since ``since_ms`` (wall time); ``note`` is an
    operator's, "" for none.
    """

    since_ms: int
    by: str = ""
    reason: str = ""
    note: str = ""

    def to_json(self) -> list[Any]:
        """Return the fields of a record; the note is stored separately."""
        return [self.since_ms, self.by, self.reason]

    @classmethod
    def from_json(cls, fields: Any) -> PausedKey:
        """Undo ``to_json``. Raise ValueError or TypeError."""
        since_ms, by, reason = fields
        if not 0 <= int(since_ms) < 2**63:
            raise ValueError(f"a key is paused since {since_ms}, which is not a valid time")
        return cls(int(since_ms), str(by), str(reason))
