from __future__ import annotations

from typing import Any

import orjson
import pytest

from proxy.core.keys import order_key as compiled
from proxy.core.keys.kinds.json_path import canonical
from proxy.core.keys.kinds.registry import compile_order_key
from proxy.core.keys.order_key import QUEUE_CHAIN, MissingKey, key_text, known_as, named
from testkit.messages import json_message, keyed, message
from testkit.pipelines import lease, offsets, pipeline, rules


def key_of(rule: str, document: Any) -> bytes | None:
    return compile_order_key(rule).of(json_message(0, document))


# ---- rules --------------------------------------------------------------------------------------


def test_without_a_rule_no_message_has_a_key() -> None:
    rule = compile_order_key(None)
    assert (rule.text, rule.of(message(0, key="k"))) == (None, None)


def test_qid_gives_all_messages_of_a_queue_one_key_that_no_text_can_be() -> None:
    of = compile_order_key("QID").of
    assert of(message(0)) == of(message(1, key="k")) == QUEUE_CHAIN
    with pytest.raises(UnicodeDecodeError):
        QUEUE_CHAIN.decode()


def test_key_takes_the_property_keys_whole() -> None:
    of = compile_order_key("KEY").of
    assert of(message(0, key="a b")) == b"a b"
    assert of(message(0, key="é")) == "é".encode()
    assert of(message(0)) is None


@pytest.mark.parametrize(
    ("rule", "key"),
    [
        ("$.id", b"7"),
        ("$['id']", b"7"),
        ("$.customer.name", "Ünal".encode()),
        ("$['customer'].name", "Ünal".encode()),
        ("$.items[1].sku", b"b"),
        ("$.items[9].sku", None),
        ("$.items.sku", None),
        ("$.customer[0]", None),
        ("$.nothing", None),
        ("$.null", None),
        ("$.id.deeper", None),
        ("$.items[-1].sku", b"b"),
        ("$..sku", b"a"),
        ("$.items[?@.sku == 'b'].n", b"2"),
        ("$.items[?@.sku == 'z'].n", None),
        ("$['a.b']", b"dotted"),
        ("$['']", b"empty"),
        ("$.flag", b"true"),
        ("$.items[0]", b'{"n":1,"sku":"a"}'),
    ],
)
def test_a_json_path_finds_its_value(rule: str, key: bytes | None) -> None:
    document = {
        "id": 7,
        "customer": {"name": "Ünal"},
        "items": [{"sku": "a", "n": 1}, {"sku": "b", "n": 2}],
        "null": None,
        "a.b": "dotted",
        "": "empty",
        "flag": True,
    }
    assert key_of(rule, document) == key


@pytest.mark.parametrize("rule", ["", "id", "qid", "KEYS", " $.id"])
def test_an_invalid_rule_is_refused_in_one_sentence(rule: str) -> None:
    with pytest.raises(
        ValueError,
        match="is neither QID nor KEY nor a JSON path such as",
    ):
        compile_order_key(rule)


@pytest.mark.parametrize("rule", ["$.", "$[", "$['a", "$.a b", "$.a\n", "$[?nosuch(@)]", "$[01]"])
def test_a_broken_path_is_refused_with_the_reason(rule: str) -> None:
    with pytest.raises(ValueError, match="is not a JSON path") as caught:
        compile_order_key(rule)
    assert repr(rule) in str(caught.value)


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ("$[?@.a == 1e400]", "the number 1e400 is too large for a double"),
        ("$[?@.a > -1.5e999]", "the number 1.5e999 is too large for a double"),
        ("$[" + "9" * 5000 + "]", "more than 1,000 characters"),
        ("$[?" + "(" * 200 + "@.a" + ")" * 200 + "]", "100 brackets and operators"),
        ("$[?" + "!" * 200 + "@.a]", "100 brackets and operators"),
        ("$['\ud800']", "half a surrogate pair"),
        ("$[99999999999999999999]", "index out of range"),
    ],
)
def test_a_path_that_the_engine_chokes_on_is_refused_as_any_other(rule: str, why: str) -> None:
    with pytest.raises(ValueError, match=f"is not a JSON path.*{why}") as caught:
        compile_order_key(rule)
    assert len(str(caught.value)) < 400


def test_a_number_in_quotes_is_a_text() -> None:
    assert key_of("$[?@.a == '1e400'].b", [{"a": "1e400", "b": "x"}]) == b"x"


# ---- message properties -------------------------------------------------------------------------


def test_a_property_is_a_key_without_the_blanks_around_its_value() -> None:
    rule = compile_order_key("PROPERTY:tenant")
    for value in ("a", " a\t"):
        assert rule.of(message(0, tenant=value)) == b"a"
    assert rule.of(message(0, key="a", tenants="b")) is None
    assert rule.of(message(0, tenant=" ")) is None
    assert rule.of(message(0, tenant="é" * 501)) == named(("é" * 501).encode())


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ("PROPERTY:", "the name of the property is missing"),
        ("PROPERTY: tenant", "the name ' tenant' has surrounding blanks"),
        ("PROPERTY:KEYS", "KEYS is reserved by RocketMQ"),
        ("PROPERTY:a\x01b", "a name cannot contain 0x01, 0x02 or half a surrogate pair"),
        ("PROPERTY:\ud800", "a name cannot contain 0x01, 0x02 or half a surrogate pair"),
    ],
)
def test_a_property_that_no_application_can_set_is_no_order_key(rule: str, why: str) -> None:
    with pytest.raises(ValueError, match="is not PROPERTY:name: ") as caught:
        compile_order_key(rule)
    assert str(caught.value).endswith(why)


def test_messages_with_one_property_wait_for_each_other_and_those_without_by_the_policy() -> None:
    stored = [message(n, tenant=tenant) for n, tenant in enumerate(["a", "b", "a", "", ""])]
    by_queue = pipeline(rules("PROPERTY:tenant"), messages=stored)
    assert offsets(lease(by_queue)) == [0, 1, 3]
    unordered = rules("PROPERTY:tenant", missing_key=MissingKey.UNORDERED)
    assert offsets(lease(pipeline(unordered, messages=stored))) == [0, 1, 3, 4]


# ---- unusable bodies ----------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["$.a", "$", "$..a", "$[?@.a == @.b]"])
@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"\xff\xfe", b'{"a":1e999}', b'{"a":"\\ud800"}', b'{"a":' * 2000, b"x\x9c\x03\x00"],
)
def test_a_body_that_is_no_json_has_no_key(rule: str, body: bytes) -> None:
    assert compile_order_key(rule).of(message(0, body=body)) is None


@pytest.mark.parametrize("depth", [90, 200, 300, 900, 1020])
@pytest.mark.parametrize("rule", ["$.a", "$", "$..b", "$[?@ == @]", "$.*"])
def test_a_deep_body_never_ends_the_reading(rule: str, depth: int) -> None:
    """Nested too deep for a key or a search: no key, and no error."""
    body = b'{"a":' + b"[" * depth + b"]" * depth + b"}"
    key = compile_order_key(rule).of(message(0, body=body))
    assert key is None or key in body


# ---- canonical text -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spellings",
    [
        ["1", "1.0", "1e0", '"1"'],
        ["0", "0.0", "-0.0", "-0", '"0"'],
        ["-9223372036854775808", "-9223372036854775808.0", '"-9223372036854775808"'],
        ["10000000000000000000", "1e19", '"10000000000000000000"'],
        ["true", '"true"'],
        ['{"a":1,"b":2}', '{"b":2,"a":1}', '{ "a" : 1, "b" : 2 }'],
        ['"\\u00e9"', '"é"'],
    ],
)
def test_one_value_is_one_key_however_it_is_written(spellings: list[str]) -> None:
    """Joining two chains is safe, splitting one is not."""
    keys = {canonical(orjson.loads(text)) for text in spellings}
    assert len(keys) == 1
    assert None not in keys


def test_different_values_are_different_keys() -> None:
    values: list[Any] = [
        0,
        1,
        1.5,
        -1,
        "",
        "a",
        "A",
        "a a",
        True,
        [],
        [1],
        {},
        {"a": 1},
        {"a": None},
    ]
    assert len({canonical(value) for value in values}) == len(values)


def test_null_is_no_key_but_the_empty_text_is() -> None:
    assert (canonical(None), canonical("")) == (None, b"")


def test_people_read_a_key_as_text_or_as_hex() -> None:
    assert key_text("é".encode()) == "é"
    assert key_text(QUEUE_CHAIN) == "0xff"
    assert key_text(b"") == ""
    assert key_text(None) is None


@pytest.mark.parametrize("key", [b"a", "é".encode(), b"", QUEUE_CHAIN, b"0x", b"0xyz", b"0x61"])
def test_a_shown_key_can_be_entered_again(key: bytes) -> None:
    text = key_text(key)
    assert text is not None
    assert compiled.key_of(text) == key


def test_claim_1_keys_are_compared_whole_whatever_the_rule() -> None:
    """300 keys have 300 chains: any hash of 8 bits would join some of them."""
    here = pipeline(messages=[keyed(n, f"key-{n}") for n in range(300)])
    assert len(lease(here)) == here.statistics().keys == 300


# ---- very long keys -----------------------------------------------------------------------------


@pytest.mark.parametrize("letter", ["k", "ü", "\U0001f600"])
@pytest.mark.parametrize(("length", "is_long"), [(500, False), (501, True), (8_000, True)])
def test_a_very_long_key_is_called_by_its_beginning_and_a_digest(
    letter: str, length: int, is_long: bool
) -> None:
    text = letter * length
    keys = {
        compile_order_key("KEY").of(message(0, key=text)),
        compile_order_key("KEY").look(message(0, key=text))[0],
        key_of("$.id", {"id": text}),
        compiled.key_of(text),
        known_as(text).encode(),
    }
    assert keys == {named(text.encode())}
    shown = key_text(named(text.encode())) or ""
    assert (shown != text) == is_long
    assert len(shown) <= compiled.MAX_KEY_CHARS
    assert named(shown.encode()) == shown.encode(), "so people can name it as it is shown"
    assert text.startswith(shown.partition("…")[0])


@pytest.mark.parametrize("text", ["0" * 5000, "$." + "[" * 5000])
def test_an_error_shows_the_beginning_of_a_long_text(text: str) -> None:
    with pytest.raises(ValueError, match=r"^order key ") as caught:
        compile_order_key(text)
    assert f"'{text[:200]}…'" in str(caught.value)
    assert len(str(caught.value)) < 700


def test_very_long_keys_that_begin_alike_are_different() -> None:
    assert named(b"k" * 9_000 + b"1") != named(b"k" * 9_000 + b"2")
    long_list = key_of("$.id", {"id": ["x" * 9_000]})
    assert long_list == named(b'["' + b"x" * 9_000 + b'"]')


def test_bytes_that_are_no_text_are_long_once_they_are_shown() -> None:
    assert named(b"\xff" * 249) == b"\xff" * 249
    assert len(key_text(named(b"\xff" * 250)) or "") < 500
