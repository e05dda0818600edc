from __future__ import annotations

import hashlib
import hmac

from proxy.core.delivery.push_request import Format, PushRules, request_of, signature
from proxy.core.delivery.push_url import parse_url
from proxy.core.delivery.secret import Bound
from tests.support.pushed_messages import PushedMessage

HERE = parse_url("http://receiver/?tenant=7")
RULES = PushRules(urls=[HERE], secrets=[Bound(b"new"), Bound(b"old")])


def test_time_id_and_content_are_signed_with_each_secret() -> None:
    text = signature([b"new", b"old"], at_s=17, message_id="id%20", content=b"\xff")

    new, old = (
        hmac.new(secret, b"17.id%20.\xff", hashlib.sha256).hexdigest()
        for secret in (b"new", b"old")
    )
    assert text == f"t=17,v1={new},v1={old}"


def test_a_request_signs_its_content_with_the_id_of_its_header() -> None:
    message = PushedMessage(message_id="a ü")
    request = request_of(RULES, message, HERE, at_s=5)

    expected = signature(
        [b"new", b"old"],
        at_s=5,
        message_id=request.headers["Orderlane-Message-Id"],
        content=request.body or b"",
    )
    assert request.headers["Orderlane-Signature"] == expected


def test_a_get_is_signed_with_its_whole_query() -> None:
    rules = PushRules(RULES.urls, method="GET", format=Format.FORM, secrets=[Bound(b"s")])
    request = request_of(rules, PushedMessage(), HERE, at_s=5)

    query = request.url.removeprefix("http://receiver/?").encode()
    assert query.startswith(b"tenant=7&params=")
    assert request.headers["Orderlane-Signature"] == signature(
        [b"s"], at_s=5, message_id="AC1100", content=query
    )


def test_without_secrets_there_is_no_signature() -> None:
    request = request_of(PushRules(RULES.urls), PushedMessage(), HERE, at_s=5)

    assert "Orderlane-Signature" not in request.headers
