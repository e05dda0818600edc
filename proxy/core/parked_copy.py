"""The copy of a parked message: what it says of its message. Pure."""

from __future__ import annotations

from broker_core.remoting.message import StoredMessage

#: Properties of a copy: offset of its message, and the ownership period that it was made in.
ORIGIN_OFFSET, ORIGIN_EPOCH = "ORDERLANE_OFFSET", "ORDERLANE_EPOCH"


def origin_of(copy: StoredMessage) -> tuple[int, int]:
    """Offset of the message that *copy* is of, and the ownership period that it was made in."""
    return _number(copy, ORIGIN_OFFSET), _number(copy, ORIGIN_EPOCH)


def _number(message: StoredMessage, name: str) -> int:
    text = message.properties.get(name, "")
    return int(text) if text.isascii() and text.isdigit() else -1
