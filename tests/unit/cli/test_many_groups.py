"""``orderlane doctor`` with many groups."""

from __future__ import annotations

from collections import Counter
from typing import Any

import orjson
import pytest

from proxy.cli import connect, group_doctor, group_facts
from proxy.errors import OrderlaneError
from proxy.operator import readers

PROCESS = {
    "proxy": "p@1#1",
    "away": "",
    "wall_ms": 0,
    "clock_jumps": [],
    "memory_bytes": 0,
    "memory_limit_bytes": 1,
}


def test_proxies_are_not_asked_for_all_groups_by_each_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A proxy with a thousand groups was asked a thousand times for the views of all thousand."""
    names, asked = [f"g{number}" for number in range(40)], Counter[str]()
    clock_ns = 0

    def ask(_http: str, path: str, **_: Any) -> bytes:
        nonlocal clock_ns
        asked[path] += 1
        if path == "/api/groups":
            clock_ns += 50_000_000  # it is long, and the others take no time
            return orjson.dumps({name: {} for name in names})
        answers = {"/api/process": PROCESS, "/api/refusals": {"refusals": []}}
        return orjson.dumps(answers[path])

    def away(_nameserver: str) -> Any:
        raise OrderlaneError("no nameserver answers")

    for module in (connect, group_facts):
        monkeypatch.setattr(module, "ask_proxy", ask)
    monkeypatch.setattr(group_facts, "broker_client", away)
    monkeypatch.setattr(readers, "now_ns", lambda: clock_ns)
    found = group_doctor.diagnose_all(nameserver="127.0.0.1:1", http="127.0.0.1:2")
    assert ([each.group for each in found.found], found.failed) == (sorted(names), {})
    assert asked["/api/process"] == len(names)
    assert asked["/api/groups"] == 2, "once for the names, and once for all diagnoses"
