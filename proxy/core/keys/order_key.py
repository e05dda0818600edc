"""The order key: from a message, the bytes by which it stays in order. Pure.

A key is compared whole, never by hash. Its text is canonical: the JSON values ``1``, ``1.0`` and
``"1"`` are one key, and so are the texts ``k`` and ``k `` (``plain_key``), since producers in
different languages write the same id differently and joining two chains is safe where splitting one
is not. A very long one is compared by its digest (``named``), so that records of it stay small.
``proxy/core/keys/json_text.py`` writes the text of a JSON value.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any, Protocol

import jsonpath_rfc9535
import orjson

from broker_core.remoting.key_hash import plain_key
from broker_core.remoting.message import StoredMessage
from proxy.core.keys.json_text import TooDeep, json_text

#: A key whose text is longer is called by its beginning and a digest (``named``).
MAX_KEY_CHARS = 500
#: No key of so many bytes has a longer text: ``0x`` and two digits for each of them at most.
_SURELY_SHORT_BYTES = (MAX_KEY_CHARS - 2) // 2
_SHOWN_BYTES = 256

#: Chain of the messages of a queue that have no key of their own. 0xFF is in no UTF-8 text.
QUEUE_CHAIN = b"\xff"

#: Paths that plain look-ups answer, 5 to 100 times faster than the general engine.
_SIMPLE_PATH = re.compile(
    r"\$(?:\.[A-Za-z_][A-Za-z0-9_]*|\[(?:0|[1-9][0-9]{0,14})\]|\['[^'\\]*'\])+\Z"
)
_STEP = re.compile(r"\.([A-Za-z_][A-Za-z0-9_]*)|\[([0-9]+)\]|\['([^']*)'\]")
_MISSING, _UNREADABLE = object(), object()
#: Of a path of any other form. What the engine can compile depends on how deep the caller stands in
#: its stack, so these are far below it.
_MAX_PATH_CHARS, _MAX_PATH_PARTS, _MOST_SHOWN = 1_000, 100, 200
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
_PART = re.compile(r"[(\[!]|&&|\|\|")

#: What a body can make of a rule: it is no JSON (or still compressed), or nested too deep to look
#: into or to write down. Such a message has no key; it must not end the reading of its queue.
_NO_KEY = (
    orjson.JSONDecodeError,
    TooDeep,
    jsonpath_rfc9535.JSONPathError,
    RecursionError,
)


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


_KINDS = {
    str: ValueKind.TEXT,
    int: ValueKind.NUMBER,
    float: ValueKind.NUMBER,
    bool: ValueKind.BOOLEAN,
    dict: ValueKind.OBJECT,
    list: ValueKind.ARRAY,
    type(None): ValueKind.NULL,
    object: ValueKind.ABSENT,
}


#: What a rule sees in a message: its key, and what kind of value that was made from.
Looked = tuple[bytes | None, ValueKind]

_NOTHING: Looked = (None, ValueKind.UNREADABLE)


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

    @property
    def has_many_keys(self) -> bool:
        """False where all messages of a queue have one key, by rule."""
        return self.text != "QID"


def compile_order_key(text: str | None) -> OrderKey:
    """Compile ``QID``, ``KEY``, a JSON path, or None (every message unordered).

    Raises ValueError, in one sentence, if *text* is none of these, whatever is wrong with it.
    """
    if text is None:
        return OrderKey(None, lambda _message: None, lambda _message: (None, ValueKind.ABSENT))
    if text == "QID":
        return OrderKey(
            text, lambda _message: QUEUE_CHAIN, lambda _message: (QUEUE_CHAIN, ValueKind.QUEUE)
        )
    if text == "KEY":
        return OrderKey(text, _message_key, _look_at_key)
    if not text.startswith("$"):
        raise ValueError(f"order key {text!r} is neither QID nor KEY nor a JSON path such as $.id")
    find = _compile_path(text)
    look_into = _json_look_into(find)
    return OrderKey(text, _json_rule(find), _json_look(look_into), look_into)


def look_each(rules: Sequence[OrderKey], message: Keyed) -> list[Looked]:
    """``look`` of each of *rules*; the body is parsed once, whatever their number."""
    document: Any = _MISSING
    looked = []
    for rule in rules:
        if rule.look_into is None:
            looked.append(rule.look(message))
            continue
        if document is _MISSING:
            try:
                document = orjson.loads(message.body)
            except orjson.JSONDecodeError:
                document = _UNREADABLE
        looked.append(_NOTHING if document is _UNREADABLE else rule.look_into(document))
    return looked


def canonical(value: Any) -> bytes | None:
    """Key bytes of a JSON value; None (missing) for null and for what is not there.

    Raises TooDeep for what is nested too deep to be a key.
    """
    if isinstance(value, str):
        return named(plain_key(value).encode())
    if value is _MISSING or value is None:
        return None
    return orjson.dumps(value) if type(value) is int else named(json_text(value).encode())


def named(key: bytes) -> bytes:
    """What *key* is called wherever the proxy keeps or shows it: itself, or, if that is longer than
    people and records can name, its beginning and the SHA-256 of it all.
    """
    if len(key) <= _SURELY_SHORT_BYTES or len(key_text(key) or "") <= MAX_KEY_CHARS:
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


def _message_key(message: StoredMessage) -> bytes | None:
    key = message.key_bytes
    return key if key is None or len(key) <= _SURELY_SHORT_BYTES else named(key)


def _look_at_key(message: Keyed) -> Looked:
    key = plain_key(message.key or "")
    return (named(key.encode()), ValueKind.TEXT) if key else (None, ValueKind.ABSENT)


def _json_rule(find: Callable[[Any], Any]) -> Callable[[StoredMessage], bytes | None]:
    def of(message: StoredMessage) -> bytes | None:
        try:
            return canonical(find(orjson.loads(message.body)))
        except _NO_KEY:
            return None

    return of


def _json_look_into(
    find: Callable[[Any], Any],
) -> Callable[[Any], Looked]:
    def look_into(document: Any) -> Looked:
        try:
            value = find(document)
            return canonical(value), _KINDS[type(value)]
        except _NO_KEY:
            return _NOTHING

    return look_into


def _json_look(
    look_into: Callable[[Any], Looked],
) -> Callable[[Keyed], Looked]:
    def look(message: Keyed) -> Looked:
        try:
            document = orjson.loads(message.body)
        except _NO_KEY:
            return _NOTHING
        return look_into(document)

    return look


def _compile_path(text: str) -> Callable[[Any], Any]:
    if _SIMPLE_PATH.match(text) and text.isprintable():
        steps = tuple(
            int(match[2]) if match[2] is not None else (match[1] or match[3] or "")
            for match in _STEP.finditer(text)
        )
        if len(steps) == 1 and isinstance(name := steps[0], str):  # nearly all paths
            return lambda document: (
                document.get(name, _MISSING) if type(document) is dict else _MISSING
            )
        return lambda document: _follow(document, steps)
    try:
        path = _compiled(text)
    except ValueError as error:
        shown = text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"
        raise ValueError(f"order key {shown!r} is not a JSON path (RFC 9535): {error}") from error

    def find(document: Any) -> Any:
        node = path.find_one(document)
        return _MISSING if node is None else node.value

    return find


def _compiled(text: str) -> Any:
    """*text* as the engine compiles it. Raises ValueError with the reason, half a sentence."""
    if any("\ud800" <= each <= "\udfff" for each in text):
        raise ValueError("it holds half a surrogate pair, which no text does")
    if len(text) > _MAX_PATH_CHARS or len(_PART.findall(text)) > _MAX_PATH_PARTS:
        raise ValueError(
            f"it has more than {_MAX_PATH_CHARS:,} characters or {_MAX_PATH_PARTS} brackets and"
            " operators"
        )
    for number in _NUMBER.findall(_QUOTED.sub("", text)):
        if math.isinf(float(number)):
            raise ValueError(f"no double can hold the number {number[:40]}")
    try:
        return jsonpath_rfc9535.compile(text)
    except (jsonpath_rfc9535.JSONPathError, ValueError, OverflowError, RecursionError) as error:
        raise ValueError(str(error).partition("\n")[0]) from error


def _follow(value: Any, steps: tuple[str | int, ...]) -> Any:
    for step in steps:
        if isinstance(step, str):
            if not isinstance(value, dict) or step not in value:
                return _MISSING
            value = value[step]
        elif isinstance(value, list) and step < len(value):
            value = value[step]
        else:
            return _MISSING
    return value
