from __future__ import annotations

import pytest

from proxy.core.delivery.push_answer import Answer, AnswerRules, Judgement, judge

NOW_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
STATUS = AnswerRules()
ERRNO = AnswerRules(by_errno=True)


def said(answer: Answer, rules: AnswerRules = STATUS) -> Judgement:
    return judge(answer, rules, wall_ms=NOW_MS)


def errno(text: str, content_type: str = "application/json") -> Judgement:
    return said(Answer(200, content_type, body=text.encode()), ERRNO)


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_any_2xx_is_an_arrival_whatever_its_body(status: int) -> None:
    for body in (b"", b'{"errno": 5}', None):
        assert said(Answer(status, "application/json", body=body)) == Judgement()


@pytest.mark.parametrize("status", [100, 301, 400, 404, 408, 425, 500, 502, 599])
def test_any_other_status_is_a_failure_that_is_tried_again(status: int) -> None:
    judgement = said(Answer(status))

    assert f"HTTP status {status}" in (judgement.failure or "")
    assert (judgement.retry_after_ms, judgement.reject, judgement.hold_ms) == (None, False, 0)


def test_a_redirect_says_where_it_would_have_led() -> None:
    judgement = said(Answer(302, location="http://other/" + "x" * 200, retry_after="5"))

    assert "a redirect to http://other/xxx" in (judgement.failure or "")
    assert len(judgement.failure or "") < 200
    assert judgement.retry_after_ms is None


def test_statuses_named_in_the_settings_are_rejected_at_once() -> None:
    rules = AnswerRules(reject_on={422})

    assert said(Answer(422, retry_after="7"), rules) == Judgement("HTTP status 422", reject=True)
    assert not said(Answer(400), rules).reject


@pytest.mark.parametrize(
    ("retry_after", "wait_ms"),
    [
        ("7", 7000),
        ("0", 0),
        (" 7 ", 7000),
        ("9" * 400, 60_000),
        ("Thu, 01 Jan 2026 00:00:09 GMT", 9000),
        ("Thu, 01 Jan 2026 00:00:09 -0000", 9000),
        ("Wed, 31 Dec 2025 00:00:00 GMT", 0),
        ("Fri, 01 Jan 2100 00:00:00 GMT", 60_000),
        ("-7", None),
        ("7.5", None),
        ("soon", None),
        ("", None),
        ("Thu, 99 Jan 2026 00:00:09 GMT", None),
        ("\u0667", None),
    ],
)
def test_retry_after_is_a_wait_up_to_a_limit(retry_after: str, wait_ms: int | None) -> None:
    assert said(Answer(500, retry_after=retry_after)).retry_after_ms == wait_ms


def test_429_and_503_with_retry_after_hold_all_messages_back() -> None:
    for status, hold_ms in ((429, 2000), (503, 2000), (500, 0), (404, 0)):
        judgement = said(Answer(status, retry_after="2"))
        assert (judgement.retry_after_ms, judgement.hold_ms) == (2000, hold_ms)
    assert said(Answer(429)).slower
    assert not said(Answer(503)).slower


@pytest.mark.parametrize("text", ["", " \n", "{}", "[]", "null", "7", '{"errno": null}'])
def test_a_2xx_without_an_errno_is_an_arrival(text: str) -> None:
    assert errno(text) == Judgement()


def test_the_numbers_of_ddmq() -> None:
    assert errno('{"errno": 0}') == Judgement()
    assert errno('{"errno": 1000001}') == Judgement()
    assert errno('{"errno": 1000000}') == Judgement(slower=True)
    assert errno('{"errno": 1000002}') == Judgement("errno 1000002", retry_after_ms=1000)
    assert errno('{"errno": 7, "errmsg": "no room"}') == Judgement("errno 7 (no room)")
    assert errno('{"errno": -1, "errmsg": 5}') == Judgement("errno -1")


@pytest.mark.parametrize("text", ['"0"', "0.0", "true", "false", "[0]", "{}"])
def test_an_errno_that_is_not_a_whole_number_is_a_failure(text: str) -> None:
    judgement = errno(f'{{"errno": {text}}}')

    assert "not a whole number" in (judgement.failure or "")
    assert not judgement.reject


def test_a_body_declared_as_json_must_be_json() -> None:
    for kind in ("application/json", "Application/JSON; charset=utf-8", "application/x+json"):
        assert "is declared as JSON" in (errno("<html>", kind).failure or "")
    assert errno("<html>", "text/html") == Judgement()
    assert errno('{"errno": 7}', "text/html").failure == "errno 7"


def test_an_answer_too_long_to_be_read_says_nothing_of_its_errno() -> None:
    judgement = said(Answer(200, body=None), AnswerRules(by_errno=True, max_bytes=10))

    assert "exceeds 10 bytes" in (judgement.failure or "")


def test_the_errno_of_a_failure_is_not_looked_at() -> None:
    assert said(Answer(500, "application/json", body=b'{"errno": 0}'), ERRNO).failure is not None


def test_a_location_that_is_not_utf_8_is_named_in_a_text_that_can_be_stored() -> None:
    judgement = said(Answer(302, location="http://other/\udcff"))
    assert judgement.failure is not None
    assert "to http://other/?, " in judgement.failure.encode().decode()
