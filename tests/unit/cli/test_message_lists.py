"""``orderlane messages ls``: the newest messages of a topic, of however many queues."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from proxy.cli import audit, exports, messages
from proxy.cli.times import time_text
from tests.support.command_line import CommandLine


class Topic:
    """A topic as a proxy lists it: *queues* are the store times of the messages of each queue."""

    def __init__(self, *queues: range) -> None:
        self._queues = {f"broker-a_{number}": times for number, times in enumerate(queues)}
        self.asked: list[dict[str, Any]] = []

    def look(self, _http: str, _path: str, **asked: Any) -> dict[str, Any]:
        """Return a page of the oldest messages from its beginning on."""
        self.asked.append(asked)
        begins = self._begins(asked)
        found = sorted(
            (ms, queue, offset)
            for queue, begin in begins.items()
            for offset, ms in enumerate(self._queues[queue])
            if offset >= begin
        )
        page = found[: asked["limit"]]
        ends = {
            queue: begin + sum(each[1] == queue for each in page) for queue, begin in begins.items()
        }
        return {
            "older": any(begins.values()),
            "messages": [_row(*each) for each in page],
            "positions": ",".join(f"{queue}@{offset}" for queue, offset in ends.items()),
            "complete": len(page) == len(found),
        }

    def _begins(self, asked: dict[str, Any]) -> dict[str, int]:
        if positions := asked.get("positions"):
            places = [each.rpartition("@") for each in positions.split(",")]
            return {queue: int(offset) for queue, _, offset in places}
        share = asked["limit"] // len(self._queues) + 1
        back = 0 if asked.get("start") == "end" else share
        return {queue: max(0, len(times) - back) for queue, times in self._queues.items()}


def _row(ms: int, queue: str, offset: int) -> dict[str, Any]:
    row = dict.fromkeys(("keys", "tag", "bytes", "preview"))
    return {"message": f"{queue}@{offset}", "born_ms": ms, "store_ms": ms, **row}


@pytest.mark.parametrize(
    ("queues", "limit"),
    [
        ([range(3)], 20),
        ([range(30)], 20),
        ([range(30), range(100, 130), range(200, 205)], 20),
        ([range(1000, 1100), *[range(5)] * 7], 20),
        ([range(1500)], 1000),
        ([range(0, 3000, 2), range(1, 3000, 2)], 1500),
        ([range(9)] * 256, 20),
        ([range(0)], 20),
        ([range(10_000, 13_000), *[range(100)] * 7], 1000),
        ([range(10_000, 13_000), range(12_000, 12_500), *[range(100)] * 6], 1000),
    ],
)
def test_the_newest_messages_are_listed(
    orderlane: CommandLine, monkeypatch: pytest.MonkeyPatch, queues: list[range], limit: int
) -> None:
    topic = Topic(*queues)
    monkeypatch.setattr(messages, "look", topic.look)
    listed = orderlane("messages", "ls", "orders", "--limit", limit, "-o", "json")
    newest = sorted(ms for times in queues for ms in times)[-limit:]
    assert [row["store_ms"] for row in listed.json] == newest
    assert len(topic.asked) <= 40
    older = sum(map(len, queues)) > limit
    said = f"the newest {limit:,} messages shown, there are older ones: raise --limit or use"
    assert listed.err.startswith(said) if older else listed.err == ""


def test_options_that_are_no_part_of_a_search_by_key_are_not_ignored(
    orderlane: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []

    def look(_http: str, _path: str, **given: Any) -> dict[str, Any]:
        asked.append(given)
        return {"messages": [], "unanswered": {}, "complete": True}

    monkeypatch.setattr(messages, "look", look)
    search = ("messages", "ls", "orders", "--key", "k")
    orderlane(*search, "--queue", "broker-a_0", "--grep", "x", "--from-offset", 3)
    assert {"queue": "broker-a_0", "contains": "x", "offset": 3}.items() <= asked[0].items()


@pytest.mark.parametrize("ms", [2**63 - 1, -(2**63), 253_402_300_800_000, -62_135_596_800_001])
def test_a_time_that_no_calendar_has_is_shown_as_its_number(
    orderlane: CommandLine, monkeypatch: pytest.MonkeyPatch, ms: int
) -> None:
    """Producers write any number as the time of a message, and proxies pass it on."""
    monkeypatch.setattr(messages, "look", lambda *_, **__: found)
    found = {"messages": [_row(ms, "broker-a_0", 7)], "unanswered": {}, "complete": True}
    ended = orderlane("messages", "ls", "orders", "--key", "k")
    assert (ended.code, f"{ms} ms since 1970" in ended.out) == (0, True)
    assert time_text(0, between=" ") == "1970-01-01 00:00:00+00:00"


@pytest.mark.parametrize(
    ("limit", "found", "complete", "said"),
    [
        (20, 20, True, ""),
        (20, 20, False, "the newest 20 messages shown, there may be older ones: raise --limit\n"),
        (20, 40, True, "the newest 20 messages shown, there may be older ones: raise --limit\n"),
        (
            *(20, 5, False),
            "the newest 5 messages shown, there may be older ones: search with --grep and"
            " --from-time\n",
        ),
        (
            *(1_000, 128, False),
            "the newest 128 messages shown, there may be older ones: search with --grep and"
            " --from-time\n",
        ),
    ],
)
def test_a_search_by_key_says_that_it_left_out_older_messages(
    orderlane: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    limit: int,
    found: int,
    complete: bool,
    said: str,
) -> None:
    rows = [_row(ms, "broker-a_0", ms) for ms in range(found)]
    answer = {"messages": rows, "unanswered": {}, "complete": complete}
    monkeypatch.setattr(messages, "look", lambda *_, **__: answer)
    ended = orderlane("messages", "ls", "orders", "--key", "k", "--limit", limit, "-o", "json")
    assert (len(ended.json), ended.err) == (min(limit, found), said)


@pytest.mark.parametrize(("limit", "more"), [(2, True), (5, False)])
def test_lists_that_end_at_their_limit_say_so(
    orderlane: CommandLine, monkeypatch: pytest.MonkeyPatch, limit: int, more: bool
) -> None:
    records = [dict.fromkeys(("before", "after"), None) | {"at_ms": ms} for ms in range(3)]
    found = orjson.dumps({"records": records[:limit], "complete": not more})
    monkeypatch.setattr(audit, "ask_proxy", lambda *_, **__: found)
    monkeypatch.setattr(messages, "look", Topic(range(3)).look)
    for verb in (("messages", "ls", "orders", "--grep", "x"), ("audit", "ls")):
        ended = orderlane(*verb, "--limit", limit, "-o", "json")
        assert (len(ended.json), "raise --limit" in ended.err) == (min(limit, 3), more)


@pytest.mark.parametrize(
    ("found", "limit", "said"),
    [
        (3, 10, "the newest 3 records shown, there may be older ones: orderlane messages export"),
        (10, 10, "the newest 10 records shown, there may be older ones: raise --limit\n"),
        (10_000, 10_000, "the newest 10,000 records shown, there may be older ones: orderlane"),
    ],
)
def test_an_audit_list_says_how_to_see_older_records(
    orderlane: CommandLine, monkeypatch: pytest.MonkeyPatch, found: int, limit: int, said: str
) -> None:
    records = [dict.fromkeys(("before", "after"), None) | {"at_ms": ms} for ms in range(found)]
    answer = orjson.dumps({"records": records, "position": "", "complete": False})
    monkeypatch.setattr(audit, "ask_proxy", lambda *_, **__: answer)
    ended = orderlane("audit", "ls", "--limit", limit, "-o", "json")
    assert ended.err.startswith(said)


def test_following_the_audit_says_that_records_are_left_out(
    orderlane: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pause(_s: float) -> None:
        if len(asked) > 1:
            raise KeyboardInterrupt

    def ask(_http: str, path: str, **_: object) -> bytes:
        asked.append(path)
        return orjson.dumps({"records": [], "position": "broker-a_0:7", "complete": False})

    asked: list[str] = []
    monkeypatch.setattr(audit, "ask_proxy", ask)
    monkeypatch.setattr("proxy.cli.audit.time.sleep", pause)
    ended = orderlane("audit", "tail", "-o", "json")
    # The first answer, of the newest ten, leaves older ones out as it should.
    assert ended.err == "some changes since the last look are not shown: orderlane audit ls\n"


@pytest.mark.parametrize(("stored", "said"), [(9, True), (2, False)])
def test_a_search_says_that_older_messages_were_not_searched(
    orderlane: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    stored: int,
    said: bool,
) -> None:
    monkeypatch.setattr(messages, "look", Topic(range(stored)).look)
    ended = orderlane("messages", "ls", "orders", "--grep", "x", "--limit", 5, "-o", "json")
    sentence = "only the newest 5,000 messages were searched: use --from-time\n"
    assert (sentence in ended.err) is said
    ended = orderlane("messages", "ls", "orders", "--from-time", "2026-01-01T00:00:00Z")
    assert sentence not in ended.err


@pytest.mark.parametrize("verb", ["messages", "dead-letters"])
def test_an_export_that_ends_at_its_count_says_so(
    orderlane: CommandLine, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    monkeypatch.setattr(exports, "lines_of_proxy", lambda *_, **__: iter([b"{}"] * 3))
    assert orderlane(verb, "export", "orders").err.endswith(" of orders exported\n")
    ended = orderlane(verb, "export", "orders", "--count", 3)
    assert ended.err.endswith(" of orders exported, there may be more: raise --count\n")
