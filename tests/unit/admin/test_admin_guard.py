"""Authentication and authorization of HTTP requests."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from proxy.admin.groups import GroupBody
from proxy.admin.guard import Guard, is_loopback
from proxy.errors import Forbidden, NotAllowed
from proxy.net.principals import Principals
from proxy.net.refusal_log import RefusalLog
from proxy.settings.proxy_settings import Settings

KEYS = "/api/groups/{group}/topics/{topic}/keys"
NAMES = {"group": "billing", "topic": "orders"}


def token(name: str) -> dict[str, str]:
    return {"name": name, "sha256": hashlib.sha256(name.encode()).hexdigest()}


def guard(
    *rules: dict[str, Any], tokens: tuple[str, ...] = ("anna",), loopback: bool = False
) -> Guard:
    settings = Settings.model_validate(
        {"tokens": [token(each) for each in tokens], "access": rules}
    )
    return Guard(Principals(settings), loopback=loopback)


def shown(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {name}"}


@pytest.mark.parametrize(
    ("address", "so"),
    [
        ("127.0.0.1:9714", True),
        ("127.9.9.9", True),
        ("localhost:1", True),
        ("LOCALHOST", True),
        ("[::1]:9714", True),
        ("::1", False),  # no host and port: the part after the last colon belongs to the address
        ("[::1]", True),
        ("0.0.0.0:9714", False),
        ("[::]:9714", False),
        ("10.0.0.1:9714", False),
        ("127.0.0.1.evil.test", False),
        ("localhost.evil.test:80", False),
        ("", False),
    ],
)
def test_loopback_addresses(address: str, so: bool) -> None:
    assert is_loopback(address) is so


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
def test_probes_and_metrics_are_open(path: str) -> None:
    assert guard().check(path, {}, {"Sec-Fetch-Site": "cross-site"}) is None


def test_loopback_needs_no_authentication() -> None:
    assert guard(loopback=True).check(KEYS, NAMES, {"Host": "127.0.0.1:9714"}) is None


@pytest.mark.parametrize(
    ("headers", "who"),
    [
        ({}, None),
        ({"Authorization": "Bearer "}, None),
        ({"Authorization": "Bearer bob"}, None),
        ({"Authorization": "Basic anna"}, None),
        ({"Authorization": "anna"}, None),
        ({"Authorization": "Bearer anna"}, "anna"),
        ({"Authorization": "bearer  anna "}, "anna"),
    ],
)
def test_other_addresses_need_a_token(headers: dict[str, str], who: str | None) -> None:
    made = guard()
    if who is None:
        with pytest.raises(NotAllowed, match="ORDERLANE_ADMIN_TOKEN"):
            made.check(KEYS, NAMES, headers)
        assert made.refused == 1
    else:
        assert made.check(KEYS, NAMES, headers) == who
        assert made.refused == 0


def test_other_addresses_refuse_all_requests_without_configured_tokens() -> None:
    with pytest.raises(NotAllowed, match="no tokens are configured"):
        guard(tokens=()).check(KEYS, NAMES, shown("anna"))


@pytest.mark.parametrize(
    ("names", "may"),
    [
        (NAMES, True),
        ({"group": "billing"}, False),
        ({"group": "archive", "topic": "orders"}, False),
        ({"group": "billing", "topic": "salaries"}, False),
        ({}, False),
    ],
)
def test_a_rule_grants_principals_access_to_groups(names: dict[str, str], may: bool) -> None:
    made = guard(
        {"principals": ["anna"], "may": ["admin"], "groups": ["bill*"], "topics": ["orders"]}
    )
    if may:
        assert made.check(KEYS, names, shown("anna")) == "anna"
    else:
        with pytest.raises(Forbidden, match="anna has no right admin"):
            made.check(KEYS, names, shown("anna"))


def test_invalid_names_are_refused_before_rules_apply() -> None:
    made = guard({"principals": ["anna"], "may": ["admin"], "groups": ["*a*a*"]})
    with pytest.raises(Forbidden, match="the request has a name of 5000 characters: at most"):
        made.check(KEYS, {"group": "a" * 5_000, "topic": "orders"}, shown("anna"))


def test_permission_to_pull_does_not_include_admin() -> None:
    with pytest.raises(Forbidden):
        guard({"principals": ["*"], "may": ["pull", "produce", "bulk"]}).check(
            KEYS, NAMES, shown("anna")
        )


@pytest.mark.parametrize("loopback", [True, False])
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.test"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:9715"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_a_page_of_another_site_is_refused(headers: dict[str, str], loopback: bool) -> None:
    asked = {"Host": "127.0.0.1:9714", **shown("anna"), **headers}
    with pytest.raises(Forbidden, match="another site"):
        guard(loopback=loopback).check(KEYS, NAMES, asked)


def test_requests_of_its_own_pages_are_served() -> None:
    headers = {
        "Host": "127.0.0.1:9714",
        "Origin": "http://127.0.0.1:9714",
        "Sec-Fetch-Site": "same-origin",
    }
    assert guard(loopback=True).check(KEYS, NAMES, headers) is None


def test_foreign_host_names_are_refused_on_loopback() -> None:
    with pytest.raises(Forbidden, match=r"wrong host 'evil\.test:9714'"):
        guard(loopback=True).check(KEYS, NAMES, {"Host": "evil.test:9714"})


def test_a_client_certificate_authenticates() -> None:
    settings = Settings.model_validate(
        {
            "certificates": [{"name": "ops", "common_name": "ops.test"}],
            "listen": {"tls": {"certificate": "c", "key": "k", "client_ca": "a"}},
        }
    )
    made = Guard(Principals(settings), loopback=False)
    assert made.check(KEYS, NAMES, {}, certificate="ops.test") == "ops"
    with pytest.raises(NotAllowed):
        made.check(KEYS, NAMES, {}, certificate="other.test")


READERS = {"dead": ("%DLQ%billing",), "mixed": ("orders", "%DLQ%billing"), "plain": ("orders",)}


@pytest.mark.parametrize(
    ("group", "asked", "topics", "may"),
    [
        ("plain", (), ("*",), True),
        ("plain", ("orders",), ("*",), True),
        ("plain", ("%DLQ%billing",), ("*",), False),  # as in settings that add such a topic
        ("plain", ("orders", "%DLQ%billing"), ("*",), False),
        ("dead", (), ("*",), False),
        ("dead", (), ("*", "%DLQ%*"), True),
        ("mixed", (), ("*",), False),
        ("mixed", ("orders",), ("*",), True),
        ("mixed", ("%DLQ%billing",), ("*", "%DLQ%billing"), True),
        ("unknown", (), ("*",), True),
    ],
)
def test_topics_outside_the_path_need_a_right_too(
    group: str, asked: tuple[str, ...], topics: tuple[str, ...], may: bool
) -> None:
    rule = {"principals": ["anna"], "may": ["admin"], "topics": list(topics)}
    settings = Settings.model_validate({"tokens": [token("anna")], "access": [rule]})
    refusals = RefusalLog()
    made = Guard(
        Principals(settings),
        loopback=False,
        topics_of=lambda name: READERS.get(name, ()),
        refusals=refusals,
    )
    who = made.check("/api/groups/{group}/leases", {"group": group}, shown("anna"))
    if may:
        made.check_topics(who, {"group": group}, asked)
    else:
        with pytest.raises(Forbidden, match=r"anna has no right admin for .*%DLQ%billing"):
            made.check_topics(who, {"group": group}, asked, client="10.0.0.7")
        assert made.refused == 1
        (refusal,) = refusals.book
        assert (refusal.client, refusal.principal) == ("10.0.0.7", "anna")


def test_settings_of_a_group_name_their_topics() -> None:
    topics: list[Any] = [{"name": "a"}, {"name": "%DLQ%x"}, {"name": 3}, {}, "b", {"name": "a"}]
    body = GroupBody(reason="r", settings={"topics": topics})
    assert body.named_topics() == ("a", "%DLQ%x")
    assert GroupBody(reason="r", settings={}).named_topics() == ()


@pytest.mark.parametrize(
    ("names", "may"),
    [
        ({"topic": "orders"}, {"anna", "carl"}),
        ({"topic": "payments"}, {"anna"}),
        ({"topic": "%DLQ%billing"}, set()),  # only a pattern that begins so matches it
        ({}, {"anna"}),  # all topics
    ],
)
def test_a_topic_without_a_group_needs_a_right_to_all_groups(
    names: dict[str, str], may: set[str]
) -> None:
    """Every group may have the messages of the topic, and the request shows them all."""
    checked = guard(
        {"principals": ["anna"], "may": ["admin"]},
        {"principals": ["bob"], "may": ["admin"], "groups": ["billing"]},
        {"principals": ["carl"], "may": ["admin"], "topics": ["orders"]},
        tokens=("anna", "bob", "carl"),
    )
    path = "/api/topics/{topic}/messages" if names else "/api/topics"
    for name in ("anna", "bob", "carl"):
        if name in may:
            assert checked.check(path, names, shown(name)) == name
        else:
            with pytest.raises(Forbidden):
                checked.check(path, names, shown(name))


def test_a_refusal_names_the_caller_as_far_as_it_is_known() -> None:
    settings = Settings.model_validate(
        {"tokens": [token("anna")], "access": [{"principals": ["anna"], "may": ["pull"]}]}
    )
    refusals = RefusalLog()
    made = Guard(Principals(settings), loopback=False, refusals=refusals)
    for name in ("anna", "bob"):
        with pytest.raises(NotAllowed):
            made.check(KEYS, NAMES, shown(name), client="10.0.0.7")
    assert [each.principal for each in refusals.book] == ["anna", ""]
