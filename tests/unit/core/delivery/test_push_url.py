from __future__ import annotations

import pytest

from proxy.core.delivery.push_url import (
    AllowedHosts,
    callback_urls,
    check_allowed_host,
    parse_url,
)


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        ("http://receiver", "http://receiver:80"),
        ("https://Receiver.Example.com/a/b?c=d%20e", "https://receiver.example.com:443"),
        ("http://10.0.0.7:8080/", "http://10.0.0.7:8080"),
        ("http://[::1]:8080/x", "http://[::1]:8080"),
        ("http://receiver./x@y", "http://receiver:80"),
    ],
)
def test_a_url_has_an_origin_for_connections(text: str, origin: str) -> None:
    assert parse_url(text).origin == origin


@pytest.mark.parametrize(
    "text",
    [
        *("", "receiver", "ftp://receiver/", "http://", "http:///x", "//receiver/"),
        *("http://user@receiver/", "http://user:word@receiver/", "http://receiver/#part"),
        *("http://receiver\\@other/", "http://receiver/a b", "http://receiver/\r\nX: y"),
        *("http://receiver:0/", "http://receiver:65536/", "http://receiver:80:90/"),
        *("http://réceiver/", "http://receiver/ü", "HTTP://receiver/", " http://receiver/"),
        *("http://a..b/", "http://.a/", "http://a../", f"http://{'a' * 64}.example.com/"),
        *("http://receiver\n", "http://receiver/" + "a" * 2048),
    ],
)
def test_ambiguous_urls_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="should "):
        parse_url(text)


@pytest.mark.parametrize(
    ("hosts", "url", "allowed"),
    [
        (("hooks.example.com",), "http://hooks.example.com/x", True),
        (("hooks.example.com",), "https://HOOKS.example.com./x", True),
        (("hooks.example.com",), "http://hooks.example.com:8080/x", False),
        (("hooks.example.com:8080",), "http://hooks.example.com:8080/x", True),
        (("hooks.example.com:8080",), "http://hooks.example.com/x", False),
        (("hooks.example.com:80",), "http://hooks.example.com/x", True),
        (("example.com",), "http://hooks.example.com/x", False),
        (("*.example.com",), "http://a.hooks.example.com/x", True),
        (("*.example.com",), "http://example.com/x", False),
        (("*.example.com",), "http://badexample.com/x", False),
        (("*.example.com:8443",), "https://hooks.example.com:8443/x", True),
        (("127.0.0.1",), "http://2130706433/x", False),
        (("127.0.0.1",), "http://0x7f.1/x", False),
        (("[::1]:8080",), "http://[::1]:8080/x", True),
        (("[::1]:8080",), "http://[0:0:0:0:0:0:0:1]:8080/x", False),
    ],
)
def test_a_message_may_name_listed_hosts_only(
    hosts: tuple[str, ...], url: str, allowed: bool
) -> None:
    listed = AllowedHosts(frozenset(map(check_allowed_host, hosts)))

    assert listed.allow(parse_url(url)) is allowed


@pytest.mark.parametrize(
    "text", ["", "*", "http://hooks", "hooks/x", "a b", "hooks:0", "*.*.com", "user@hooks"]
)
def test_invalid_hosts_cannot_be_allowed(text: str) -> None:
    with pytest.raises(ValueError, match="should be a host"):
        check_allowed_host(text)


def test_one_forbidden_url_of_several_forbids_them_all() -> None:
    allowed = AllowedHosts(frozenset({"a", "b"}))

    assert [url.host for url in callback_urls("http://a/x<>http://b/y", allowed)] == ["a", "b"]
    with pytest.raises(ValueError, match="c:80, which callback_hosts does not allow"):
        callback_urls("http://a/x<>http://c/y", allowed)
    with pytest.raises(ValueError, match="should be a URL"):
        callback_urls("http://a/x<>javascript:y", allowed)
    with pytest.raises(ValueError, match="contains no URL"):
        callback_urls("<>", allowed)
