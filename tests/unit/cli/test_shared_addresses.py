"""Verbs that concern one process, at an address that several workers share."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from proxy.admin.operations import Call, get, post
from proxy.admin.shared import of_any_worker
from proxy.cli import connect, dead_letters, owner_requests
from proxy.errors import OrderlaneError, OwnedElsewhere
from tests.support.command_line import CommandLine

WORKERS = ("127.0.0.1:9724", "127.0.0.1:9734")
STATE = dict.fromkeys(("sent", "skipped", "left", "rate", "reason", "note"))


def _answer(http: str, path: str, **_: Any) -> bytes:
    """Answer as workers do: the second one redrives, and both have leases."""
    if http not in WORKERS:
        raise OwnedElsewhere("this address is shared", addresses=WORKERS)
    number = WORKERS.index(http)
    if path.startswith("/api/groups/billing/leases"):
        rows = [{"lease": f"orders:a_{number}:1:1", "ends_in_ms": 9 - number}]
        return orjson.dumps({"group": "billing", "live": 1, "leases": rows})
    if path.endswith("/dead-letters/stop") and not number:
        raise OrderlaneError("this proxy does not redrive the dead letters of 'billing'")
    return orjson.dumps({"group": "billing", "state": "stopped", **STATE})


@pytest.fixture(autouse=True)
def _shared(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (connect, dead_letters, owner_requests):
        monkeypatch.setattr(module, "ask_proxy", _answer)


def test_leases_of_all_workers_are_listed(orderlane: CommandLine) -> None:
    ended = orderlane("leases", "ls", "billing", "-o", "json")
    assert [row["lease"] for row in ended.json] == ["orders:a_1:1:1", "orders:a_0:1:1"]
    ended = orderlane("leases", "ls", "billing", "--limit", "1", "-o", "json")
    assert [row["lease"] for row in ended.json] == ["orders:a_1:1:1"]
    assert ended.err == "2 leases are live, 1 shown: raise --limit\n"


def test_the_redrive_of_any_worker_is_stopped(orderlane: CommandLine) -> None:
    ended = orderlane("dead-letters", "stop", "billing", "--reason", "enough", "-o", "json")
    assert (ended.code, [row["state"] for row in ended.json]) == (0, ["stopped"])


def test_without_a_redrive_anywhere_there_is_one_sentence(
    orderlane: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "each_of", lambda _http: [WORKERS[0], WORKERS[0]])
    ended = orderlane("dead-letters", "stop", "billing", "--reason", "enough")
    assert (ended.code, ended.err) == (
        2,
        "orderlane: this proxy does not redrive the dead letters of 'billing'\n",
    )


async def test_the_shared_port_names_the_workers() -> None:
    async def of_this_one(_call: Call) -> None:
        raise AssertionError("it would be that of any worker")

    place = "/api/groups/{group}"
    operations = [
        get(f"{place}/leases", "List leases.", of_this_one),
        get(f"{place}/handling", "Show handling times.", of_this_one),
        post(f"{place}/dead-letters/stop", "Stop.", of_this_one),
    ]
    for each in of_any_worker(operations, WORKERS):
        with pytest.raises(OwnedElsewhere, match="this address is shared"):
            await each.handle(Call({"group": "billing"}))
