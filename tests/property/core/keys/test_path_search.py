"""The limited search finds what the library's own search finds."""

from __future__ import annotations

from typing import Any

import jsonpath_rfc9535
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.keys.json_text import TooDeep
from proxy.core.keys.kinds.iregexp import matches
from proxy.core.keys.kinds.path_search import find_first
from proxy.core.keys.work import Work

_MISSING = object()
_NAMES = st.sampled_from(["a", "b", "id", "ab"])
_PLAIN = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([0.0, 1.0, 1.5, "a", "b", "ab", "aab", "1", "", "a\n", "ß"]),
)
_DOCUMENTS = st.recursive(
    _PLAIN,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(_NAMES, inner, max_size=4)
    ),
    max_leaves=25,
)
_PATHS = [
    *("$..id", "$..*", "$.*", "$[*]", "$..[0]", "$[-1]", "$..[-1]", "$[1:]", "$[::-1]", "$[::0]"),
    *("$['a','b']", "$..['b','a']", "$.a..b", "$..a..b", "$.*.*", "$[0,0]", "$[5:0:-2]", "$"),
    *("$[?@.a]", "$[?!@.a]", "$[?@.a == 1]", "$[?@.a != $.b]", "$[?@ < 'b']", "$[?@ >= 1]"),
    *("$..[?@.a && @.b]", "$..[?@.a || @.b].id", "$[?@.a == @.b]", "$[?@..id]", "$[?$..id]"),
    *("$[?@ == true]", "$[?@ == null]", "$[?@.a <= null]", "$[?@.x == @.y]", "$[?@]", "$..[?@]"),
    *("$[?length(@) > 1]", "$[?count(@.*) == 2]", "$[?value(@..id) == 1]", "$[?length(@.a) == 0]"),
    *("$[?match(@, 'a*b')]", "$[?search(@.a, 'a|b')]", "$..[?match(@, @)]", "$[?!match(@, 'a.')]"),
    *("$[?@[?@.a == 1]]", "$[?@[?$.a]]", "$[?@.a[0:1] ]", "$[?count(@..*) > count($.*)]"),
    *("$[?(@.a || @.b) && !(@.id == 1)]", "$[?@['a'] == $[0]]", "$[?@ == 1, ?@ == 2]"),
]
_COMPILED = [jsonpath_rfc9535.compile(path) for path in _PATHS]


@given(st.sampled_from(_COMPILED), _DOCUMENTS)
def test_the_first_value_is_that_of_the_library(path: Any, document: Any) -> None:
    node = path.find_one(document)
    expected = _MISSING if node is None else node.value
    found = find_first(path, document, missing=_MISSING, work=Work())
    assert found is expected or (type(found), found) == (type(expected), expected)


@given(
    st.from_regex(r"\A(?:[ab.^$]|\[[ab]\]|\(a\|b\))(?:[ab.*+?|]|\{1,2\})*\Z"),
    st.text(alphabet="ab\n^", max_size=8),
    st.booleans(),
)
def test_a_pattern_matches_as_in_the_library(pattern: str, text: str, whole: bool) -> None:
    name = "match" if whole else "search"
    function = jsonpath_rfc9535.JSONPathEnvironment().function_extensions[name]
    assert matches(text, pattern, whole=whole, work=Work()) == function(text, pattern)


@pytest.mark.parametrize("depth", [98, 99, 100, 101])
def test_descendants_are_visited_as_deep_as_by_the_library(depth: int) -> None:
    document: Any = {}
    for _ in range(depth):
        document = {"a": document}
    path = jsonpath_rfc9535.compile("$..id")

    def too_deep(search: Any) -> bool:
        try:
            return search() is None
        except (TooDeep, jsonpath_rfc9535.JSONPathError):
            return True

    assert too_deep(lambda: find_first(path, document, missing=0, work=Work())) == too_deep(
        lambda: path.find_one(document) or 0
    )
