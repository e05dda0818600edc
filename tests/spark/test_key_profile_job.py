"""Candidate order keys over a whole topic: the figures equal an independent count."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest

from proxy.errors import OrderlaneError
from proxy.tuning.key_profile import KeyProfile, MissingKey, Windows
from proxy.tuning.report import report_of
from testkit.spark_site import SparkGateway
from tests.spark.flights_topic import COLUMNS, counted_by_hand, send_flights
from tests.spark.spark_verbs import run_verb
from thin_client.spark.jobs.key_profile import Plan, key_profile, profile_rows
from thin_client.spark.options import OptionError

#: The first test also waits for the session.
pytestmark = pytest.mark.timeout(600)

_QUEUES = 4


def test_the_profile_of_flights_equals_counts_of_the_file(
    spark: Any, gateway: SparkGateway, tmp_path: Path, full: bool
) -> None:
    """With January; in the long form with the whole year."""
    which, topic, out = "all" if full else "january", "flights", tmp_path / "profile"
    gateway.create_topic(topic, _QUEUES)
    sent = send_flights(gateway, topic, which, queues=_QUEUES)
    command = ["key-profile", "--topic", topic, "--proxy", gateway.servers, "--out", str(out)]
    command += [f"--candidate=$.{name}" for name in COLUMNS]
    command += ["--candidate=KEY", "--window-messages=1000", "-o", "json"]

    report = run_verb(spark, *command)

    assert report["messages"] == sent
    assert report["advice"]["take"] == "$.tailnum"
    figures = {each["candidate"]: each for each in report["candidates"]}
    keys = spark.read.parquet(str(out / "keys")).collect()
    summary = {row["candidate"]: row for row in spark.read.parquet(str(out / "summary")).collect()}
    for name, counts in counted_by_hand(which).items():
        path = f"$.{name}"
        missing = counts.pop("NA", 0)
        rows = {row["text"]: row["messages"] for row in keys if row["candidate"] == path}
        assert rows == counts
        _compare(figures[path], counts, missing)
        _compare(summary[path].asDict(recursive=True), counts, missing)
    queues = {row["text"]: row["queues"] for row in keys if row["candidate"] == "$.tailnum"}
    assert set(queues.values()) == {1}
    assert {row["text"]: row["queues"] for row in keys if row["candidate"] == "KEY"} == queues
    assert "**Take `$.tailnum`.**" in (out / "report.md").read_text()
    assert orjson.loads((out / "report.json").read_bytes()) == report

    with pytest.raises(OrderlaneError, match="profile already holds a profile"):
        run_verb(spark, *command)


def _compare(figures: dict[str, Any], counts: Counter[str], missing: int) -> None:
    sizes = sorted(counts.values())
    messages, keys = sum(sizes), len(sizes)
    assert (figures["keys"], figures["keyed"], figures["missing"]) == (keys, messages, missing)
    ranked = sum(place * size for place, size in enumerate(sizes, start=1))
    assert figures["gini"] == pytest.approx(2 * ranked / (keys * messages) - (keys + 1) / keys)
    assert figures["top1_share"] == sizes[-1] / messages
    assert figures["top10_share"] == sum(sizes[-10:]) / messages
    assert figures["median"] == sizes[(keys - 1) // 2]
    if "hottest" in figures:
        hottest = sorted(counts, key=lambda key: (-counts[key], key))[:20]
        found = [(each["key"], each["messages"]) for each in figures["hottest"]]
        assert found == [(key, counts[key]) for key in hottest]


@pytest.mark.parametrize("missing", [MissingKey.BY_QUEUE, MissingKey.UNORDERED])
def test_spark_counts_like_one_process(spark: Any, tmp_path: Path, missing: MissingKey) -> None:
    """Covers odd keys: several types, invalid UTF-8, missing keys, and bodies that are not JSON."""
    bodies = [b'{"id": 1}', b'{"id": "1"}', b'{"id": null}', b"no json", b'{"id": [2]}', b"{}"]
    stored = [
        (
            *(f"k{n % 7}" if n % 5 else None, bodies[n * n % 6], f"broker-a_{n % 3}", n, n * 100),
            {"tenant": f"t{n % 4}"} if n % 3 else {},
        )
        for n in range(200)
    ]
    rows = spark.createDataFrame(
        stored,
        "key string, value binary, qid string, offset bigint, ms bigint,"
        " properties map<string, string>",
    ).selectExpr("key", "value", "qid", "offset", "timestamp_millis(ms) AS timestamp", "properties")
    candidates, windows = (
        ["KEY", "QID", "$.id", "PROPERTY:tenant"],
        Windows(time_ms=1_500, offsets=16),
    )
    profile = KeyProfile(candidates, windows=windows)
    for key, body, queue, offset, ms, properties in stored:
        message = _Message(key, body, properties)
        profile.add(message, queue=queue, offset=offset, stored_ms=ms)

    plan = Plan(candidates, windows=windows, missing=missing, hottest=5)
    report = profile_rows(rows.repartition(3), plan=plan, out=str(tmp_path / "out"), source="rows")

    assert report == report_of(
        profile.tallies(missing=missing, hottest=5),
        source="rows",
        windows=windows,
        missing=missing,
    )


class _Message:
    def __init__(self, key: str | None, body: bytes, properties: dict[str, str]) -> None:
        self.key, self.body, self.properties = key, body, properties


def test_an_invalid_candidate_is_refused_before_reading(spark: Any, tmp_path: Path) -> None:
    options = {"servers": "127.0.0.1:1", "group": "unused"}
    with pytest.raises(OptionError, match="order key 'tailnum' is neither QID nor KEY"):
        key_profile(spark, options, "flights", plan=Plan(["tailnum"]), out=str(tmp_path))
