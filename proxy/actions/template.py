"""Text templates with expressions, such as ``order:${body.order.id}``. Pure.

``${…}`` contains a JMESPath expression; ``$${`` is an escaped ``${``. Text is inserted unchanged,
anything else as JSON. An expression with the result null is an error: all messages without the
field would share a key such as ``order:null``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from proxy.actions.expression import (
    BadExpression,
    EvaluationFailed,
    Expression,
    compile_expression,
)

_QUOTES = "'\"`"


@dataclass(frozen=True, slots=True)
class Template:
    """A compiled template; ``names`` are the document's names that its expressions use."""

    parts: tuple[bytes | Expression, ...]
    names: frozenset[str]

    def render(self, document: Mapping[str, Any]) -> bytes:
        """Return the text for *document*. Raises EvaluationFailed that names the failed
        expression.
        """
        if len(self.parts) == 1 and isinstance(self.parts[0], bytes):
            return self.parts[0]
        return b"".join(
            part if isinstance(part, bytes) else _value(part, document) for part in self.parts
        )


def compile_template(text: str, *, known: frozenset[str]) -> Template:
    """Compile *text*, whose expressions may use the *known* names of a document.

    Raises BadExpression with one sentence if an expression is invalid.
    """
    parts: list[bytes | Expression] = []
    at = 0
    while (begin := text.find("${", at)) >= 0:
        if begin > at and text[begin - 1] == "$":
            parts.append(text[at : begin - 1].encode() + b"${")
            at = begin + 2
            continue
        end = _end_of(text, begin + 2)
        parts.append(text[at:begin].encode())
        parts.append(_expression(text[begin + 2 : end], known))
        at = end + 1
    parts.append(text[at:].encode())
    names = frozenset[str]().union(*(part.names for part in parts if isinstance(part, Expression)))
    return Template(tuple(part for part in parts if part) or (b"",), names)


def _expression(text: str, known: frozenset[str]) -> Expression:
    if not text.strip():
        raise BadExpression("has ${} without an expression")
    try:
        return compile_expression(text, known=known)
    except BadExpression as error:
        raise BadExpression(f"${{{text}}}: {error}") from None


def _end_of(text: str, at: int) -> int:
    """Return the position of the ``}`` that ends the expression starting at *at*."""
    depth, quote = 0, ""
    while at < len(text):
        char = text[at]
        if quote:
            if char == "\\":
                at += 1
            elif char == quote:
                quote = ""
        elif char in _QUOTES:
            quote = char
        elif char == "{":
            depth += 1
        elif char == "}":
            if not depth:
                return at
            depth -= 1
        at += 1
    raise BadExpression("has ${ without a closing }")


def _value(expression: Expression, document: Mapping[str, Any]) -> bytes:
    try:
        value = expression.of(document)
    except EvaluationFailed as error:
        raise EvaluationFailed(f"${{{expression.text}}} {error}") from None
    if value is None:
        raise EvaluationFailed(f"${{{expression.text}}} gives null")
    if isinstance(value, bytes):
        return value
    try:
        return value.encode() if isinstance(value, str) else orjson.dumps(value)
    except (TypeError, UnicodeEncodeError) as error:
        raise EvaluationFailed(
            f"${{{expression.text}}} cannot be written as text: {error}"
        ) from None
