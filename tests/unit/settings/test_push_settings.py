from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from proxy.core.delivery.push_request import CONTEXT_NAMES, Format
from proxy.settings.sinks.push import PushSettings, answer_rules_of, push_rules_of
from tests.support.receiver_access import access

URL = "http://receiver:8080/orders"


def settings(**values: Any) -> PushSettings:
    return PushSettings.model_validate({"urls": [URL], **values})


def test_defaults_are_safe() -> None:
    rules, answers = push_rules_of(settings(), access()), answer_rules_of(settings())

    assert (rules.method, rules.format) == ("POST", Format.JSON)
    assert not rules.callback_hosts
    assert (rules.secrets, rules.headers) == ([], {})
    assert (answers.by_errno, answers.reject_on) == (False, frozenset())


def test_the_list_of_context_names_in_the_documentation_is_whole() -> None:
    described = PushSettings.model_fields["context"].description or ""

    assert [name for name in CONTEXT_NAMES if name not in described] == []


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"urls": []}, "should not be empty"),
        ({"urls": ["receiver"]}, "should be a URL such as"),
        ({"urls": ["http://user@receiver/"]}, "no user"),
        ({"method": "PUT"}, "'POST' or 'GET'"),
        ({"method": "GET"}, "should have format: form or fields with method: GET, not json"),
        ({"method": "GET", "format": "raw"}, "not raw"),
        ({"format": "xml"}, "'json', 'form', 'fields' or 'raw'"),
        ({"context": ["topics"]}, "should be one of topic, group, queue, qid"),
        ({"context": ["token"]}, "token in context and token_secret together"),
        ({"token_secret": "x"}, "token in context and token_secret together"),
        ({"max_rate": 0}, "greater than 0"),
        ({"timeout_s": 0}, "greater than 0"),
        ({"headers": [{"name": "X-A"}]}, "should have either value or secret"),
        ({"headers": [{"name": "X-A", "value": "b", "secret": "c"}]}, "either value or secret"),
        ({"headers": [{"name": "X A", "value": "b"}]}, "should be the name of an HTTP header"),
        ({"headers": [{"name": "X-A", "value": "b\r\nX: y"}]}, "should be visible ASCII"),
        ({"headers": [{"name": "Host", "value": "b"}]}, "that neither HTTP nor the proxy sets"),
        ({"headers": [{"name": "Orderlane-Signature", "value": "b"}]}, "neither HTTP nor"),
        ({"headers": [{"name": "A", "value": "b"}, {"name": "a", "value": "c"}]}, "more than once"),
        ({"reject_on": [200]}, "greater than or equal to 300"),
        ({"reject_on": ["4xx"]}, "valid integer"),
        ({"callback_hosts": ["*"]}, "should be a host such as"),
        ({"callback_hosts": ["http://hooks/"]}, "should be a host such as"),
        ({"retries": 5}, "Extra inputs"),
    ],
)
def test_unservable_settings_are_refused_with_a_sentence(
    values: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        settings(**values)

    assert sentence in str(caught.value)


def test_settings_are_compared_by_value() -> None:
    """A proxy that reloads its groups has to detect which pushes changed."""
    assert hash(settings(sign_with=["a"])) == hash(settings(sign_with=["a"]))
    assert settings(max_rate=5.0) != settings(max_rate=6.0)


def test_secrets_are_named_and_never_shown() -> None:
    named = settings(
        headers=[{"name": "Authorization", "secret": "token"}, {"name": "X-A", "value": "b"}],
        sign_with=["new", "old"],
        context=["key", "token"],
        token_secret="theirs",
    )
    secrets = access(token=b"Bearer x", new=b"\xff1", old=b"2", theirs=b"3")

    assert named.secret_names == ["new", "old", "theirs", "token"]
    rules = push_rules_of(named, secrets)
    values = {name: bound.value for name, bound in rules.headers.items()}
    assert values == {"Authorization": "Bearer x", "X-A": "b"}
    assert [bound.value for bound in rules.secrets] == [b"\xff1", b"2"]
    assert rules.token_secret is not None
    assert rules.token_secret.value == b"3"
    assert "Bearer" not in repr(rules)


@pytest.mark.parametrize("value", [b"a\r\nX: y", b"\xff", b" a", b""])
def test_a_secret_that_no_header_can_carry_is_refused_without_being_shown(value: bytes) -> None:
    named = settings(headers=[{"name": "Authorization", "secret": "token"}])
    with pytest.raises(ValueError, match="the secret 'token' cannot be the value of the header"):
        push_rules_of(named, access(token=value))


def test_a_secret_that_the_proxy_does_not_have_is_named() -> None:
    with pytest.raises(ValueError, match="names 'old', which is not among the proxy's secrets"):
        push_rules_of(settings(sign_with=["new", "old"]), access(new=b"1"))
