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
