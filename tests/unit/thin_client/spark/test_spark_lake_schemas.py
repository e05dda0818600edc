"""Schema files, and what a later version of one may change."""

from __future__ import annotations

import pytest

from thin_client.spark.lake.schemas import (
    BodySchema,
    check_names,
    check_topics,
    merged,
    new_columns,
    read_schemas,
)
from thin_client.spark.option_values import OptionError
from thin_client.spark.selection import Selection


def test_a_topic_has_columns_or_an_example() -> None:
    text = '{"a": "n bigint", "b": {"example": {"n": [1.5]}}}'
    assert read_schemas(text, "s.json") == (
        BodySchema("a", "n bigint", None),
        BodySchema("b", None, '{"n": [1.5]}'),
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "^s.json is not JSON: "),
        ('{"a": "n int", "a": "m int"}', "^s.json is not JSON: a name is repeated$"),
        ("[]", "^s.json: expected a JSON object with a schema for each topic$"),
        ("{}", "expected a JSON object"),
        ('{"a": 1}', '^s.json, topic a: expected columns as in "amount bigint'),
        ('{"a": ""}', "topic a: expected columns"),
        ('{"a": {"example": {}}}', "topic a: the example is not an object with fields$"),
        ('{"a": {"example": [1]}}', "the example is not an object"),
        ('{"a": {"examples": {}}}', "topic a: expected columns"),
    ],
)
def test_a_file_without_schemas_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        read_schemas(text, "s.json")


def test_a_topic_that_is_not_read_has_no_schema() -> None:
    """Such as a misspelt one, whose columns would stay empty."""
    check_topics(["a", "b"], Selection(subscribe=("a", "b", "c")), "s.json")
    check_topics(["ab"], Selection(pattern="a.*"), "s.json")
    for selection in (Selection(subscribe=("orders",)), Selection(pattern="o.*")):
        with pytest.raises(OptionError, match=r"^s.json names the topic 'Orders', which is not"):
            check_topics(["Orders"], selection, "s.json")


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (["Offset"], "^here: the archive has a column Offset of its own$"),
        (["a", "A"], "^here: there are two columns A$"),
        (["a b"], "^here: 'a b' cannot be a column"),
        (["1a"], "cannot be a column"),
        ([""], "cannot be a column"),
        (["a\n"], "cannot be a column"),
    ],
)
def test_a_name_that_is_no_column_is_refused(names: list[str], sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        check_names(names, reserved={"offset"}, where="here")


def test_topics_share_a_column_of_the_same_type() -> None:
    assert merged([("a", {"n": "bigint", "x": "string"}), ("b", {"n": "bigint"})]) == {
        "n": "bigint",
        "x": "string",
    }
    with pytest.raises(OptionError, match=r"^column n is bigint in topic a, and string in topic b"):
        merged([("a", {"n": "bigint"}), ("b", {"n": "string"})])


def test_two_columns_never_differ_in_case_only() -> None:
    """Spark reads no table that has both, and the second may have another type."""
    words = "^column by of topic a and By of topic b differ in case only, .*: write them alike$"
    with pytest.raises(OptionError, match=words):
        merged([("a", {"by": "bigint"}), ("b", {"By": "bigint"})])
    with pytest.raises(OptionError, match=r"^it has the column by, .* By in case only: write by$"):
        new_columns({"by": "bigint"}, {"By": "string"}, "it")
    assert new_columns({"by": "bigint", "By": "bigint"}, {"By": "bigint"}, "it") == []


def test_columns_may_be_added_and_left_out_but_not_change_their_type() -> None:
    assert new_columns({"a": "bigint", "b": "string"}, {"a": "bigint", "c": "date"}, "it") == ["c"]
    with pytest.raises(OptionError, match=r"^it has the column a as bigint, not as string: keep"):
        new_columns({"a": "bigint"}, {"a": "string"}, "it")
