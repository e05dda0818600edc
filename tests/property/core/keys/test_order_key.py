"""Plain look-ups agree with the general JSON path engine; a key is a function of the value."""

from __future__ import annotations

import json
from typing import Any

import jsonpath_rfc9535
import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.keys.kinds.json_path import canonical
from proxy.core.keys.kinds.registry import compile_order_key
from proxy.core.keys.order_key import QUEUE_CHAIN
from testkit.messages import message
from tests.support.examples import examples

names = st.sampled_from(["a", "b", "_c1", "a b", "", "é", "0", "a.b", '"'])
numbers = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(st.characters(blacklist_categories=["Cs"]), max_size=5)
documents: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)
steps = st.lists(names | st.integers(0, 3), min_size=1, max_size=4)


def path_of(wanted: list[str | int]) -> str:
    """Return a path such as ``$.a['a b'][0]``, with dots where legal."""
    return "$" + "".join(
        f"[{step}]" if isinstance(step, int)
        else f".{step}" if step.isascii() and step.isidentifier()
        else f"['{step}']"
        for step in wanted
    )  # fmt: skip


@st.composite
def document_and_path(draw: st.DrawFn) -> tuple[Any, str]:
    """Draw a document and a path; half of the paths lead to a value."""
    document = value = draw(documents)
    if draw(st.booleans()):
        return document, path_of(draw(steps))
    wanted: list[str | int] = []
    while isinstance(value, (dict, list)) and value:
        step = draw(
            st.sampled_from(sorted(value) if isinstance(value, dict) else range(len(value)))
        )
        wanted.append(step)
        value = value[step]
        if draw(st.integers(0, 3)) == 0:
            break
    return document, path_of(wanted or ["a"])


@settings(max_examples=examples(300), deadline=None)
@given(document_and_path())
def test_a_simple_path_agrees_with_the_general_engine(case: tuple[Any, str]) -> None:
    document, path = case
    body = orjson.dumps(document)
    node = jsonpath_rfc9535.compile(path).find_one(orjson.loads(body))
    expected = None if node is None else canonical(node.value)
    assert compile_order_key(path).of(message(0, body=body)) == expected


@settings(max_examples=examples(200), deadline=None)
@given(documents)
def test_the_spelling_of_a_document_does_not_change_its_key(document: Any) -> None:
    """Blanks, escapes, the order of members, 1 or 1.0 at the top make no difference."""
    again = json.loads(json.dumps(document, ensure_ascii=True, indent=1, sort_keys=True))
    key = canonical(document)
    assert canonical(orjson.loads(orjson.dumps(document))) == key
    assert canonical(orjson.loads(json.dumps(again))) == key
    assert key != QUEUE_CHAIN


@settings(deadline=None)
@given(st.integers(-(2**63), 2**64 - 1))
def test_a_whole_number_is_one_key_as_integer_as_text_and_as_float(number: int) -> None:
    assert canonical(number) == canonical(str(number)) == str(number).encode()
    if int(float(number)) == number:
        assert canonical(orjson.loads(f"{number}.0")) == canonical(number)


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "aa", "b", ""]), st.sampled_from(["", " ", "x", "a"]))
    ),
    st.booleans(),
)
def test_a_property_is_found_as_by_decoding_all_properties(
    pairs: list[tuple[str, str]], ended: bool
) -> None:
    raw = "\x02".join(f"{name}\x01{value}" for name, value in pairs)
    stored = message(0, raw_properties=(raw + "\x02" * ended).encode())
    rule = compile_order_key("PROPERTY:a")
    found = (stored.properties.get("a") or "").strip()
    assert rule.of(stored) == rule.look(stored)[0] == (found.encode() or None)


@settings(deadline=None)
@given(
    st.sampled_from(["$.a", "$", "$..a", "$[?@.a]", "$.a[0:2]", "KEY", "QID", "PROPERTY:a"]),
    st.binary(max_size=40) | documents.map(orjson.dumps),
)
def test_any_body_has_a_key_or_none(rule: str, body: bytes) -> None:
    key = compile_order_key(rule).of(message(0, body=body))
    assert key is None or isinstance(key, bytes)


@settings(max_examples=examples(200), deadline=None)
@given(st.text(max_size=12) | steps.map(path_of) | st.text("$.[]'a0?@*:,()= ", max_size=12))
def test_any_text_is_a_rule_or_a_value_error_in_one_sentence(text: str) -> None:
    refused = ""
    try:
        compile_order_key(text)
    except ValueError as error:
        refused = str(error)
    assert not refused or refused.startswith(f"order key {text!r} is ")
