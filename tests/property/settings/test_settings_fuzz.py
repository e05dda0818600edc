"""Arbitrary values of settings are accepted, or refused with SettingsError."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from datetime import UTC, date, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import orjson
import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from broker_core.broker import BrokerSettings
from proxy.cli.servers import load_broker_settings
from proxy.errors import SettingsError
from proxy.lane.topic_rules import rules_of
from proxy.live.stored_group import group_of, stored_form
from proxy.settings.proxy_settings import Settings, load_settings
from tests.support.examples import examples

#: One of each kind of settings group that no default contains.
WHOLE: dict[str, Any] = {
    "groups": [
        {
            "name": "billing",
            "topics": [
                {"name": "orders", "actions": [{"filter": {"where": "body.a"}}]},
                {"name": "more", "actions": [{"transform": {"to": "body"}}]},
                {"name": "pushed", "actions": [{"push": {"urls": ["http://example.test/"]}}]},
                {
                    "name": "kept",
                    "actions": [
                        {"redis": {"url": "redis://example.test/", "commands": [["SET", "k", "v"]]}}
                    ],
                },
            ],
        }
    ],
}
FILE = Path("orderlane.yaml")


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)


def _places(model: type[BaseModel], given: Any, path: tuple[Any, ...] = ()) -> Iterator[Any]:
    """Yield the locations of values: every field of *model*, and those below *given*."""
    for name, about in model.model_fields.items():
        yield (*path, name)
        inner = given.get(name) if isinstance(given, dict) else None
        for below in _models(about.annotation):
            if isinstance(inner, list):
                for number, each in enumerate(inner):
                    yield (*path, name, number)
                    yield from _places(below, each, (*path, name, number))
            else:
                yield from _places(below, inner or {}, (*path, name))


def _put(content: Any, path: tuple[Any, ...], value: Any) -> Any:
    here = content
    for step, following in pairwise(path):
        if isinstance(here, dict) and here.get(step) is None:
            here[step] = [] if isinstance(following, int) else {}
        here = here[step]
    here[path[-1]] = value
    return content


PLACES = sorted(set(_places(Settings, WHOLE)), key=str)
BROKER_PLACES = sorted(BrokerSettings.model_fields)

TEXTS = st.one_of(
    st.text(max_size=20),
    st.sampled_from(
        [
            *(
                "",
                " ",
                "\0",
                "\ud800",
                "'\udfff",
                "a" * 300,
                "*",
                "||",
                "$",
                "$.",
                "$[",
                "$.a.b",
                "1e400",
            ),
            *("$[?@.a == 1e400]", "$[?@.a == -1.5e999]", "$[" + "9" * 5000 + "]", "$['\ud800']"),
            *("$[?" + "(" * 500 + "@.a" + ")" * 500 + "]", "$" + ".a" * 5000, "$[?" + "!" * 999),
            *(
                "$[?match(@.a, '[')]",
                "$[?@.a == " + "1" * 5000 + "]",
                "$..*",
                "body." + "a." * 3000,
            ),
            *(
                "`1e400`",
                "body[" + "9" * 5000 + "]",
                "[" * 3000,
                "`[`",
                "body.a == `1e400`",
                "a" * 70000,
            ),
            *(
                "127.0.0.1:99999999999999999999",
                "[::1]:" + "9" * 5000,
                "http://[",
                "redis://:x@",
                "₁:₂",
            ),
            *(
                "http://a:" + "9" * 5000 + "/",
                "2026-13-45",
                "9999-12-31T23:59:60Z",
                "0001-01-01T00:00:00+23:59",
            ),
            *("earliest", "true", "null", "~", "%DLQ%", "../x", "a/b", "http://exa mple/\n", "²"),
        ]
    ),
)
SIMPLE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([10**400, -(10**400), 2**63, 2**31, 0, -1, 10**20]),
    st.floats(),
    st.sampled_from([1e308, -1e308, float("inf"), float("-inf"), float("nan"), -0.0, 5e-324]),
    TEXTS,
    st.binary(max_size=8),
    st.sampled_from([date(1, 1, 1), datetime(9999, 12, 31), datetime(1, 1, 1, tzinfo=UTC)]),
)
VALUES = st.recursive(
    SIMPLE,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.one_of(TEXTS, st.integers(), st.none()), inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "topics", "url", "where", "to"]), inner)
    ),
    max_leaves=5,
)


def _judge(error: SettingsError) -> None:
    """The error names place and value in sentences, and can be written to any output."""
    lines = str(error).splitlines()
    assert lines
    for line in lines:
        assert line.strip(), lines
        assert len(line) < 4_000
        line.encode()


def test_the_fuzzed_settings_are_valid_before() -> None:
    assert len(load_settings(None, WHOLE, environment={}).groups[0].topics) == 4


@settings(max_examples=examples(400))
@example(("groups", 0, "topics", 0, "order_key"), "$[?@.a == 1e400]")
@example(("groups", 0, "topics", 0, "order_key"), "$[?" + "(" * 3000)
@example(("groups", 0, "topics", 0, "tags"), "\ud800")
@given(st.sampled_from(PLACES), VALUES)
def test_any_value_of_any_setting_is_taken_or_refused_in_sentences(
    place: tuple[Any, ...], value: Any
) -> None:
    content = _put(deepcopy(WHOLE), place, value)
    try:
        loaded = load_settings(None, content, environment={})
    except SettingsError as error:
        _judge(error)
        return
    for group in loaded.groups:
        orjson.dumps(stored_form(group))
        for topic in group.topics:
            rules_of(topic)


@settings(max_examples=examples(100))
@given(st.sampled_from(PLACES), VALUES)
def test_a_file_with_any_value_is_read_or_refused_in_sentences(
    place: tuple[Any, ...], value: Any
) -> None:
    content = yaml.dump(_put(deepcopy(WHOLE), place, value)).encode("utf-8", "surrogatepass")
    try:
        load_settings(FILE, environment={}, content=content)
    except SettingsError as error:
        _judge(error)


@settings(max_examples=examples(100))
@given(VALUES)
def test_any_text_of_the_environment_is_taken_or_refused_in_sentences(value: Any) -> None:
    text = value if isinstance(value, str) else repr(value)
    for name in ("NAMESERVER", "LEASE", "LIMITS__MEMORY_BYTES", "LISTEN__HTTP", "GROUPS"):
        try:
            load_settings(None, environment={f"ORDERLANE_{name}": text})
        except SettingsError as error:
            _judge(error)


@settings(max_examples=examples(100))
@given(st.sampled_from([place[2:] for place in PLACES if place[:2] == ("groups", 0)]), VALUES)
def test_any_value_of_a_stored_group_is_taken_or_refused_in_sentences(
    place: tuple[Any, ...], value: Any
) -> None:
    content = deepcopy(WHOLE["groups"][0])
    if place:
        _put(content, place, value)
    try:
        group_of("billing", content)
    except SettingsError as error:
        _judge(error)


@settings(max_examples=examples(100))
@given(st.sampled_from(BROKER_PLACES), VALUES)
def test_any_value_of_the_embedded_broker_is_taken_or_refused_in_sentences(
    name: str, value: Any
) -> None:
    try:
        load_broker_settings(None, {name: value}, data=Path("store"))
    except SettingsError as error:
        _judge(error)


@pytest.mark.parametrize("number", ["0x" + "f" * 9_000, "0b" + "1" * 90_000, "9" * 9_000])
def test_a_number_that_cannot_be_written_in_digits_is_refused_in_a_sentence(number: str) -> None:
    for line in (f"limits: {{memory_bytes: {number}}}", f"nameserver: {number}", f"{number}: 1"):
        with pytest.raises(SettingsError) as refused:
            load_settings(FILE, environment={}, content=line.encode())
        _judge(refused.value)
