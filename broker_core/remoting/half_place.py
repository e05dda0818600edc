"""The place of a half message at its broker, by which any client may end its transaction. Pure."""

from __future__ import annotations

import base64
from typing import NamedTuple

from broker_core.errors import InvalidCommand

_VERSIONS = {"t1": False, "q1": True}  # of a half message, and of a question about one
_OFFSETS = range(2**63)
#: Names and a message id, in Base64, with room to spare.
_MOST_CHARS = 8192


class HalfPlace(NamedTuple):
    """A half message of the producer group ``group``.

    ``half_offset`` is its offset in the broker's queue of half messages, ``log_offset`` its
    physical offset, ``message_id`` the one that consumers will see, and ``topic`` where they will
    see it. ``asked``: the place is that of a broker's question. Brokers must know: those of 5.x
    refuse other decisions after the time of their first question.
    """

    broker: str
    topic: str
    group: str
    half_offset: int
    log_offset: int
    message_id: str
    asked: bool = False

    def to_text(self) -> str:
        """Return the fields with blanks in between, as URL-safe Base64."""
        version = "q1" if self.asked else "t1"
        text = " ".join((version, *map(str, self[:-1])))
        return base64.urlsafe_b64encode(text.encode()).decode()

    @classmethod
    def from_text(cls, text: str) -> HalfPlace:
        """Inverse of ``to_text``; raise InvalidCommand on anything else."""
        try:
            if len(text) > _MOST_CHARS:
                raise ValueError
            raw = base64.b64decode(text.encode(), altchars=b"-_", validate=True).decode()
            version, broker, topic, group, half, log, message_id = raw.split(" ", 6)
            asked = _VERSIONS.get(version)
            place = cls(broker, topic, group, int(half), int(log), message_id, asked is True)
            # A place has only one text, and no number that a broker would refuse as malformed.
            known = asked is not None and all((broker, topic, group, message_id))
            offsets = place.half_offset in _OFFSETS and place.log_offset in _OFFSETS
            if known and offsets and place.to_text() == text:
                return place
        except ValueError:
            pass
        raise InvalidCommand(
            f"transaction {text[:120]!r} is invalid: expected one from the answer to a prepared"
            " message, or from a check"
        )
