"""The place of a half message at its broker, by which any client may end its transaction. Pure."""

from __future__ import annotations

import base64
from typing import NamedTuple

from broker_core.errors import InvalidCommand

_VERSION = "t1"
_OFFSETS = range(2**63)
#: Names and a message id, in Base64, with room to spare.
_MOST_CHARS = 8192


class HalfPlace(NamedTuple):
    """A half message of the producer group ``group``.

    ``half_offset`` is its offset in the broker's queue of half messages, ``log_offset`` its
    physical offset, ``message_id`` the one that consumers will see, and ``topic`` where they will
    see it.
    """

    broker: str
    topic: str
    group: str
    half_offset: int
    log_offset: int
    message_id: str

    def to_text(self) -> str:
        """Return the fields with blanks in between, as URL-safe Base64."""
        text = " ".join((_VERSION, *map(str, self)))
        return base64.urlsafe_b64encode(text.encode()).decode()

    @classmethod
    def from_text(cls, text: str) -> HalfPlace:
        """Inverse of ``to_text``; raise InvalidCommand on anything else."""
        try:
            if len(text) > _MOST_CHARS:
                raise ValueError
            raw = base64.b64decode(text.encode(), altchars=b"-_", validate=True).decode()
            version, broker, topic, group, half, log, message_id = raw.split(" ", 6)
            place = cls(broker, topic, group, int(half), int(log), message_id)
            # A place has only one text, and no number that a broker would refuse as malformed.
            known = version == _VERSION and all((broker, topic, group, message_id))
            offsets = place.half_offset in _OFFSETS and place.log_offset in _OFFSETS
            if known and offsets and place.to_text() == text:
                return place
        except ValueError:
            pass
        raise InvalidCommand(
            f"transaction {text[:120]!r} is invalid: expected one from the answer to a prepared"
            " message, or from a check"
        )
