"""``orderlane owners drain``: its exit code says whether all queues are handed over."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.cli import owners
from tests.support.verbs import orderlane


@pytest.mark.parametrize("left", [0, 2])
async def test_a_drain_that_leaves_queues_is_no_success(
    monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    state = "draining" if left else "drained"
    row: dict[str, Any] = {"proxy": "a@1", "http": "a:1", "state": state, "owned": left}
    monkeypatch.setattr(owners, "change", lambda *_, **__: {**row, "reason": "upgrade"})
    monkeypatch.setattr(owners, "one_of", lambda http: http)
    code, out, err = await orderlane("owners", "drain", "a:1", "--reason", "upgrade")
    assert (code, state in out) == (1 if left else 0, True)
    said = "2 queues not handed over yet: see orderlane owners ls\n"
    assert err == (said if left else "")
