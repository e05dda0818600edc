"""Filters and transforms on one message: results, new bodies and failures."""

from __future__ import annotations

import dataclasses
from typing import Any

import orjson
import pytest

from proxy.actions.document import MAX_BODY_BYTES, NAMES, Subject
from proxy.actions.expression import MAX_CHARS, BadExpression
from proxy.actions.pipeline import (
    Actions,
    Dropped,
    Failed,
    Outcome,
    Passed,
    compile_filter,
    compile_transform,
)
from proxy.lane.topic_rules import rules_of
from proxy.settings.groups import TopicSettings
from testkit.messages import message

ORDER = {"id": "o-1", "amount": 150, "open": True, "items": [{"sku": "a"}, {"sku": "b"}]}


def actions(*settings: dict[str, Any]) -> Actions:
    topic = TopicSettings.model_validate({"name": "orders", "actions": list(settings)})
    return rules_of(topic).actions


def run(*settings: dict[str, Any], body: bytes | None = None, **of_message: Any) -> Outcome:
    stored = message(7, body=orjson.dumps(ORDER) if body is None else body, **of_message)
    return actions(*settings).run(Subject(stored, "orders", "broker-a_0", 7, stored.body))


def where(text: str, **of_message: Any) -> Outcome:
    return run({"filter": {"where": text}}, **of_message)


def made(text: str, **of_message: Any) -> bytes:
    outcome = run({"transform": {"to": text}}, **of_message)
    assert isinstance(outcome, Passed), outcome
    assert outcome.body is not None
    return outcome.body


def reason(outcome: Outcome) -> str:
    assert isinstance(outcome, Failed), outcome
    return outcome.reason


# ---- filters ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "body.amount > `100`",
        "body.open",
        "key == 'k' && tag == 'paid'",
        "properties.region == 'eu'",
        "topic == 'orders' && queue == 'broker-a_0' && offset == `7`",
        "contains(body.items[*].sku, 'b')",
        "length(body.items) == `2`",
        "starts_with(text, '{')",
        "type(born_ms) == 'number' && type(message_id) == 'string'",
        "!(body.missing)",
        "@.body.open",
    ],
)
def test_a_message_for_which_a_filter_is_true_passes_unchanged(text: str) -> None:
    assert where(text, key="k", tag="paid", region="eu") == Passed()


def test_a_filtered_message_names_the_number_of_its_action() -> None:
    assert where("body.amount > `150`") == Dropped("action 1")
    second = run({"filter": {"where": "body.open"}}, {"filter": {"tags": "a || b"}}, tag="c")
    assert second == Dropped("action 2")


@pytest.mark.parametrize("tag", ["paid", "refunded"])
def test_tags_are_compared_whole(tag: str) -> None:
    settings = {"filter": {"tags": " paid || refunded "}}
    assert run(settings, tag=tag) == Passed()
    assert run(settings, tag=tag[:-1]) == Dropped("action 1")
    assert run(settings) == Dropped("action 1")
    assert run({"filter": {"tags": "*"}}) == Passed()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("body.missing", "gave null, neither true nor false"),
        ("body.id > `5`", "failed: '>' not supported between instances of 'str' and 'int'"),
        ("body.missing > `5`", "gave null, neither true nor false"),
        ("body.amount", "gave a number, neither true nor false"),
        ("body.id", "gave text, neither true nor false"),
        ("not_null(body.items)", "gave a list, neither true nor false"),
        ("ceil(to_number(body.id)) > `1`", "failed: In function ceil(), invalid type for value"),
    ],
)
def test_a_result_that_is_neither_true_nor_false_is_a_failure(text: str, why: str) -> None:
    """DDMQ consumes a message on which its script throws."""
    assert reason(where(text)).startswith(f"action 1 (filter) {why}")


def test_an_unreadable_body_fails_only_actions_that_use_it() -> None:
    assert where("tag == 'paid'", body=b"\xff", tag="paid") == Passed()
    assert where("properties.a == 'b' || body.open", body=b"\xff", a="b") == Failed(
        "action 1 (filter) needs the body as JSON, but it is invalid: str is not valid UTF-8:"
        " surrogates not allowed: line 1 column 1 (char 0)"
    )
    assert "it is not UTF-8" in reason(where("contains(text, 'a')", body=b"\xff"))
    assert "it is invalid" in reason(where("body.open", body=b""))
    large = b"[" + b"1," * (MAX_BODY_BYTES // 2) + b"1]"
    assert reason(where("body.open", body=large)).endswith("bytes, more than 1048576")


def test_a_body_in_an_unsupported_compression_is_not_read() -> None:
    stored = dataclasses.replace(message(1, body=b"true"), body_is_compressed=True)
    outcome = actions({"filter": {"where": "body"}}).run(
        Subject(stored, "orders", "broker-a_0", 1, stored.body)
    )
    assert (
        reason(outcome) == "action 1 (filter) needs the body, but its compression is not supported"
    )


def test_null_is_json() -> None:
    assert where("body == `null`", body=b"null") == Passed()


# ---- transforms ---------------------------------------------------------------------------------


def test_a_transform_makes_json_or_text() -> None:
    assert made("{id: body.id, skus: body.items[*].sku}") == b'{"id":"o-1","skus":["a","b"]}'
    assert made("body.id") == b"o-1"
    assert made("body.amount") == b"150"
    assert made("join(',', body.items[*].sku)") == b"a,b"
    assert made("body.missing || 'none'") == b"none"


def test_actions_after_a_transform_see_its_result() -> None:
    inner = {"transform": {"to": "body.inner"}}
    body = orjson.dumps({"inner": '{"n": 3}'})
    assert run(inner, {"filter": {"where": "body.n == `3`"}}, body=body) == Passed(b'{"n": 3}')
    assert run(inner, {"filter": {"where": "body.n == `4`"}}, body=body) == Dropped("action 2")
    twice = run(inner, {"transform": {"to": "[body, text]"}}, body=body)
    assert twice == Passed(b'[{"n":3},"{\\"n\\": 3}"]')


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("body.missing", "gave null, which is not a body"),
        ("sum(body.items[*].sku)", "failed: In function sum(), invalid type for value"),
        (
            "sum([`9223372036854775807`, `9223372036854775807`, `9223372036854775807`])",
            "gave a result",
        ),
    ],
)
def test_a_transform_that_makes_nothing_has_failed(text: str, why: str) -> None:
    assert reason(run({"transform": {"to": text}})).startswith(f"action 1 (transform) {why}")


def test_no_number_is_made_that_json_does_not_have() -> None:
    assert made("[to_number('nan'), to_number('inf'), to_number('2.5')]") == b"[null,null,2.5]"


def test_a_body_may_not_grow_without_bound() -> None:
    body = orjson.dumps("x" * 300_000)
    outcome = run({"transform": {"to": "[body, body, body, body]"}}, body=body)
    assert reason(outcome) == "action 1 (transform) made 1200013 bytes, more than 1048576"


def test_the_steps_of_one_evaluation_are_limited() -> None:
    body = orjson.dumps(list(range(60_000)))
    assert reason(where("length(body[?@ > `1`]) > `1`", body=body)) == (
        "action 1 (filter) took more than 50000 steps"
    )
    assert where("length(body) > `1`", body=body) == Passed()


def test_errors_do_not_quote_a_whole_body() -> None:
    body = orjson.dumps({"a": "x" * 100_000})
    assert len(reason(where("sum(body.a) > `1`", body=body))) < 300


def test_numbers_of_actions_are_their_places_in_the_settings() -> None:
    assert run(*[{"filter": {"where": "body.open"}}] * 2, {"filter": {"tags": "x"}}) == (
        Dropped("action 3")
    )
    assert not actions()
    assert actions({"filter": {"tags": "x"}}, {"transform": {"to": "body"}}).filters == ["action 1"]


# ---- expressions that are refused ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is not valid JMESPath: Invalid JMESPath expression: cannot be empty."),
        ("body.amount > 100", "100 at character 15 is unexpected; write text in single"),
        ("body.amount >", "is not valid JMESPath: it is incomplete; write text in single quotes"),
        ("tag == 'paid", "is not valid JMESPath: Unclosed ' delimiter"),
        ("body.a = 'b'", "is not valid JMESPath: Unknown token '='"),
        ('tag == "paid"', "there is no 'paid' in a message: it has body, born_ms, key"),
        ("body.a == true", "there is no 'true' in a message"),
        ("body.a == `paid`", "has something in backticks that is not JSON; write text in single"),
        ("bdy.amount > `100`", "there is no 'bdy' in a message"),
        ("lengthh(body.a) > `1`", "unknown function lengthh(): known are abs, avg, ceil"),
        ("length(body.a, body.b)", "length() takes 1, not 2"),
        ("not_null()", "not_null() takes at least 1, not 0"),
        ("sort_by(body.a, b)", "sort_by() takes an expression, written &field, as number 2"),
        ("length(&body)", "length() takes no expression as number 1"),
        ("&body", "has & where no function takes an expression"),
        ("body.items[?a > `1`]", "gives a list, but a filter needs true or false"),
        ("{a: body}", "gives an object, but a filter needs true or false"),
        ("`1`", "gives the same result for every message, but a filter needs true or false"),
        ("body | length(@)", "gives the result of length(), but a filter needs true or false"),
        ("(" * 2000 + "body" + ")" * 2000, "is nested too deeply"),
        ("!" * 60 + "body", "is nested 61 deep, more than 48"),
        ("body." * 1000 + "a", f"should have at most {MAX_CHARS} characters, not 5001"),
        ("[@,@] | " * 9 + "length(@) > `1`", "would copy its input up to 1024 times"),
        ("map(&[@,@], " * 9 + "[body]" + ")" * 9 + " == body", "would copy its input"),
    ],
)
def test_an_expression_that_cannot_be_used_is_refused_in_a_sentence(
    text: str, sentence: str
) -> None:
    with pytest.raises(BadExpression) as refused:
        compile_filter(text)
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("tag == 'a' || properties.b == 'c'", {"tag", "properties"}),
        ("body.items[?tag == 'a'].key | [0]", {"body"}),
        ("sort_by(body.items, &offset)", {"body"}),
        ("{a: key, b: [text, topic]}", {"key", "text", "topic"}),
        ("properties.* | [0]", {"properties"}),
        ("@.tag", NAMES),
        ("keys(@)", NAMES),
        ("*", NAMES),
    ],
)
def test_only_values_used_by_an_expression_are_read(text: str, names: set[str]) -> None:
    assert compile_transform(text).names == names
