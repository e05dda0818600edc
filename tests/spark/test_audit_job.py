"""Spark's verdict on histories equals that of ``orderlane verify-history``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from proxy.errors import OrderlaneError
from proxy.history.check import verify
from proxy.history.limits import Limits
from proxy.history.reader import HistoryError
from proxy.history.splitting import QUEUE
from tests.mutants.bugs import MUTANTS
from tests.mutants.scenarios import LIMITS, SCENARIOS
from tests.mutants.world import Events
from tests.spark.spark_verbs import run_verb
from tests.support.histories import Story
from tests.support.history_parts import counted
from thin_client.spark.jobs.audit import audit
from thin_client.spark.options import OptionError

#: The first test also waits for the session.
pytestmark = pytest.mark.timeout(600)

_BUG = "the successor of a job is pushed before the job has finished"


def clean() -> Events:
    """Return histories of a proxy that hands its queues over."""
    (scenario,) = (each for each in SCENARIOS if each.name == "handed over")
    return scenario.run()


def broken() -> Events:
    """Return histories that violate order, leases and verdicts, and X1, which spans queues."""
    (mutant,) = (each for each in MUTANTS if each.what == _BUG)
    return mutant.run()


def astray() -> Events:
    """Return histories with messages in two queues or in none, messages that were never sent, a
    broken order, and an action without audit record.
    """
    story = Story()
    for offset in range(4):
        story.sent(offset, placed=False)
    story.sent(9, placed=False).sent(1, msg="m0", queue="broker-a_1")
    story.add("send", msg="lost", topic="orders", key="k").add(
        "send_ok", msg="lost", topic="orders"
    )
    story.own(1).through(1, 0, 2, 3).through(7)
    story.add("own+", group="audit", topic="orders", queue="broker-a_1", epoch=1, owner="p")
    story.add("dead_letter_redrive", group="billing", topic="%DLQ%billing", state="started")
    return story.events


@pytest.mark.parametrize(
    ("history", "limits", "ids"),
    [
        (clean, LIMITS, set()),
        (broken, LIMITS, {"O1", "O2", "O3", "W3", "X1"}),
    ],
)
def test_the_verdict_equals_that_of_one_process(
    spark: Any,
    tmp_path: Path,
    history: Callable[[], Events],
    limits: Limits,
    ids: set[str],
) -> None:
    lines: defaultdict[str, list[bytes]] = defaultdict(list)
    for event in history():
        lines[event["node"]].append(orjson.dumps(event))
    for node, written in lines.items():
        (tmp_path / f"{node}.jsonl").write_bytes(b"\n".join(written) + b'\n{"e": "tor')
    expected = verify(sorted(tmp_path.glob("*.jsonl")), limits=limits)
    assert ids <= set(expected.violations)
    assert expected.clean is not bool(ids)

    # The files are small: this puts as many into a task as there would be of large files.
    spark.conf.set("spark.sql.files.maxPartitionBytes", "128k")
    try:
        report, verdicts = audit(spark, [str(tmp_path)], limits=limits)
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")

    assert counted(report) == counted(expected)
    assert expected.counts.torn == len(lines)
    assert len([part for part in verdicts if part.kind == QUEUE]) > 1


def test_the_verb_keeps_the_verdict_when_histories_are_split(spark: Any, tmp_path: Path) -> None:
    story = tmp_path / "story.jsonl"
    story.write_bytes(b"\n".join(map(orjson.dumps, astray())))
    out = tmp_path / "audit"
    expected = verify([story])

    report = run_verb(spark, "audit", str(story), "--out", str(out), "-o", "json", code=1)

    found = {name: each["count"] for name, each in report["by_id"].items()}
    assert {**report, "by_id": found} == counted(expected)
    assert {"O1", "L1", "L2", "D1", "R5"} <= set(found)
    assert orjson.loads((out / "report.json").read_bytes()) == report
    parts = {
        (row["of"], row["name"]): row for row in spark.read.parquet(str(out / "parts")).collect()
    }
    assert set(parts) == {
        *(("orders", "broker-a_0"), ("orders", "broker-a_1"), ("orders", "")),
        ("%DLQ%billing", ""),
    }
    assert parts["orders", "broker-a_0"]["violations"]["O1"] == found["O1"]
    with pytest.raises(OrderlaneError, match="audit already holds an audit: choose another folder"):
        run_verb(spark, "audit", str(story), "--out", str(out))


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (
            [b"no event", b'{"e": "stop", "t_ns": 9, "node": "n"}'],
            r"x y.jsonl, line 3: not an event",
        ),
        ([b'{"e": "own+", "t_ns": 9, "node": "n"}'], "event own. of node n at t_ns 9 has no field"),
        ([b'{"e": "send", "t_ns": 9, "msg": "n"}'], "event send of node None at t_ns 9 has no fi"),
        ([], "the histories contain no delivery"),
    ],
)
def test_invalid_histories_are_refused_with_the_error_of_one_process(
    spark: Any, tmp_path: Path, lines: list[bytes], sentence: str
) -> None:
    path = tmp_path / "x y.jsonl"
    sent = [orjson.dumps(event) for event in Story().sent(0).events]
    path.write_bytes(b"\n".join([*sent, *lines]) + b"\n")
    with pytest.raises(HistoryError, match=sentence) as alone:
        verify([path])
    with pytest.raises(HistoryError) as refused:
        audit(spark, [str(path)])
    assert str(refused.value) == str(alone.value)


def test_a_folder_without_histories_is_refused(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="holds no history"):
        audit(spark, [str(tmp_path)])
