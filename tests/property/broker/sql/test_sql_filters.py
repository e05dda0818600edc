"""Compiled filters against a naive evaluation, and arbitrary words against the parser."""

from __future__ import annotations

import contextlib

from hypothesis import example, given
from hypothesis import strategies as st

from broker_core.broker.sql.parser import compile_filter
from broker_core.broker.sql.tokens import BadFilter
from tests.support import sql_filters
from tests.support.sql_filters import Tree


@given(tree=sql_filters.trees, having=sql_filters.properties)
def test_a_filter_says_what_a_naive_judge_says(tree: Tree, having: dict[str, str]) -> None:
    assert compile_filter(tree.text)(having) == sql_filters.passes(tree, having)


@given(text=st.text(max_size=60) | sql_filters.loose, having=sql_filters.properties)
@example(text="(" * 5000, having={})
@example(text="NOT " * 2000, having={})
@example(text="a = " * 2000 + "b", having={})
@example(text=" AND ".join(["a = '5'"] * 600), having={"a": "5"})
@example(text="- " * 4000 + "a > 1", having={})
@example(text="/*" + "*" * 8000, having={})
def test_any_text_is_a_filter_or_is_refused_with_its_place(
    text: str, having: dict[str, str]
) -> None:
    with contextlib.suppress(BadFilter):
        assert compile_filter(text)(having) in (True, False)
