"""Settings of the action redis: refusals at load time, in one sentence."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from proxy.delivery.deliverers import undeliverable
from proxy.errors import SettingsError
from proxy.settings.proxy_settings import Settings, load_settings
from proxy.settings.sinks.redis import RedisSettings
from tests.support.receiver_access import access

URL = "redis://127.0.0.1:6379/0"
SET = [["set", "order:${key}", "${text}", "EX", 60]]


def loaded(*actions: dict[str, Any]) -> Settings:
    topic = {"name": "orders", "actions": list(actions)}
    groups = [{"name": "billing", "topics": [topic]}]
    return load_settings(None, {"groups": groups}, environment={})


def redis_of(settings: Settings) -> RedisSettings:
    found = settings.groups[0].topics[0].delivery
    assert isinstance(found, RedisSettings)
    return found


def test_commands_are_lists_whose_numbers_may_stand_as_such() -> None:
    found = redis_of(loaded({"redis": {"url": URL, "commands": SET}}))
    assert found.commands == (("SET", "order:${key}", "${text}", "EX", "60"),)
    assert found.place == {"host": "127.0.0.1", "port": 6379, "db": 0}


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("redis://cache", {"host": "cache", "port": 6379, "db": 0}),
        ("rediss://[::1]:7000/3", {"host": "::1", "port": 7000, "db": 3}),
        ("unix:///run/redis.sock", {"path": "/run/redis.sock"}),
    ],
)
def test_places(url: str, place: dict[str, Any]) -> None:
    assert redis_of(loaded({"redis": {"url": url, "commands": SET}})).place == place


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"url": "http://cache"}, "should be redis://HOST:PORT/DATABASE"),
        ({"url": "redis://cache:x"}, "should be redis://HOST:PORT/DATABASE"),
        ({"url": "redis://cache/zero"}, "should be redis://HOST:PORT/DATABASE"),
        ({"url": "redis://cache?db=1"}, "without ? and #"),
        ({"url": "redis://:hush@cache"}, "should hold no password"),
        ({"commands": []}, "should not be empty"),
        ({"commands": [[]]}, "should name a command and its arguments"),
        (
            {"commands": [["GET", "k"]]},
            "GET is not a command that a sink runs; these are APPEND, DEL",
        ),
        ({"commands": [["SET", "k"]]}, "SET takes 2 or more arguments, not 1"),
        ({"commands": [["PUBLISH", "k"]]}, "PUBLISH takes 2 arguments, not 1"),
        ({"commands": [["EXPIRE", "k"]]}, "EXPIRE takes 2 to 3 arguments, not 1"),
        ({"commands": [["DEL", "${unknown}"]]}, "argument 1 of DEL ${unknown}: there is no"),
        ({"commands": [["DEL", "${absent}"]]}, "argument 1 of DEL ${absent}: there is no"),
        ({"commands": [["DEL", True]]}, "should be text"),
        ({"concurrency": 0}, "greater than or equal to 1"),
        ({"timeout_s": 0}, "greater than 0"),
        ({"once": True}, "unknown"),
        ({"username": "u"}, "should have password_secret if username is set"),
        ({"ca_file": "ca.pem"}, "should have a url that begins with rediss://"),
    ],
)
def test_invalid_settings_are_refused_with_their_place(
    changed: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(SettingsError) as refusal:
        loaded({"redis": {"url": URL, "commands": SET, **changed}})
    (line,) = str(refusal.value).splitlines()
    assert sentence in line
    assert "groups[0].topics[0].actions[0].redis" in line
    assert "hush" not in line


def test_a_delivering_action_comes_last() -> None:
    redis = {"redis": {"url": URL, "commands": SET}}
    with pytest.raises(SettingsError, match=r"action 1 \(redis\) delivers the message"):
        loaded(redis, {"filter": {"tags": "paid"}})
    assert redis_of(loaded({"filter": {"tags": "paid"}}, redis)).kind == "redis"


@pytest.mark.parametrize(
    ("secrets", "problem"),
    [
        ({"other": b"x"}, "names 'cache', which is not among the proxy's secrets"),
        ({"cache": b"\xff"}, "names 'cache', a secret that is not UTF-8"),
    ],
)
def test_a_missing_password_is_reported_before_serving(
    secrets: dict[str, bytes], problem: str
) -> None:
    groups = loaded({"redis": {"url": URL, "commands": SET, "password_secret": "cache"}}).groups
    (sentence,) = undeliverable(groups, access(**secrets))
    assert sentence == f"group billing, topic orders: its redis: {problem}"
    assert list(undeliverable(groups, access(cache=b"hush"))) == []


def test_unreadable_authorities_are_reported_as_well(tmp_path: Path) -> None:
    action = {"url": "rediss://cache", "commands": SET, "ca_file": str(tmp_path / "none.pem")}
    (sentence,) = undeliverable(loaded({"redis": action}).groups, access())
    assert sentence.startswith(f"group billing, topic orders: its redis: its ca_file {tmp_path}")


def test_without_the_package_it_is_refused_when_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(SettingsError, match=r"pip install 'orderlane\[redis\]'"):
        loaded({"redis": {"url": URL, "commands": SET}})
