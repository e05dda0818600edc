"""Registry of the kinds of order keys: compilation, error texts and candidates. Pure.

To add a kind, add a file beside this one and an entry in ``KINDS``.
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
    """A text has the mark of a kind but is invalid; ``reason`` is half a sentence."""

    def __init__(self, text: str, kind: KeyKind, reason: str) -> None:
        super().__init__(f"order key {_shown(text)} is not {kind.name}{kind.grammar}: {reason}")
        self.kind = kind
        self.reason = reason


def _shown(text: str) -> str:
    """Return *text* in quotes for an error message, shortened if it is long."""
    return repr(text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…")


def compile_order_key(text: str | None) -> OrderKey:
    """Compile a text of one of the kinds, or None (every message is unordered).

    Raise ValueError, in one sentence, if *text* is of no kind, and BadOrderKey if it is invalid.
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
    raise ValueError(f"order key {_shown(text)} is neither {kinds}")


def one_of(names: Iterable[str] | None = None) -> str:
    """Return ``QID, KEY or a JSON path``: *names*, by default those of all kinds, as a choice."""
    *others, last = [each.name for each in KINDS] if names is None else names
    return f"{', '.join(others)} or {last}"


def allowed() -> str:
    """Return the allowed values of the setting, with examples."""
    return one_of(each.with_example for each in KINDS)


def described() -> str:
    """Return the meanings of all kinds, separated by commas."""
    return ", ".join(each.described for each in KINDS)


def candidates_in(messages: Sequence[Keyed]) -> list[str]:
    """Return the order keys found in *messages*, kind by kind."""
    return [text for kind in KINDS for text in kind.candidates(messages)]


def look_each(rules: Sequence[OrderKey], message: Keyed) -> list[Looked]:
    """Return the result of ``look`` for each of *rules*, parsing the body only once."""
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
