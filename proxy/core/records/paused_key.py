"""What ownership records say of a key that an operator paused, or of a whole queue. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

#: In place of a key: all of the queue is paused, since its group is.
EVERYTHING = None


@dataclass(frozen=True, slots=True)
class PausedKey:
    """``by`` asked for it, for that ``reason``, at ``since_ms`` (wall time); ``note`` is an
    operator's, "" for none.
    """

    since_ms: int
    by: str = ""
    reason: str = ""
    note: str = ""

    def to_json(self) -> list[Any]:
        """As it stands in a record, but for the note, which stands beside it."""
        return [self.since_ms, self.by, self.reason]

    @classmethod
    def from_json(cls, fields: Any) -> PausedKey:
        """Undo ``to_json``. Raises ValueError or TypeError."""
        since_ms, by, reason = fields
        if not 0 <= int(since_ms) < 2**63:
            raise ValueError(f"a key paused at {since_ms}: no time is such")
        return cls(int(since_ms), str(by), str(reason))
