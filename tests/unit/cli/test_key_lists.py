"""Lists of keys: complete, or with a sentence that says that they are not."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import pytest

from proxy.cli import all_owners, key
from proxy.errors import OrderlaneError
from tests.support.command_line import CommandLine

#: Keys of one answer.
PAGE = 10_000


class Proxies:
    """Two proxies that each own a queue with *keys* keys or events, by address."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **keys: int) -> None:
        self._names = {
            address: [f"k{number:05}" for number in range(count)] for address, count in keys.items()
        }
        self.asked: list[dict[str, Any]] = []
        monkeypatch.setattr(all_owners, "one_of", lambda http: http)
        monkeypatch.setattr(all_owners, "look", self.look)

    def look(self, http: str, path: str, **asked: Any) -> Any:
        """Answer a request."""
        if path.endswith("/owners"):
            queues = [
                {"topic": "orders", "queue": at, "state": "owned", "owner": at, "http": at}
                for at in self._names
            ]
            return {"proxy": "a", "queues": queues}
        self.asked.append(asked)
        names = self._names[http]
        begin = bisect_right(names, (asked.get("after") or "").partition("@")[2])
        return [_row(http, name) for name in names[begin : begin + asked["limit"]]]


def _row(queue: str, name: str) -> dict[str, Any]:
    event = {"at_ms": int(name[1:]), "what": "failed", "offset": 1, "attempt": 1, "detail": ""}
    numbers = {"backlog": 1, "age_ms": 1, "share": 0.1, "copies": None, "not_copied": None}
    return {"key": name, "queue": queue, "topic": "orders", "by": "", **event, **numbers}


def test_all_parked_keys_are_listed(
    orderlane: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxies = Proxies(monkeypatch, a=PAGE + 5, b=3)
    parked = ("key", "parked", "billing", "--topic", "orders", "--http", "a", "-o", "json")
    ended = orderlane(*parked, "--limit", 50_000)
    assert (len(ended.json), ended.err) == (PAGE + 8, "")
    assert len({(row["queue"], row["key"]) for row in ended.json}) == PAGE + 8
    assert [asked.get("after") for asked in proxies.asked] == [None, "a@k09999", None]


@pytest.mark.parametrize(
    ("verb", "limit", "most", "noun"),
    [
        ("key parked billing", PAGE, 50_000, "key"),
        ("key parked billing", 4, 50_000, "key"),
        ("keys top billing", 20, 1_000, "key"),
        ("keys hot billing", 20, 1_000, "key"),
        ("keys blocked billing", 20, 1_000, "key"),
        ("keys paused billing", 20, 1_000, "key"),
        ("key history billing k", 100, 1_000, "event"),
    ],
)
def test_a_list_that_ends_at_its_limit_says_so(
    orderlane: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
    limit: int,
    most: int,
    noun: str,
) -> None:
    command = (*verb.split(), "--topic", "orders", "--http", "a", "-o", "json", "--limit")
    which, rest = ("newest", "older ones") if noun == "event" else ("first", "more")
    for found in ({"a": limit + 1, "b": 0}, {"a": 2, "b": limit - 1}, {"a": 0, "b": limit}):
        Proxies(monkeypatch, **found)
        ended = orderlane(*command, limit)
        shown = f"the {which} {limit:,} {noun}s shown, there may be {rest}: raise --limit\n"
        assert (len(ended.json), ended.err) == (limit, shown)
    Proxies(monkeypatch, a=limit - 1, b=0)
    ended = orderlane(*command, limit)
    assert (len(ended.json), ended.err) == (limit - 1, "")
    Proxies(monkeypatch, a=most + 1, b=0)
    ended = orderlane(*command, most)
    can_be_raised = ": raise --limit" if most > PAGE else ""
    assert f"there may be {rest}{can_be_raised}\n" in ended.err


@pytest.mark.parametrize(("moves", "missing"), [(1, False), (9, True)])
def test_a_queue_that_moves_meanwhile_is_asked_for_again(
    orderlane: CommandLine, monkeypatch: pytest.MonkeyPatch, moves: int, missing: bool
) -> None:
    """Proxy a is asked first, takes the queue of b, and b has none any more."""
    proxies = Proxies(monkeypatch, a=1, b=1)
    asked = 0

    def look(http: str, path: str, **query: Any) -> Any:
        nonlocal asked
        found = proxies.look(http, path, **query)
        if path.endswith("/owners"):
            asked += 1
            found["queues"] = [{**row, "epoch": min(asked, moves + 1)} for row in found["queues"]]
        elif asked <= moves:
            found = [row for row in found if row["queue"] != "b"]
        return found

    monkeypatch.setattr(all_owners, "look", look)
    parked = ("key", "parked", "billing", "--topic", "orders", "--http", "a", "-o", "json")
    ended = orderlane(*parked)
    assert [row["queue"] for row in ended.json] == ([] if missing else ["a", "b"])
    sentence = "a, b not shown: the owner changed meanwhile; repeat the command"
    assert (ended.code, sentence in ended.err) == ((2, True) if missing else (0, False))


def test_a_note_says_which_queues_moved_meanwhile(
    orderlane: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxies, epochs = Proxies(monkeypatch, a=1, b=1), iter((1, 2))

    def look(http: str, path: str, **query: Any) -> Any:
        found, epoch = proxies.look(http, path, **query), next(epochs)
        return {**found, "queues": [{**row, "epoch": epoch} for row in found["queues"][:1]]}

    answer = {"group": "billing", "key": "k", "queues": ["orders/b"], "note": "n"}
    others: dict[str, list[str]] = {"unowned": [], "unaddressed": [], "elsewhere": ["orders/a"]}
    monkeypatch.setattr(all_owners, "look", look)
    monkeypatch.setattr(all_owners, "change_at_all", lambda *_: ({"b": answer | others}, []))
    note = ("key", "note", "billing", "k", "--note", "n", "--reason", "x", "--topic", "orders")
    ended = orderlane(*note, "--http", "a")
    sentence = "perhaps not done in a: the owner changed meanwhile; repeat the command"
    assert (ended.code, sentence in ended.err) == (2, True)


def test_an_unknown_number_of_messages_is_no_dash(
    orderlane: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    Proxies(monkeypatch, a=1, b=0)
    ended = orderlane("key", "parked", "billing", "--topic", "orders", "--http", "a")
    assert ended.out.split().count("unknown") == len(("copies", "not_copied"))


def test_the_preview_of_a_redrive_names_proxies_that_are_not_counted(
    orderlane: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OrderlaneError("not confirmed")

    counted = {"a": {"queues": [{"queue": "a", "keys": ["k"], "copies": 2}]}}
    monkeypatch.setattr(key, "one_of", lambda http: http)
    monkeypatch.setattr(key, "may_ask", lambda _yes: None)
    monkeypatch.setattr(key, "confirm", refused)
    monkeypatch.setattr(key, "change_at_all", lambda *_: (counted, ["b does not answer"]))
    ended = orderlane("key", "redrive", "billing", "--all", "--topic", "orders", "--reason", "x")
    assert ended.err.splitlines()[0] == "the keys of a proxy are not counted: b does not answer"
