"""Secrets go to the hosts that they are bound to, and to no other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from proxy.core.delivery.push_request import PushRequest, places_of, request_of
from proxy.core.delivery.push_url import AllowedHosts
from proxy.core.delivery.receiver_access import ReceiverAccess
from proxy.core.delivery.secret import Secret
from proxy.settings.sinks.push import PushSettings, push_rules_of, receivers_of
from proxy.settings.sinks.redis import RedisSettings, password_of, servers_of
from tests.support.pushed_messages import PushedMessage

OURS, THEIRS = "http://billing:8080/orders", "http://hooks.example.com/x"
SECRET_USES: dict[str, dict[str, Any]] = {
    "header": {"headers": [{"name": "Authorization", "secret": "s"}]},
    "signature": {"sign_with": ["s"]},
    "token": {"token_secret": "s", "context": ["key", "token"]},
    "value": {"headers": [{"name": "Authorization", "value": "hush"}]},
}


def access(*hosts: str, bound: bool = True, from_file: bool = True) -> ReceiverAccess:
    secret = Secret(b"hush", AllowedHosts(frozenset(hosts)) if bound else None)
    return ReceiverAccess(secrets={"s": secret}, from_file=from_file)


def settings(**others: Any) -> PushSettings:
    return PushSettings.model_validate(
        {"urls": [OURS], "callback_hosts": ["*.example.com", "billing:8080"], **others}
    )


def request(own: PushSettings, allowed: ReceiverAccess, callback: str | None = None) -> PushRequest:
    """Return the request for a message, which may name its own URL."""
    rules = push_rules_of(own, allowed)
    properties = {} if callback is None else {rules.callback_property: callback}
    message = replace(PushedMessage(), properties=properties)
    (place,), _ = places_of(rules, message)
    return request_of(rules, message, place, at_s=5)


def is_confidential(made: PushRequest) -> bool:
    names = {name.lower() for name in made.headers}
    return bool({"authorization", "orderlane-signature"} & names) or b"token" in (made.body or b"")


@pytest.mark.parametrize("use", SECRET_USES.values(), ids=SECRET_USES.keys())
def test_a_url_in_a_message_gets_nothing_that_is_meant_for_the_receiver(
    use: dict[str, Any],
) -> None:
    for allowed in (access(bound=False), access("billing:8080")):
        assert is_confidential(request(settings(**use), allowed))
        assert not is_confidential(request(settings(**use), allowed, THEIRS))
        assert not is_confidential(request(settings(**use), allowed, "http://sub.example.com/"))
        assert is_confidential(request(settings(**use), allowed, OURS)), "the receiver itself"


def test_hosts_of_header_and_secret_both_have_to_allow_a_url() -> None:
    both = {"name": "Authorization", "secret": "s", "hosts": ["*.example.com", "billing:8080"]}
    wide, narrow = access("*.example.com", "billing:8080"), access("billing:8080")
    assert is_confidential(request(settings(headers=[both]), wide, THEIRS))
    assert not is_confidential(request(settings(headers=[both]), narrow, THEIRS))
    of_header = {"name": "Authorization", "secret": "s", "hosts": ["billing:8080"]}
    assert not is_confidential(request(settings(headers=[of_header]), wide, THEIRS))


@pytest.mark.parametrize("name", ["header", "signature", "token"])
def test_settings_that_send_a_secret_elsewhere_are_refused(name: str) -> None:
    own = settings(**SECRET_USES[name])
    for allowed in (access("billing"), access("billing:8081"), access("*.billing:8080"), access()):
        with pytest.raises(ValueError, match="hosts do not list billing:8080"):
            push_rules_of(own, allowed)
    with pytest.raises(ValueError, match="hosts do not list other"):
        push_rules_of(
            settings(urls=[OURS, "http://other/"], **SECRET_USES[name]), access("billing:8080")
        )


@pytest.mark.parametrize("name", ["header", "signature", "token"])
def test_a_stored_group_uses_only_bound_secrets(name: str) -> None:
    own = settings(**SECRET_USES[name])
    with pytest.raises(ValueError, match="only if its hosts list billing:8080"):
        push_rules_of(own, access(bound=False, from_file=False))
    push_rules_of(own, access("billing:8080", from_file=False))


def test_the_password_of_redis_is_bound_as_well() -> None:
    own = RedisSettings.model_validate(
        {"url": "redis://cache", "password_secret": "s", "commands": [["DEL", "a"]]}
    )
    assert password_of(own, access("cache")) == password_of(own, access("cache:6379")) == "hush"
    assert password_of(own, access(bound=False)) == "hush"
    with pytest.raises(ValueError, match="hosts do not list cache"):
        password_of(own, access("cache:6380"))
    with pytest.raises(ValueError, match="only if its hosts list cache"):
        password_of(own, access(bound=False, from_file=False))


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("redis://127.0.0.1", "127.0.0.1 is a loopback address"),
        ("redis://localhost", "a loopback address"),
        ("redis://169.254.169.254", "metadata service"),
        ("unix:///var/run/docker.sock", "cannot use a Unix socket"),
    ],
)
def test_a_stored_group_reaches_no_redis_of_this_machine(url: str, problem: str) -> None:
    own = RedisSettings.model_validate({"url": url, "commands": [["DEL", "a"]]})
    with pytest.raises(ValueError, match=problem):
        servers_of(own, access(from_file=False))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "10.0.0.7", "[::1]", "[fd00::7]"])
def test_only_the_settings_file_may_list_internal_addresses(host: str) -> None:
    own = settings(urls=[f"http://{host}:8080/"])
    receivers_of(own, access())
    with pytest.raises(ValueError, match="which receiver_networks does not allow"):
        receivers_of(own, access(from_file=False))


def test_no_settings_list_a_metadata_service() -> None:
    for more in ({"urls": ["http://169.254.169.254/"]}, {"callback_hosts": ["169.254.169.254"]}):
        with pytest.raises(ValueError, match="metadata service"):
            receivers_of(settings(**more), access())


def test_a_name_for_messages_to_choose_is_not_listed() -> None:
    rules = receivers_of(settings(callback_hosts=["hooks.internal", "10.0.0.7:8080"]), access())
    assert rules.problem("hooks.internal", "10.0.0.8") is not None
    assert rules.problem("10.0.0.7", "10.0.0.7") is None
    assert rules.problem("billing", "10.0.0.8") is None, "one of urls"
