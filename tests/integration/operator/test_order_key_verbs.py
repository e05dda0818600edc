"""``orderlane order-key`` against a gateway that keeps groups in a store."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from broker_core.names import Topic
from broker_core.remoting.key_hash import java_hash
from broker_core.remoting.message import OutgoingMessage
from proxy.cli.connect import ask_proxy, broker_client
from proxy.errors import OrderlaneError
from testkit.processes import Child, Children
from tests.support.command_line import CommandLine
from thin_client import AsyncConsumer, Message

SETTINGS = {
    "group_store": "nameserver",
    "ownership": {"leave_after_s": 600},
    "groups": [{"name": "fixed", "topics": [{"name": "orders", "order_key": "KEY"}]}],
}
WHY = ("--reason", "a test")
MESSAGES = 3_000


@dataclass(frozen=True)
class Running:
    """A gateway in a process of its own, with messages in its topic ``orders``."""

    http: str
    thrift: str
    nameserver: str

    @property
    def where(self) -> tuple[str, ...]:
        return ("--http", self.http, "--nameserver", self.nameserver)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("order-key")
    (folder / "settings.yaml").write_text(yaml.safe_dump(SETTINGS))
    names = ("thrift", "http", "nameserver", "broker")
    ports = [part for name in names for part in (f"--{name}-port", 0)]
    with Children(folder) as children:
        up: Child = children.start("up", "--data", "data", "--settings", "settings.yaml", *ports)
        ready = up.ready()
        yield Running(ready["http"], ready["thrift"], ready["nameserver"])


@pytest.fixture(scope="module")
def filled(running: Running) -> Running:
    """A gateway with 3,000 orders of 100 customers, ordered by customer; one has a third of
    them.
    """
    asyncio.run(_fill(running))
    return running


async def _fill(running: Running) -> None:
    async with broker_client(running.nameserver) as client:
        await client.create_topic(Topic("orders"), queues=4)
        queues = await client.writable_queues(Topic("orders"))
        by_queue: dict[int, list[OutgoingMessage]] = {}
        for number in range(MESSAGES):
            customer = "c0" if number % 3 == 0 else f"c{number % 100}"
            document = {
                "n": number,
                "customer": customer,
                "country": "DE" if number % 2 else "FR",
                "item": {"id": number % 50 if number % 5 else str(number % 50)},
            }
            body = orjson.dumps(document)
            place = abs(java_hash(customer)) % len(queues)
            by_queue.setdefault(place, []).append(
                OutgoingMessage(Topic("orders"), body, key=customer)
            )
        for place, messages in by_queue.items():
            for start in range(0, len(messages), 500):
                await client.send_batch(queues[place], messages[start : start + 500])


def asked_of(running: Running, path: str) -> bytes:
    """Return the admin API's answer, which takes a while on a slow machine."""
    return ask_proxy(running.http, path, timeout_s=60)


def by_candidate(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {row["candidate"]: row for row in rows}


def test_lint_finds_candidates_and_compares_them(orderlane: CommandLine, filled: Running) -> None:
    where = filled.where
    answer = orderlane("order-key", "lint", "fixed", *where, "-o", "json").json
    found = by_candidate(answer["candidates"])

    assert answer["messages"] == MESSAGES
    assert set(found) == {"QID", "KEY", "$.n", "$.customer", "$.country", "$.item.id"}
    customer = found["$.customer"]
    share = (MESSAGES / 3 + 20) / MESSAGES  # c0 has every third message, and some of the others
    assert customer["top1_share"] == pytest.approx(share, abs=0.01)
    assert customer["max_speedup"] == pytest.approx(1 / customer["top1_share"])
    assert (customer["scattered_keys"], customer["missing"]) == (0, 0)
    assert found["KEY"]["top1_share"] == customer["top1_share"]
    assert found["$.country"]["scattered_keys"] == 2
    assert found["$.country"]["chains"] == 8, "two countries in four queues"
    assert found["$.item.id"]["kinds"] == {"text": 600, "number": 2400}
    assert answer["advice"]["take"] in ("KEY", "$.customer")

    table = orderlane("order-key", "lint", "fixed", *where, "--candidate", "$.country")
    assert (table.code, table.out.splitlines()[1].split()[0]) == (0, "$.country")
    assert "keeps no order here; 2 of 2 keys are in several queues" in table.err


def test_a_sample_has_the_newest_messages_and_changes_nothing(
    orderlane: CommandLine, filled: Running
) -> None:
    answer = orderlane(
        "order-key", "lint", "fixed", *filled.where, "--sample", 300, "-o", "json"
    ).json

    assert 300 <= answer["messages"] <= 304, "rounded up in each of four queues"
    # What the proxy counts in the background, such as lag, may change at any time.
    group = orjson.loads(asked_of(filled, "/api/groups"))["fixed"]
    seen = {
        name: group[name] for name in ("taking_part", "queues", "clients_seen_s", "bulk_readers")
    }
    assert seen == {"taking_part": False, "queues": [], "clients_seen_s": None, "bulk_readers": 0}
    lag = orderlane("lag", "fixed", *filled.where, "-o", "json").json
    assert {row["committed"] for row in lag} == {None}


def test_the_admin_api_reports_on_a_bounded_sample(orderlane: CommandLine, filled: Running) -> None:
    answer = orjson.loads(asked_of(filled, "/api/groups/fixed/order-key?sample=5000&workers=16"))
    lint = orderlane(
        *("order-key", "lint", "fixed", *filled.where, "--sample", 5000, "--workers", 16),
        *("-o", "json"),
    ).json

    assert (answer["group"], answer["topic"], answer["order_key"]) == ("fixed", "orders", "KEY")
    assert {name: answer[name] for name in lint} == lint
    for query, status in (("sample=10001", "400"), ("topic=x", "404"), ("workers=0", "400")):
        with pytest.raises(OrderlaneError, match=f"answers {status}"):
            asked_of(filled, f"/api/groups/fixed/order-key?{query}")
    with pytest.raises(OrderlaneError, match="answers 404"):
        asked_of(filled, "/api/groups/unknown/order-key")


def test_simulate_ranks_candidates_and_names_the_best(
    orderlane: CommandLine, filled: Running
) -> None:
    candidates = [
        part for each in ("QID", "$.customer", "$.country") for part in ("--candidate", each)
    ]
    asked = ("order-key", "simulate", "fixed", *filled.where, *candidates, "--workers", 8)
    times = ("--service-ms", "p50=3,p99=80", "--round-trip-ms", 1)
    answer = orderlane(*asked, *times, "-o", "json").json
    again = orderlane(*asked, *times, "-o", "json").json
    found = by_candidate(answer["candidates"])

    assert answer == again
    assert [each["seconds"] for each in answer["candidates"]] == sorted(
        each["seconds"] for each in answer["candidates"]
    )
    assert answer["take"] == "$.customer"
    assert found["QID"]["busy"] <= 4, "a queue at a time"
    assert (found["$.customer"]["keeps_order"], found["$.country"]["keeps_order"]) == (True, False)
    for each in answer["candidates"]:
        assert each["busy"] <= 8
        assert each["seconds"] >= answer["ideal_s"]
        assert each["key_wait"]["p50_ms"] <= each["key_wait"]["p99_ms"]

    table = orderlane(*asked, "--service-ms", "5")
    assert (table.code, len(table.out.splitlines())) == (0, 4)
    assert "round trip measured from here: " in table.err
    assert "recommended: $.customer" in table.err
    assert "Unsuitable for the current messages, whatever their times: $.country" in table.err


@pytest.mark.slow
def test_the_admin_api_simulates_like_the_verb(orderlane: CommandLine, filled: Running) -> None:
    report = "/api/groups/fixed/order-key?sample=5000&workers=8"
    asked = ("order-key", "simulate", "fixed", *filled.where, "--sample", 5000, "--workers", 8)

    for query, words in (("service_ms=3&service_p99_ms=80", "p50=3,p99=80"), ("service_ms=5", "5")):
        answer = orjson.loads(asked_of(filled, f"{report}&{query}"))
        simulated = orderlane(
            *asked, "--service-ms", words, "--round-trip-ms", 1, "-o", "json"
        ).json
        assert answer["simulation"] == simulated
    assert orjson.loads(asked_of(filled, report))["simulation"] is None
    for wrong in (
        "service_ms=0",
        "service_ms=5e-324",
        "service_ms=nan",
        "service_ms=1e9",
        "service_p99_ms=-1",
        "candidate=id",
    ):
        with pytest.raises(OrderlaneError, match="answers 400"):
            asked_of(filled, f"{report}&{wrong}")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("lint", "unknown"), "there is no group 'unknown'"),
        (("lint", "fixed", "--topic", "x"), "group 'fixed' has no topic 'x'; its topics: orders"),
        (("lint", "fixed", "--candidate", "id"), "order key 'id' is neither QID nor KEY"),
        (("lint", "fixed", "--candidate", "QID", "--candidate", "QID"), "'QID' is named twice"),
        (("simulate", "fixed", "--service-ms", "fast"), "'fast' is neither a number of"),
        (("simulate", "fixed", "--service-ms", "observed"), "the handling times of 0 messages"),
        (("simulate", "fixed", "--service-ms", "p50=9,p99=3"), "expected 0.001 <= p50 <= p99"),
    ],
)
def test_invalid_arguments_are_one_sentence(
    orderlane: CommandLine, filled: Running, words: tuple[str, ...], sentence: str
) -> None:
    assert sentence in orderlane.problem("order-key", *words, *filled.where)


def test_a_group_from_a_settings_file_must_be_changed_there(
    orderlane: CommandLine, filled: Running
) -> None:
    ended = orderlane("order-key", "rollout", "fixed", "QID", *WHY, "--http", filled.http)
    said = ended.err.splitlines()[-1]

    assert ended.code == 2
    assert "comes from its proxies' settings file: set order_key: QID" in said
    assert "order_key_version: 1 of topic orders" in said


def test_a_rollout_repeats_the_warnings_of_lint(orderlane: CommandLine, filled: Running) -> None:
    asked = ("order-key", "rollout", "fixed", "$.country", *WHY, "--http", filled.http)
    said = orderlane(*asked).err

    assert "warning: $.country keeps no order in the newest messages" in said
    assert "warning: $.country: 2 of 2 keys are in several queues" in said
    assert "so at most 2.0 of 64 handlers can be busy on average" in said
    assert "warning" not in orderlane(*asked[:3], "none", *asked[4:]).err


async def _handle_some(running: Running, group: str) -> None:
    """Run a client until its queues are owned and ``MESSAGES`` messages are handled."""
    handled = 0
    consumer = AsyncConsumer(running.thrift, group=group, concurrency=4)

    async def handle(_message: Message) -> None:
        nonlocal handled
        handled += 1
        if handled >= MESSAGES:
            consumer.stop()

    await consumer.run(handle, handle_signals=False)


@pytest.mark.slow
def test_a_rollout_is_shown_until_all_queues_have_switched(
    orderlane: CommandLine, filled: Running, tmp_path: Path
) -> None:
    http = ("--http", filled.http)
    (tmp_path / "stored.yaml").write_text(
        yaml.safe_dump({"topics": [{"name": "orders", "order_key": "KEY"}]})
    )
    created = orderlane(
        "groups", "create", "stored", "--file", tmp_path / "stored.yaml", *WHY, *http
    )
    assert created.code == 0, created.err
    asyncio.run(_handle_some(filled, "stored"))

    got = orderlane("order-key", "get", "stored", *http, "-o", "json")
    assert {row["order_key"] for row in got.json} == {"KEY (missing: by_queue)"}
    assert "order key KEY (missing: by_queue) in the settings (from store)" in got.err
    tried = orderlane("order-key", "rollout", "stored", "$.customer", *WHY, *http, "--dry-run")
    assert "KEY (missing: by_queue) → $.customer (missing: by_queue)" in tried.err
    assert "a reason is required" in orderlane.problem(
        "order-key", "rollout", "stored", "$.customer", *http
    )

    for order_key in (
        "$.customer",
        "KEY",
    ):  # and back, which the proxy does not take for an older file
        done = orderlane(
            *("order-key", "rollout", "stored", order_key, *WHY, *http, "-o", "json"),
            *("--timeout", 60),
        )
        assert done.code == 0, done.err
        assert {row["order_key"] for row in done.json} == {f"{order_key} (missing: by_queue)"}
        assert {row["change"] for row in done.json} == {""}
        assert "all 4 owned queues use order key" in done.err
    again = orderlane("order-key", "rollout", "stored", "KEY", *WHY, *http)
    assert (again.code, "already has order key KEY (missing: by_queue)" in again.err) == (0, True)
