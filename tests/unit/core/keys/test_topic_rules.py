from __future__ import annotations

import pytest

from proxy.core.keys.topic_rules import parse_tags
from testkit.pipelines import rules


@pytest.mark.parametrize(
    ("expression", "tags"),
    [("", None), ("*", None), ("a || *", None), (" || ", None), ("a", {"a"}), ("a||b", {"a", "b"}),
     ("  a ||  b || a", {"a", "b"}), ("a b", {"a b"})],
)  # fmt: skip
def test_a_tag_expression_is_read_as_brokers_read_it(
    expression: str, tags: set[str] | None
) -> None:
    assert parse_tags(expression) == tags


def test_tags_are_written_as_brokers_take_them_and_read_back() -> None:
    assert rules().tag_expression == "*"
    wanted = rules(tags=frozenset({"b", "a"}))
    assert wanted.tag_expression == "a || b"
    assert parse_tags(wanted.tag_expression) == wanted.tags
