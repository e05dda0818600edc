from __future__ import annotations

import orjson
import pytest

from proxy.core.keys.kinds.json_path import canonical
from thin_client.json_path import JsonPath

BODY = (
    """{"a": {"b c": [7, {"d-e": "x"}], "n": null, "t": true, "o": {"z": 1, "y": "ü"}}, "1": 2}"""
)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("$.a['b c'][0]", "7"),
        ('$.a["b c"][1].d-e', "x"),
        ("$.a.t", "true"),
        ("$.a.o", '{"y":"ü","z":1}'),
        ("$['1']", "2"),
        ("$.a.n", None),
        ("$.a.nothing", None),
        ("$.a['b c'][9]", None),
        ("$.a.t.deeper", None),
        ("$.a[0]", None),
        ("$.a['b c'].d", None),
    ],
)
def test_a_value_is_found_as_text(path: str, text: str | None) -> None:
    """Strings stay unchanged, other values become JSON that does not depend on their spelling."""
    assert JsonPath(path).text_in(BODY) == text


@pytest.mark.parametrize(
    "path", ["", "$", "a.b", "$.", "$.a.", "$..a", "$.*", "$.a[*]", "$.a[-1]", "$.a[?@.b]", "$.a b"]
)
def test_other_paths_are_refused_with_an_example(path: str) -> None:
    with pytest.raises(ValueError, match=r"such as \$\.order\.id"):
        JsonPath(path)


@pytest.mark.parametrize(
    ("number", "text"),
    [("1.0", "1"), ("-0.0", "0"), ("1e2", "100"), ("0.5", "0.5"), ("9007199254740993",) * 2],
)
def test_a_whole_number_is_one_key_however_it_is_written(number: str, text: str) -> None:
    assert JsonPath("$.a").text_in(f'{{"a": {number}}}') == text
    assert canonical(orjson.loads(number)) == text.encode()


def test_a_body_that_is_not_json_is_refused() -> None:
    with pytest.raises(ValueError, match="the body is not valid JSON"):
        JsonPath("$.a").text_in(b"{")
