"""All kinds of order keys, and what depends on the list: texts are compiled, sentences made. Pure.

A new kind is a file beside this one and an entry in ``KINDS``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from proxy.core.keys.kinds.json_path import JSON_PATH
from proxy.core.keys.kinds.kind import KeyKind
from proxy.core.keys.kinds.message_key import MESSAGE_KEY
from proxy.core.keys.kinds.message_property import MESSAGE_PROPERTY
from proxy.core.keys.kinds.queue import QUEUE
from proxy.core.keys.order_key import UNREADABLE, Keyed, Looked, OrderKey, ValueKind

KINDS: tuple[KeyKind, ...] = (QUEUE, MESSAGE_KEY, JSON_PATH, MESSAGE_PROPERTY)

_MOST_SHOWN = 200
_UNORDERED = OrderKey(
    None, lambda _message: None, lambda _message: (None, ValueKind.ABSENT), is_fixed=True
)
_UNPARSED, _NO_JSON = object(), object()


class BadOrderKey(ValueError):
    """A text has the mark of a kind and is not well-formed; ``reason`` is half a sentence."""

    def __init__(self, text: str, kind: KeyKind, reason: str) -> None:
        """*text* is cut in the message."""
        shown = text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"
        super().__init__(f"order key {shown!r} is not {kind.name}{kind.grammar}: {reason}")
        self.kind = kind
        self.reason = reason


def compile_order_key(text: str | None) -> OrderKey:
    """Compile a text of one of the kinds, or None (every message unordered).

    Raises ValueError, in one sentence, if *text* is of no kind, and BadOrderKey if it is not
    well-formed.
    """
    if text is None:
        return _UNORDERED
    for kind in KINDS:
        if kind.takes(text):
            try:
                return kind.compile(text)
            except ValueError as error:
                raise BadOrderKey(text, kind, str(error)) from error
    kinds = " nor ".join(each.with_example for each in KINDS)
    raise ValueError(f"order key {text!r} is neither {kinds}")


def one_of(names: Iterable[str] | None = None) -> str:
    """Return ``QID, KEY or a JSON path``: the names of all kinds, or other *names*, as a choice."""
    *others, last = [each.name for each in KINDS] if names is None else names
    return f"{', '.join(others)} or {last}"


def allowed() -> str:
    """Return what a setting should be, with examples."""
    return one_of(each.with_example for each in KINDS)


def described() -> str:
    """Return the kinds with their meanings, separated by commas."""
    return ", ".join(each.described for each in KINDS)


def candidates_in(messages: Sequence[Keyed]) -> list[str]:
    """Return the order keys that *messages* have, kind by kind."""
    return [text for kind in KINDS for text in kind.candidates(messages)]


def look_each(rules: Sequence[OrderKey], message: Keyed) -> list[Looked]:
    """``look`` of each of *rules*; the body is parsed once, whatever their number."""
    document: Any = _UNPARSED
    looked = []
    for rule in rules:
        if rule.look_into is None:
            looked.append(rule.look(message))
            continue
        if document is _UNPARSED:
            try:
                document = orjson.loads(message.body)
            except orjson.JSONDecodeError:
                document = _NO_JSON
        looked.append(UNREADABLE if document is _NO_JSON else rule.look_into(document))
    return looked
