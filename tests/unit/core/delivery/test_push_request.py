from __future__ import annotations

import base64
import hashlib
from dataclasses import replace
from urllib.parse import parse_qs, unquote

import orjson
import pytest

from proxy.core.delivery.push_request import (
    CONTEXT_NAMES,
    Format,
    PushRules,
    Unsendable,
    header_text,
    places_of,
    request_of,
)
from proxy.core.delivery.push_url import AllowedHosts, parse_url
from proxy.core.delivery.secret import Bound
from tests.support.pushed_messages import PushedMessage

HERE = parse_url("http://receiver:8080/orders?tenant=7")
RULES = PushRules(urls=[HERE])
MESSAGE = PushedMessage()
ALL = tuple(name for name in CONTEXT_NAMES if name != "token")


def sent(rules: PushRules, message: PushedMessage) -> dict[str, str]:
    """Return the parameters of the request."""
    request = request_of(rules, message, HERE, at_s=0)
    assert request.body is not None
    text = request.body.decode()
    return {name: values[0] for name, values in parse_qs(text, strict_parsing=True).items()}


def test_json_contains_the_context_and_the_unchanged_body() -> None:
    """Numbers keep their form: 1.10 stays 1.10, and a long one keeps its digits."""
    body = b'{"amount": 1.10, "id": 12345678901234567890123}'
    rules = replace(RULES, context=ALL)
    message = replace(MESSAGE, body=body, properties={"a": "b"}, attempt=3)

    request = request_of(rules, message, HERE, at_s=0)

    assert request.headers["Content-Type"] == "application/json"
    assert request.body is not None
    assert request.body.endswith(b',"body":' + body + b"}")
    assert orjson.loads(request.body) == {
        "topic": "orders",
        "group": "billing",
        "queue": "broker-a_3",
        "qid": "broker-a_3#7",
        "offset": 12,
        "key": "k1",
        "tag": "paid",
        "message_id": "AC1100",
        "attempt": 3,
        "order_key": "k1",
        "properties": {"a": "b"},
        "source": "RMQ",
        "body": orjson.loads(body),
    }


def test_json_marks_the_kind_of_other_bodies() -> None:
    rules = replace(RULES, context=("key",))

    text = request_of(rules, replace(MESSAGE, body="größer".encode(), key=None), HERE, at_s=0)
    other = request_of(rules, replace(MESSAGE, body=b"\xff\x00"), HERE, at_s=0)

    assert orjson.loads(text.body or b"") == {"key": None, "text": "größer"}
    assert orjson.loads(other.body or b"")["base64"] == base64.b64encode(b"\xff\x00").decode()


def test_form_has_the_names_that_receivers_of_ddmq_know() -> None:
    secret = b"tokenKey"
    rules = replace(
        RULES,
        format=Format.FORM,
        context=tuple(CONTEXT_NAMES),
        ddmq_names=True,
        token_secret=Bound(secret),
    )
    message = replace(MESSAGE, body="a&b=ü".encode(), properties={"p": "q"}, attempt=2)

    request = request_of(rules, message, HERE, at_s=0)

    assert request.headers["Content-Type"] == "application/x-www-form-urlencoded"
    assert sent(rules, message) == {
        "params": "a&b=ü",
        "carrera_topic": "orders",
        "carrera_group": "billing",
        "carrera_qid": "broker-a_3#7",
        "carrera_offset": "12",
        "carrera_msg_key": "k1",
        "carrera_properties": '{"p":"q"}',
        "carrera_source": "RMQ",
        "carrera_token": hashlib.md5(b"k1tokenKey").hexdigest(),
        "carrera_req_cnt": "1",
        "orderlane_queue": "broker-a_3",
        "orderlane_tag": "paid",
        "orderlane_message_id": "AC1100",
        "orderlane_attempt": "2",
        "orderlane_order_key": "k1",
    }


def test_fields_are_the_names_of_the_body() -> None:
    rules = replace(RULES, format=Format.FIELDS, context=("topic", "key"))
    body = b'{"id": 7, "name": "a b", "inner": {"x": [1]}, "none": null, "yes": true}'

    assert sent(rules, replace(MESSAGE, body=body, key=None)) == {
        "id": "7",
        "name": "a b",
        "inner": '{"x":[1]}',
        "yes": "true",
        "orderlane_topic": "orders",
    }


def test_a_field_of_the_body_cannot_pose_as_context() -> None:
    rules = replace(RULES, format=Format.FIELDS, context=("topic", "key"))
    body = b'{"orderlane_topic": "other", "orderlane_key": "other"}'

    assert sent(rules, replace(MESSAGE, body=body, key=None)) == {"orderlane_topic": "orders"}


def test_get_has_its_parameters_in_the_url_behind_those_that_are_there() -> None:
    rules = replace(RULES, method="GET", format=Format.FORM, context=("key",))

    request = request_of(rules, MESSAGE, HERE, at_s=0)
    other = request_of(rules, MESSAGE, parse_url("http://receiver/x"), at_s=0)

    assert (request.method, request.body) == ("GET", None)
    assert request.url == (
        "http://receiver:8080/orders?tenant=7&params=%7B%22id%22%3A+1%7D&orderlane_key=k1"
    )
    assert other.url == "http://receiver/x?params=%7B%22id%22%3A+1%7D&orderlane_key=k1"


def test_raw_is_the_body_with_the_context_in_headers() -> None:
    rules = replace(RULES, format=Format.RAW, context=("topic", "key", "order_key", "properties"))
    message = replace(MESSAGE, body=b"\x00\xff", key="é\r\nX: y", order_key=b"\xff")

    request = request_of(rules, message, HERE, at_s=0)

    assert request.body == b"\x00\xff"
    assert dict(request.headers) == {
        "Orderlane-Message-Id": "AC1100",
        "Orderlane-Attempt": "1",
        "Content-Type": "application/octet-stream",
        "Orderlane-Topic": "orders",
        "Orderlane-Key": "%C3%A9%0D%0AX: y",
        "Orderlane-Order-Key": "0xff",
        "Orderlane-Properties": "{}",
    }


def test_own_headers_override_those_of_the_format() -> None:
    rules = replace(
        RULES, headers={"content-type": Bound("application/cloudevents+json"), "X-A": Bound("b")}
    )

    headers = request_of(rules, MESSAGE, HERE, at_s=0).headers

    assert headers["content-type"] == "application/cloudevents+json"
    assert "Content-Type" not in headers
    assert headers["X-A"] == "b"


@pytest.mark.parametrize("text", ["plain", "a%41", "ü", "\x7f\x00", "  x  "])
def test_no_two_values_look_the_same_in_a_header_but_for_blanks_around(text: str) -> None:
    assert unquote(header_text(text)) == text.strip(" ")
    assert header_text(text).isascii()
    assert header_text(text).isprintable()


@pytest.mark.parametrize(
    ("form", "body", "reason"),
    [
        (Format.FORM, b"\xff", "not UTF-8 text"),
        (Format.FIELDS, b"[1]", "not a JSON object"),
        (Format.FIELDS, b"no json", "not a JSON object"),
    ],
)
def test_a_body_that_does_not_fit_the_format_cannot_be_sent(
    form: Format, body: bytes, reason: str
) -> None:
    with pytest.raises(Unsendable, match=reason):
        request_of(replace(RULES, format=form), replace(MESSAGE, body=body), HERE, at_s=0)


def test_messages_go_to_the_urls_in_turn_and_each_retry_to_the_next() -> None:
    rules = replace(RULES, urls=[parse_url(f"http://r{n}/") for n in range(3)])

    def hosts(offset: int, attempt: int) -> list[str]:
        places, own = places_of(rules, replace(MESSAGE, offset=offset, attempt=attempt))
        assert not own
        return [place.host for place in places]

    assert [hosts(offset, 1)[0] for offset in range(4)] == ["r0", "r1", "r2", "r0"]
    assert [hosts(1, attempt)[0] for attempt in range(1, 5)] == ["r1", "r2", "r0", "r1"]
    assert hosts(1, 1) == ["r1", "r2", "r0"]


def test_a_message_goes_where_it_says_only_if_the_settings_allow_it() -> None:
    message = replace(
        MESSAGE, properties={"carrera_http_callback_url": "http://a/1<>http://b/2"}, attempt=2
    )
    allowing = replace(RULES, callback_hosts=AllowedHosts(frozenset({"a", "b"})))

    places, own = places_of(allowing, message)
    assert own
    assert [place.text for place in places] == ["http://b/2", "http://a/1"]
    assert places_of(RULES, message) == ([HERE], False)
    assert places_of(allowing, MESSAGE) == ([HERE], False)
    with pytest.raises(Unsendable, match="does not allow"):
        places_of(replace(RULES, callback_hosts=AllowedHosts(frozenset({"a"}))), message)


def test_nothing_secret_shows_in_a_text_of_rules_or_request() -> None:
    rules = replace(RULES, headers={"Authorization": Bound("hush")}, secrets=[Bound(b"hush")])

    assert "hush" not in repr(rules)
    assert "hush" not in repr(request_of(rules, MESSAGE, HERE, at_s=0))
