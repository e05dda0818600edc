"""The order key: from a message, the bytes by which it stays in order. Pure.

A key is compared whole, never by hash. Its text is canonical: the JSON values ``1``, ``1.0`` and
``"1"`` are one key, and so are the texts ``k`` and ``k `` (``plain_key``), since producers in
different languages write the same id differently and joining two chains is safe where splitting one
is not. A very long one is compared by its digest (``named``), so that records of it stay small.
``proxy/core/keys/json_text.py`` writes the text of a JSON value.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any, Protocol

from broker_core.remoting.key_hash import plain_key
from broker_core.remoting.message import StoredMessage

#: A key whose text is longer is called by its beginning and a digest (``named``).
MAX_KEY_CHARS = 500
#: No key of so many bytes has a longer text: ``0x`` and two digits for each of them at most.
SURELY_SHORT_BYTES = (MAX_KEY_CHARS - 2) // 2
_SHOWN_BYTES = 256

#: Chain of the messages of a queue that have no key of their own. 0xFF is in no UTF-8 text.
QUEUE_CHAIN = b"\xff"


class MissingKey(Enum):
    """What happens to a message without its order key."""

    BY_QUEUE = "by_queue"
    UNORDERED = "unordered"
    DEAD_LETTER = "dead_letter"


class Keyed(Protocol):
    """What a rule looks at: a stored message, or a row of a bulk reader."""

    @property
    def key(self) -> str | None:
        """The message's own key."""

    @property
    def body(self) -> bytes:
        """The body, inflated where that is possible."""

    @property
    def properties(self) -> Mapping[str, str]:
        """The application's own properties at least."""


class ValueKind(StrEnum):
    """What stands where a rule looks. With the last three a message has no key."""

    QUEUE = "queue"
    TEXT = "text"
    NUMBER = "number"
    BOOLEAN = "boolean"
    OBJECT = "object"
    ARRAY = "array"
    NULL = "null"
    ABSENT = "absent"
    UNREADABLE = "unreadable"
    """The body is no JSON, or still compressed, or nested too deep."""


#: What a rule sees in a message: its key, and what kind of value that was made from.
Looked = tuple[bytes | None, ValueKind]

UNREADABLE: Looked = (None, ValueKind.UNREADABLE)


@dataclass(frozen=True, slots=True)
class OrderKey:
    """A compiled rule. ``of(message)`` is the key's bytes, or None if the message has none;
    ``look(message)`` says the same, and what kind of value it was made from.
    """

    text: str | None
    of: Callable[[StoredMessage], bytes | None]
    look: Callable[[Keyed], Looked]
    look_into: Callable[[Any], Looked] | None = None
    """``look`` for a body that is parsed already; None where the rule looks at no body."""

    is_fixed: bool = False
    """True where all messages of a queue have the same key by rule, or none of them has one."""
    looks_at_properties: bool = False
    """True where ``look`` reads other properties than the key."""

    @property
    def has_many_keys(self) -> bool:
        """False where all messages of a queue have one key, by rule."""
        return not self.is_fixed or self.text is None


def named(key: bytes) -> bytes:
    """What *key* is called wherever the proxy keeps or shows it: itself, or, if that is longer than
    people and records can name, its beginning and the SHA-256 of it all.
    """
    if len(key) <= SURELY_SHORT_BYTES or len(key_text(key) or "") <= MAX_KEY_CHARS:
        return key
    begin = key[:_SHOWN_BYTES].decode("utf-8", "ignore")
    return f"{begin}…{hashlib.sha256(key).hexdigest()}".encode()


def key_text(key: bytes | None) -> str | None:
    """A key as people read it: UTF-8 text, or ``0x`` and hex where it is none."""
    if key is None:
        return None
    try:
        return key.decode()
    except UnicodeDecodeError:
        return "0x" + key.hex()


def key_of(text: str) -> bytes:
    """Inverse of ``key_text``; of what people wrote, blanks around it do not count."""
    text = plain_key(text)
    if text.startswith("0x"):
        try:
            key = bytes.fromhex(text[2:])
        except ValueError:
            return named(text.encode())
        if key_text(key) == text:
            return named(key)
    return named(text.encode())


def known_as(text: str) -> str:
    """The key that people wrote as *text*, as records of what they did call it."""
    if len(text) <= MAX_KEY_CHARS:
        return text
    return named(plain_key(text).encode("utf-8", "replace")).decode()
