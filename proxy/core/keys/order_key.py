"""The order key: the bytes by which a message keeps its order. Pure.

Keys are compared in full, never by hash. The text of a key is canonical: the JSON values ``1``,
``1.0`` and ``"1"`` are one key, and so are the texts ``k`` and ``k `` (``plain_key``). Producers in
different languages write the same id differently, and joining two chains is safe while splitting
one is not. Very long keys are compared by digest (``named``), so that their records stay small.
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
from proxy.core.keys.work import MAX_STEPS

#: Longer keys are represented by their beginning and a digest (``named``).
MAX_KEY_CHARS = 500
#: The text of a key with at most this many bytes is never too long: ``0x`` and two digits a byte.
SURELY_SHORT_BYTES = (MAX_KEY_CHARS - 2) // 2
_SHOWN_BYTES = 256

#: Chain of a queue's messages that have no key of their own. 0xFF does not occur in UTF-8.
QUEUE_CHAIN = b"\xff"


def chain_at_clients(queue: str) -> bytes:
    """Return the order key that clients get for the messages of *queue* in ``QUEUE_CHAIN``.

    A client handles one message of a key at a time, whatever its queue, but these chains are
    independent.
    """
    return QUEUE_CHAIN + queue.encode()


def key_at_proxy(key: bytes | None) -> bytes | None:
    """Return the proxy's name of an order key that a client got: reverses ``chain_at_clients``."""
    return QUEUE_CHAIN if key is not None and key.startswith(QUEUE_CHAIN) else key


class MissingKey(Enum):
    """Policy for a message without its order key."""

    BY_QUEUE = "by_queue"
    UNORDERED = "unordered"
    DEAD_LETTER = "dead_letter"


class Keyed(Protocol):
    """Input of a rule: a stored message, or a row of a bulk reader."""

    @property
    def key(self) -> str | None:
        """The message key."""

    @property
    def body(self) -> bytes:
        """The body, decompressed if possible."""

    @property
    def properties(self) -> Mapping[str, str]:
        """At least the properties set by the application."""


class ValueKind(StrEnum):
    """Kind of the value to which a rule applies. With the last four a message has no key."""

    QUEUE = "queue"
    TEXT = "text"
    NUMBER = "number"
    BOOLEAN = "boolean"
    OBJECT = "object"
    ARRAY = "array"
    NULL = "null"
    ABSENT = "absent"
    UNREADABLE = "unreadable"
    """The body is not JSON, still compressed, or nested too deep."""
    TOO_LARGE = "too_large"
    """The search for the value, or its text, takes more steps than allowed."""


#: Result of a rule for a message: its key, and the kind of the value.
Looked = tuple[bytes | None, ValueKind]

UNREADABLE: Looked = (None, ValueKind.UNREADABLE)
TOO_LARGE: Looked = (None, ValueKind.TOO_LARGE)


#: Why a message has no key, the end of a sentence; kinds without an entry need no explanation.
WHY_MISSING: Mapping[ValueKind, str] = {
    ValueKind.UNREADABLE: ": the body is not JSON, still compressed, or nested too deep",
    ValueKind.TOO_LARGE: f": the search in its body takes more than {MAX_STEPS:,} steps",
}


@dataclass(frozen=True, slots=True)
class OrderKey:
    """A compiled rule. ``of(message)`` returns the key's bytes, or None if the message has none;
    ``look(message)`` also returns the kind of the value.
    """

    text: str | None
    of: Callable[[StoredMessage], bytes | None]
    look: Callable[[Keyed], Looked]
    look_into: Callable[[Any], Looked] | None = None
    """``look`` for a parsed body; None if the rule does not use the body."""

    is_fixed: bool = False
    """True if, by rule, all messages of a queue have the same key or none has one."""
    looks_at_properties: bool = False
    """True if ``look`` reads properties other than the key."""

    @property
    def has_many_keys(self) -> bool:
        """False if all messages of a queue have the same key, by rule."""
        return not self.is_fixed or self.text is None


def named(key: bytes) -> bytes:
    """Return *key* as the proxy stores and shows it: unchanged, or, if it is too long for people
    and records, its beginning and its SHA-256.
    """
    if len(key) <= SURELY_SHORT_BYTES or len(key_text(key) or "") <= MAX_KEY_CHARS:
        return key
    begin = key[:_SHOWN_BYTES].decode("utf-8", "ignore")
    return f"{begin}…{hashlib.sha256(key).hexdigest()}".encode()


def key_text(key: bytes | None) -> str | None:
    """Return a key as readable text: UTF-8, or ``0x`` and hex if it is not valid UTF-8."""
    if key is None:
        return None
    try:
        return key.decode()
    except UnicodeDecodeError:
        return "0x" + key.hex()


def key_of(text: str) -> bytes:
    """Return the key for a text written by a person (inverse of ``key_text``), ignoring blanks
    around it.
    """
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
    """Return the key that a person wrote as *text*, as audit records name it."""
    if len(text) <= MAX_KEY_CHARS:
        return text
    return named(plain_key(text).encode("utf-8", "replace")).decode()
