"""The handle by which a producer recalls a delayed message. Pure.

Source: ``RecallMessageHandle`` (5.3.3).
"""

from __future__ import annotations

import base64
from typing import NamedTuple

from broker_core.errors import InvalidCommand

_VERSION = "v1"


class RecallHandle(NamedTuple):
    """A waiting message at a broker, given by its due time (ms since 1970) and id.

    ``number`` is an extension: the ``DelayedPlace`` where it was stored, or None.
    """

    topic: str
    broker_name: str
    due_ms: int
    message_id: str
    number: int | None = None

    def to_text(self) -> str:
        """Return the fields with blanks in between, as URL-safe Base64."""
        parts = [_VERSION, self.topic, self.broker_name, str(self.due_ms), self.message_id]
        if self.number is not None:
            parts.append(str(self.number))
        return base64.urlsafe_b64encode(" ".join(parts).encode()).decode()

    @classmethod
    def from_text(cls, text: str) -> RecallHandle:
        """Inverse of ``to_text``; raise InvalidCommand on anything else."""
        try:
            version, topic, broker, due, message_id, *more = (
                base64.b64decode(text.encode(), altchars=b"-_", validate=True).decode().split(" ")
            )
            if version == _VERSION:
                return cls(topic, broker, int(due), message_id, int(more[0]) if more else None)
        except ValueError:
            pass
        raise InvalidCommand(
            f"recall handle {text[:120]!r} is invalid: expected one from the answer to a send of"
            " a delayed message"
        )
