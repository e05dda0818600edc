"""The work for one message's order key is limited in steps, whatever its body and the path."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from proxy.core.keys.json_text import json_text
from proxy.core.keys.kinds.iregexp import matches
from proxy.core.keys.kinds.registry import compile_order_key
from proxy.core.keys.order_key import MissingKey, ValueKind
from proxy.core.keys.work import MAX_STEPS, TooMuchWork, Work
from testkit.messages import json_message
from testkit.pipelines import pipeline, rules

_MANY = MAX_STEPS + 1
_WIDE = {"a": [0] * _MANY}
_ROWS = {"a": [{"b": number} for number in range(400)], "id": 400}

BODIES: dict[str, Any] = {
    "$..id": _WIDE,
    "$..[0].id": _WIDE,
    "$.a[*].id": _WIDE,
    "$.a[::-1].id": _WIDE,
    "$.a[0:].id": _WIDE,
    "$.a[?@.id]": _WIDE,
    "$.a[?@ == 1]": _WIDE,
    "$..a..b..id": {"a": [[{"a": 1}] * 100] * 500},
    "$.a[?@.b == $.id]": {"a": [{"b": 0}] * _MANY, "id": 1},
    "$.a[?value($..id) == 1].id": {"a": [0] * 500, "b": [0] * 500},
    "$.a[?count($..*) == 1]": _ROWS,
    "$.a[?@[?@[?@ == 1]]]": {"a": [[[0] * 50] * 50] * 50},
    "$.a[?@ == $.b]": {"a": [[0] * 500] * 500, "b": [0] * 499 + [1]},
    "$.a[?match(@, '(a*)*b')]": {"a": ["a" * 30_000]},
    "$.a[?search(@, '(a|a)*c')]": {"a": ["a" * 30_000]},
    "$.a[?match(@, @)]": {"a": ["(a{1,50}){1,50}" + "a" * 1_000] * 100},
    "$.a": _WIDE,
    "$['a']": {"a": {str(number): 1 for number in range(_MANY)}},
}


@pytest.mark.parametrize("path", BODIES)
def test_a_body_that_takes_too_many_steps_has_no_key(path: str) -> None:
    rule = compile_order_key(path)
    message = json_message(0, BODIES[path])
    assert rule.of(message) is None
    assert rule.look(message) == (None, ValueKind.TOO_LARGE)
    assert rule.look_into is not None
    assert rule.look_into(orjson.loads(message.body)) == (None, ValueKind.TOO_LARGE)


@pytest.mark.parametrize(
    ("path", "body", "key"),
    [
        ("$..id", {"a": [0] * 50_000, "id": 7}, b"7"),
        ("$..id", {"id": 7, "a": [0] * _MANY}, b"7"),
        ("$.a[*]", {"a": [7, *[0] * _MANY]}, b"7"),
        ("$.a[?@.b == 399].b", _ROWS, b"399"),
        ("$.b", {"a": [0] * _MANY, "b": 7}, b"7"),
        ("$.a[?@.b == !@.c].b", {"a": [{"b": 1, "c": 2}, {"b": True}]}, b"true"),
        ("$.a[?match(@, 'x.*')]", {"a": ["a" * 1_000] * 10 + ["x" * 1_000]}, b"x" * 1_000),
    ],
)
def test_a_key_that_is_found_early_enough_counts(path: str, body: Any, key: bytes) -> None:
    found = compile_order_key(path).of(json_message(0, body))
    assert found is not None
    assert found.startswith(key[:100])


def test_the_limit_is_a_number_of_steps() -> None:
    """Exactly as many values as steps are allowed."""
    assert json_text([0] * 10, Work(10)).startswith("[0,0")
    with pytest.raises(TooMuchWork, match="more than 100,000 steps"):
        json_text([0] * 11, Work(10))


@pytest.mark.parametrize(
    ("pattern", "text", "whole", "part"),
    [
        ("a{2,3}", "aaa", True, True),
        ("a{2,3}", "aaaa", False, True),
        ("a{0}b", "b", True, True),
        ("(ab|c){2,}", "abcab", True, True),
        ("[^a-c]x", "dx", True, True),
        ("[a\\-]", "-", True, True),
        ("[-a]", "-", True, True),
        ("\\p{Lu}\\P{Lu}", "Aa", True, True),
        ("[\\p{L}0-9]+", "aé9", True, True),
        ("\\.", "a", False, False),
        (".", "\n", False, False),
        ("^b", "ab", False, False),
        ("b$", "ab\n", False, True),
        ("a**", "a", False, False),
        ("(", "(", False, False),
        ("", "", True, True),
        ("a|", "", True, True),
    ],
)
def test_patterns(pattern: str, text: str, whole: bool, part: bool) -> None:
    assert matches(text, pattern, whole=True, work=Work()) is whole
    assert matches(text, pattern, whole=False, work=Work()) is part


def test_the_reason_is_in_the_dead_letter() -> None:
    fed = pipeline(rules("$..id", missing_key=MissingKey.DEAD_LETTER))
    effects = fed.on_messages([json_message(0, _WIDE), json_message(1, {})], next_offset=2)
    assert [job.reason for job in effects.dead_letters] == [
        "no order key at $..id: the search in its body takes more than 100,000 steps",
        "no order key at $..id",
    ]
