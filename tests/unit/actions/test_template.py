"""Text templates with expressions: results, and refusals at load time."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.actions.expression import BadExpression, EvaluationFailed
from proxy.actions.template import compile_template

KNOWN = frozenset({"body", "key", "raw"})
DOCUMENT: dict[str, Any] = {
    "body": {"id": 7, "name": "Ada", "tags": ["a", "b"], "none": None, "paid": True},
    "key": "k",
    "raw": b"\xff\x00",
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", b"plain"),
        ("", b""),
        ("order:${key}", b"order:k"),
        ("${key}${key}", b"kk"),
        ("${body.id}/${body.name}/${body.paid}", b"7/Ada/true"),
        ("${body.tags}", b'["a","b"]'),
        ("${ {id: body.id, brace: '}'} }", b'{"id":7,"brace":"}"}'),
        ("${body.none || 'unknown'}", b"unknown"),
        ("${body.none || 'absent'}", b"absent"),
        (r"${join('\'}', body.tags)}", b"a'}b"),
        ("costs $5 {x} $${key}", b"costs $5 {x} ${key}"),
        ("${raw}", b"\xff\x00"),
        ("é:${key}", "é:k".encode()),
    ],
)
def test_text_goes_in_as_it_is_and_anything_else_as_json(text: str, expected: bytes) -> None:
    assert compile_template(text, known=KNOWN).render(DOCUMENT) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("${body.none}", "${body.none} gives null"),
        ("${body.missing.id}", "${body.missing.id} gives null"),
        ("${sum(body.tags)}", "${sum(body.tags)} failed"),
        ("${[raw]}", "${[raw]} cannot be written as text"),
    ],
)
def test_an_expression_without_a_result_fails_the_message_and_is_named(
    text: str, reason: str
) -> None:
    with pytest.raises(EvaluationFailed) as failure:
        compile_template(text, known=KNOWN).render(DOCUMENT)
    assert str(failure.value).startswith(reason)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("order:${key", "has ${ without a closing }"),
        ("${'}", "has ${ without a closing }"),
        ("${}", "has ${} without an expression"),
        ("${unknown}", "${unknown}: there is no 'unknown' in a message"),
        ("${absent}", "${absent}: there is no 'absent' in a message"),
        ("${body..id}", "${body..id}: is not valid JMESPath"),
    ],
)
def test_invalid_expressions_are_refused(text: str, reason: str) -> None:
    with pytest.raises(BadExpression) as refusal:
        compile_template(text, known=KNOWN)
    assert str(refusal.value).startswith(reason)


def test_only_names_in_an_expression_are_evaluated() -> None:
    assert compile_template("a:${key}:${body.id}", known=KNOWN).names == {"key", "body"}
    assert compile_template("plain", known=KNOWN).names == set()
