"""Commands print what the other brokers say while broker B is silent, and name it on stderr."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from broker_core.client import QueueRange
from broker_core.errors import NotRegistered, RequestTimeout
from broker_core.names import Group, QueueName, Topic
from proxy.cli import (
    all_owners,
    audit,
    dead_letters,
    doctor,
    group_doctor,
    groups,
    lag,
    messages,
    offsets,
    owners,
    retention,
    top,
    topics,
)
from proxy.cli.connect import NoAnswerInTime
from proxy.diagnosis.diagnose import Diagnosis
from proxy.errors import OrderlaneError
from tests.support.command_line import CommandLine

SILENT = {"broker-b": "no answer in time"}
NAMED = "broker-b did not answer: no answer in time"
OWNER_ROW = {"group": "billing", "topic": "orders", "epoch": 1, "since_ms": 1}
PROXY = {"proxy": "us", "http": "us", "state": "serving", "reason": "", "owned": 1}


class Client:
    """A client of two brokers, of which broker-b is silent, with a queue of orders at each."""

    async def topics(self) -> list[Topic]:
        return [Topic("absent"), Topic("orders")]

    async def queues(self, topic: Topic) -> list[QueueName]:
        if topic == "absent":
            raise NotRegistered("its broker broker-b is not registered")
        return [QueueName(topic, broker, 0) for broker in ("broker-a", "broker-b")]

    async def queue_ranges(
        self, queues: Iterable[QueueName], *, group: Group | None = None
    ) -> dict[QueueName, QueueRange]:
        wanted = list(queues)
        self._check(*{queue.broker for queue in wanted})
        return {queue: QueueRange(0, 9, 4) for queue in wanted}

    async def all_brokers(self) -> list[str]:
        return ["broker-a", "broker-b"]

    async def runtime(self, broker: str) -> dict[str, str]:
        self._check(broker)
        return {"retentionClockAheadMillis": "0"}

    async def elected_replicas(self, broker: str) -> None:
        self._check(broker)

    @staticmethod
    def _check(*brokers: str) -> None:
        if "broker-b" in brokers:
            raise RequestTimeout("no answer in time")


@asynccontextmanager
async def client(_nameserver: str) -> AsyncIterator[Client]:
    yield Client()


def answers(found: Any) -> Any:
    """Return a request whose answer is *found*."""
    return lambda *_, **__: found


def test_owners_offsets_and_audit_records(
    orderlane: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {**OWNER_ROW, "queue": "broker-a_0", "state": "owned", "owner": "us", "http": "us"}
    monkeypatch.setattr(owners, "look", answers({**PROXY, "queues": [row], "unanswered": SILENT}))
    found = {"group": "billing", "queues": [row], "unanswered": SILENT}
    monkeypatch.setattr(offsets, "look", answers(found))
    page = {"records": [], "position": "", "complete": False, "unanswered": SILENT}
    monkeypatch.setattr(audit, "ask_proxy", answers(orjson.dumps(page)))
    for verb in ("owners ls", "offsets show billing", "audit ls"):
        ended = orderlane(*verb.split(), "-o", "json")
        assert (ended.code, ended.err) == (0, f"{NAMED}\n"), verb


def test_a_reset_of_all_queues_is_refused_while_some_are_unknown(
    orderlane: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {"group": "billing", "queues": [], "unanswered": SILENT}
    monkeypatch.setattr(offsets, "look", answers(found))
    reset = ("offsets", "reset", "billing", "--reason", "x", "--skip", "--yes")
    assert "all or none are: broker-b: no answer in time" in orderlane.problem(*reset)


def test_dead_letters_of_which_some_are_unknown(
    orderlane: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = {"dead_letters": [], "positions": "", "waiting": None, "complete": True}
    answer = orjson.dumps({**page, "redrive": None, "unanswered": SILENT})
    monkeypatch.setattr(dead_letters, "ask_proxy", answers(answer))
    ended = orderlane("dead-letters", "ls", "billing")
    unknown = "an unknown number of dead letters of billing not redriven, 0 shown"
    assert (ended.code, ended.err.splitlines()) == (0, [unknown, NAMED])


@pytest.mark.parametrize("options", [[], ["--from-time", "2026-01-01T00:00:00Z"]])
def test_messages(
    orderlane: CommandLine, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    row = dict.fromkeys(("keys", "tag", "bytes", "preview"))
    page = {
        "messages": [{"message": "broker-a_0@0", "store_ms": 1, "born_ms": 1, **row}],
        "positions": "broker-a_0@1,broker-b_0@end",
        "complete": True,
        "older": False,
        "unanswered": SILENT,
    }
    monkeypatch.setattr(messages, "look", answers(page))
    ended = orderlane("messages", "ls", "orders", *options, "-o", "json")
    assert [each["message"] for each in ended.json] == ["broker-a_0@0"]
    assert (ended.code, ended.err) == (0, f"{NAMED}\n")


def test_keys_in_queues_of_unknown_owners_are_missing(
    orderlane: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues = [
        {**OWNER_ROW, "queue": "broker-a_0", "state": "owned", "owner": "us", "http": "us"},
        {**OWNER_ROW, "queue": "broker-b_0", "state": "unknown", "owner": None, "http": None},
    ]
    found = {**PROXY, "queues": queues, "unanswered": SILENT}
    keys = [{"key": "k", "topic": "orders", "queue": "broker-a_0"}]
    monkeypatch.setattr(all_owners, "one_of", lambda http: http)
    monkeypatch.setattr(
        all_owners, "look", lambda _, path, **__: found if path.endswith("owners") else keys
    )
    ended = orderlane("key", "parked", "billing", "--topic", "orders", "-o", "json")
    assert (ended.code, len(ended.json)) == (2, 1)
    said = "1 of 2 queues shown\norderlane: broker-b_0 not shown: their owners are unknown:"
    assert ended.err == f"{said} broker-b: no answer in time\n"


def test_topics_lag_and_retention(orderlane: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (topics, lag, retention):
        monkeypatch.setattr(module, "broker_client", client)
    ended = orderlane("topics", "ls", "-o", "json")
    assert [(each["topic"], each["queues"], each["messages"]) for each in ended.json] == [
        ("absent", None, None),
        ("orders", 2, None),
    ]
    absent = "the brokers of absent did not answer: its broker broker-b is not registered"
    assert ended.err.splitlines() == [absent, NAMED]
    monkeypatch.setattr(lag, "proxy_groups", answers({}))
    ended = orderlane("lag", "billing", "--topic", "orders", "-o", "json")
    lags = {each["queue"]: each["lag"] for each in ended.json}
    assert (lags, ended.err) == ({"broker-a_0": 5, "broker-b_0": None}, f"{NAMED}\n")
    ended = orderlane("retention", "show", "-o", "json")
    assert [each["clock"] for each in ended.json] == ["ok", "unknown"]
    assert ended.err == f"{NAMED}\n"


def test_groups_with_queues_whose_broker_confirms_no_lock(
    orderlane: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = {"topic": "orders", "end": 4, "committed": 4, "unfinished": 0, "ready": 0, "leased": 0}
    queues = [
        {**queue, "queue": f"broker-{name}_0", "sure": name == "a", "paused_whole": False}
        for name in "ab"
    ]
    figures = {"unowned": 0, "lag": 0, "unfinished": 0, "blocked": 0, "parked": 0, "at_ms": 1}
    group = {
        "topics": [{"name": "orders", "order_key": "KEY", "figures": figures}],
        "state": {"word": "unknown"},
        "queues": queues,
        "others": [],
        "waiting_pulls": 0,
        "bulk_readers": 0,
    }
    monkeypatch.setattr(groups, "proxy_groups", answers({"billing": group}))
    ended = orderlane("groups", "ls", "-o", "json")
    assert [(each["state"], each["unsure"]) for each in ended.json] == [("unknown", 1)]
    assert ended.err.endswith("are not new, as they do not answer: broker-b\n")


def test_doctor_checks_all_brokers_and_groups(
    orderlane: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def facts(name: str, **_: Any) -> str:
        if name == "faulty":
            raise ValueError("a bug")
        return name

    def proxy(http: str, path: str, **_: Any) -> bytes:
        if http == "b:1":
            raise OrderlaneError("no proxy answers at b:1")
        return b'{"problems": ["it is old"], "file": null}' if "config" in path else b"ready"

    monkeypatch.setattr(doctor, "broker_client", client)
    monkeypatch.setattr(doctor, "ask_proxy", proxy)
    monkeypatch.setattr(group_doctor, "proxy_groups", answers({"faulty": {}, "sound": {}}))
    monkeypatch.setattr(group_doctor, "group_facts", facts)
    monkeypatch.setattr(group_doctor, "diagnosis", lambda name: Diagnosis(name, [], "fine"))
    ended = orderlane("doctor", "--http", "b:1,a:1", "-o", "json")
    found = {each.get("group", each["check"]): each["finding"] for each in ended.json}
    assert found["brokers"] == "broker-b does not answer: no answer in time"
    assert found["proxy"] == "no proxy answers at b:1; a:1: ready"
    assert found["configuration"] == "no proxy answers at b:1; it is old"
    assert found["faulty"] == "the diagnosis failed: a bug"
    assert found["groups"] == "healthy groups: 1 of 1, 1 group not diagnosed"
    assert ended.code == 1


def test_top_finds_owners_that_a_proxy_knows_without_waiting_for_brokers(
    orderlane: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str]] = []
    other = {"owned": "elsewhere", "http": "b:1", "topic": "orders", "queue": "broker-a_0"}
    groups_at = {"a:1": [other], "b:1": []}

    def ask(http: str, path: str, **_: Any) -> bytes:
        asked.append((http, path))
        if path.endswith("owners"):
            raise NoAnswerInTime("not within 1 s")
        return orjson.dumps({"billing": {"queues": [], "others": groups_at[http]}})

    monkeypatch.setattr(top, "ask_proxy", ask)
    monkeypatch.setattr(top, "one_of", lambda http: http)
    monkeypatch.setattr(top, "figures_of", lambda groups: ())
    ended = orderlane("top", "--once", "--every", "0.1", "--http", "a:1")
    assert (ended.code, ended.err) == (0, "")
    assert {http for http, _ in asked} == {"a:1", "b:1"}
    assert "no answer" not in ended.out
