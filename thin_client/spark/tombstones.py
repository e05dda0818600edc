"""Rows without a value as messages: brokers of Apache RocketMQ refuse an empty body. Pure.

The property ``tombstone`` says what the row had instead of a value: ``null``, or ``empty`` for a
value of no bytes. Such a message has a body that consumers can parse: JSON's null, or a blank. The
source returns the row as it was.
"""

from __future__ import annotations

TOMBSTONE = "tombstone"
NULL, EMPTY = "null", "empty"
#: The body of a message with each tombstone.
BODIES = {NULL: b"null", EMPTY: b" "}


def body_of(value: str | bytes | None) -> tuple[bytes, str | None]:
    """Return the body for *value*, and the tombstone that its message needs; None if none."""
    if value:
        return value.encode() if isinstance(value, str) else value, None
    tombstone = NULL if value is None else EMPTY
    return BODIES[tombstone], tombstone


def value_of(body: bytes, tombstone: str | None) -> bytes | None:
    """Return the value of a message with *body* and the property *tombstone*."""
    if tombstone is None or BODIES.get(tombstone) != body:
        return body
    return None if tombstone == NULL else b""
