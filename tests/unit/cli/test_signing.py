"""``orderlane groups sign`` prints one document, whatever happens in between."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

import orjson
import pytest

from proxy.cli import groups
from proxy.errors import OrderlaneError
from tests.support.command_line import CommandLine

SIGN = ("groups", "sign", "--reason", "checked", "--http", "a", "-o", "json")


@pytest.fixture(autouse=True)
def stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups a and b are not signed, c was deleted by an old key, d is refused, e is signed."""
    settings: dict[str, Any] = {"topics": [{"name": "orders"}]}

    def ask(_http: str, path: str, *, method: str = "GET", **_: Any) -> bytes:
        if path == "/api/config":
            store = {"unsigned": ["a", "b", "d"], "old_keys": ["c"], "versions": {"e": 1}}
            return orjson.dumps({"store": store})
        name = unquote(path).rpartition("/")[2].partition("?")[0]
        if method == "GET":
            unsigned = settings if name in "ab" else None
            refused = "no topics" if name == "d" else None
            return orjson.dumps(
                {"refused": refused, "unsigned": unsigned, "settings": None, "version": 1}
            )
        after = settings if method == "PUT" else None
        changed = {"changed": True, "before": None, "after": after}
        return orjson.dumps({"group": name, "version": 2, **changed})

    monkeypatch.setattr(groups, "ask_proxy", ask)


def test_several_groups_are_one_list(orderlane: CommandLine) -> None:
    ended = orderlane(*SIGN, "a", "b", "c", "e", "a")
    assert [row["group"] for row in ended.json] == ["a", "b", "c"]
    assert ended.err == "group e: signed with the current key already\n"
    assert orderlane(*SIGN, "e").json == []


def test_groups_before_an_error_are_shown(orderlane: CommandLine) -> None:
    ended = orderlane(*SIGN, "a", "d", "b")
    assert [row["group"] for row in ended.json] == ["a"]
    assert (ended.code, "group d: its settings are invalid" in ended.err) == (2, True)


def test_a_groups_name_is_not_among_its_settings(
    orderlane: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {"version": 1, "refused": None, "settings": {"topics": [{"name": "orders"}]}}

    def ask(*_: Any, method: str = "GET", **__: Any) -> bytes:
        if method != "GET":
            raise OrderlaneError("changed")
        return orjson.dumps(known)

    monkeypatch.setattr(groups, "ask_proxy", ask)
    update = ("groups", "update", "a", "--set", "name=b", "--reason", "x", "--http", "a")
    ended = orderlane(*update)
    assert (ended.code, "a group cannot be renamed" in ended.err) == (2, True)


def test_a_group_without_settings_in_use_is_not_described_as_one_of_clients(
    orderlane: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    known: dict[str, Any] = {"source": "clients", "version": 0, "refused": None, "settings": None}
    unsigned = {"topics": [{"name": "orders"}]}

    def described(**more: Any) -> tuple[str, list[str]]:
        monkeypatch.setattr(groups, "ask_proxy", lambda *_, **__: orjson.dumps({**known, **more}))
        ended = orderlane("groups", "describe", "a", "--http", "a")
        assert ended.code == 0
        return ended.out, ended.err.splitlines()

    not_signed = "its settings in the store are not signed, so they are not used: see orderlane"
    assert described(unsigned=unsigned) == (
        "",
        ["group a: no settings are in use", f"{not_signed} groups sign"],
    )
    assert described(unsigned=None) == ("", ["group a: no settings are in use"])
    out, err = described(unsigned=None, settings=unsigned, source="store", version=4)
    assert (out, err) == ("topics:\n- name: orders\n", ["group a: from store, version 4"])
