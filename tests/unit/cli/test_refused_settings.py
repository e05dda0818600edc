"""Verbs that change single settings of a stored group whose newest settings the proxy refuses."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from proxy.cli import groups, order_key_rollout, order_key_sample
from tests.support.command_line import CommandLine

TOPICS = {"topics": [{"name": "orders", "order_key": "KEY"}]}


@pytest.mark.parametrize("settings", [TOPICS, None])
def test_earlier_settings_do_not_replace_refused_ones(
    orderlane: CommandLine, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any] | None
) -> None:
    described = {
        "group": "billing",
        "source": "store",
        "version": 3,
        "settings": settings,
        "refused": "max_rate is too high",
        "unsigned": None,
    }

    def ask(_http: str, _path: str, *, method: str | None = None, **_: Any) -> bytes:
        assert method is None, "nothing is changed"
        return orjson.dumps(described)

    monkeypatch.setattr(groups, "ask_proxy", ask)
    monkeypatch.setattr(order_key_rollout, "ask_proxy", ask)
    monkeypatch.setattr(order_key_sample, "look", lambda *_: described)
    why = ("--reason", "so")
    for words in (
        ("groups", "update", "billing", "--set", "max_rate=5"),
        ("order-key", "rollout", "billing", "$.id"),
    ):
        assert "max_rate is too high" in orderlane.problem(*words, *why)


def test_a_value_that_is_no_yaml_is_a_text(
    orderlane: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = {
        "group": "billing",
        "source": "store",
        "version": 3,
        "settings": TOPICS,
        "refused": None,
        "unsigned": None,
    }
    sent: list[Any] = []

    def ask(_http: str, _path: str, *, body: Any = None, **_: Any) -> bytes:
        if body is not None:
            sent.append(body)
        return orjson.dumps({**described, "before": TOPICS, "after": TOPICS, "dry_run": False})

    monkeypatch.setattr(groups, "ask_proxy", ask)
    orderlane("groups", "update", "billing", "--set", "orders.tags=!!bool x", "--reason", "so")
    assert "!!bool x" in str(sent)
