"""Jobs of ``orderlane spark`` at a server of Spark Connect.

Their clients are processes, because a process has either a classic session or one of Spark Connect.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pyarrow.dataset
import pytest

from broker_core.client import BrokerClient
from broker_core.names import Topic
from proxy.history.check import verify
from testkit.spark_site import SparkGateway
from tests.mutants.bugs import MUTANTS
from tests.spark.connect_server import ConnectServer, connect_server
from tests.spark.lakes import Lake, expected
from tests.support.history_parts import counted
from thin_client.spark.jobs.session import job_session
from thin_client.spark.options import OptionError

#: The first test also waits for the server.
pytestmark = pytest.mark.timeout(600)

_BUG = "the successor of a job is pushed before the job has finished"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    with connect_server(tmp_path_factory.mktemp("connect")) as running:
        yield running


def stored(gateway: SparkGateway, topic: str) -> dict[str, int]:
    """Return the number of messages in each queue of *topic*."""

    async def look(client: BrokerClient) -> dict[str, int]:
        queues = await client.queues(Topic(topic), fresh=True)
        return {queue.qid: await client.max_offset(queue) for queue in queues}

    return gateway.ask(look)


def archived(path: Path) -> list[tuple[str, int]]:
    """Return the queue and offset of archived messages."""
    files = sorted(map(str, path.glob("date=*/batch=*/*.parquet")))
    rows = pyarrow.dataset.dataset(files).to_table(["qid", "offset"])
    return sorted(zip(*(column.to_pylist() for column in rows.columns), strict=True))


def test_a_topic_is_archived_exactly_once_and_sent_again(
    server: ConnectServer, gateway: SparkGateway, tmp_path: Path
) -> None:
    topic, again, group = gateway.a_topic(), gateway.a_topic(queues=1), gateway.a_group()
    lake = tmp_path / "lake"
    reading = ("--group", group, "--proxy", gateway.servers)
    gateway.send(topic, [b"%d" % number for number in range(20)], key="k")
    first = server.run("archive", topic, lake, *reading, "--option", "maxOffsetsPerTrigger=8")
    assert first == {"archived": 20, "batches": 4}  # the first batch records the start
    # A crash between a batch and Spark's commit of it makes Spark run the batch again.
    for name in ("3", ".3.crc"):
        (lake / "_checkpoint/commits" / name).unlink(missing_ok=True)
    gateway.send(topic, [b"x", b"y"])
    server.run("archive", topic, lake, *reading)
    assert archived(lake) == [(f"broker-a_{n}", offset) for n in (0, 1) for offset in range(11)]
    assert gateway.committed(group, topic) == {"broker-a_0": 11, "broker-a_1": 11}

    sent = server.run("backfill", lake, again, "--proxy", gateway.servers)
    assert (sent, stored(gateway, again)) == ({"sent": 22}, {"broker-a_0": 22})


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_a_table_is_written_exactly_once_merged_and_sent_again(
    server: ConnectServer, gateway: SparkGateway, tmp_path: Path, format: str
) -> None:
    lake, topic, again = Lake(format, tmp_path), gateway.a_topic(), gateway.a_topic(queues=1)
    schemas = tmp_path / "schemas.json"
    schemas.write_bytes(orjson.dumps({topic: "n bigint"}))
    words = (topic, lake.path, "--group", gateway.a_group(), "--proxy", gateway.servers)
    more = (*lake.flags, "--schema", schemas)
    gateway.send(topic, [b'{"n": %d}' % number for number in range(20)], key="k")
    assert server.run("archive", *words, *more)["archived"] == 20
    # A crash between a batch and Spark's commit of it makes Spark run the batch again.
    for name in ("1", ".1.crc"):
        (lake.root / "_checkpoint/commits" / name).unlink()
    server.run("archive", *words, *more)
    assert sorted(row["n"] for row in lake.rows(None)) == list(range(20))
    found = server.run("compact", lake.path, *lake.flags, "--before", "9999-01-01")
    assert found["into"] <= found["merged"]
    assert lake.places(None) == expected(10, 10)
    sent = server.run("backfill", lake.path, again, "--proxy", gateway.servers, *lake.flags)
    assert (sent, stored(gateway, again)) == ({"sent": 20}, {"broker-a_0": 20})


def test_what_needs_a_session_of_its_own_is_refused_in_a_sentence(
    server: ConnectServer, tmp_path: Path
) -> None:
    said = server.refusal("compact", tmp_path / "lake")
    assert "Spark Connect cannot rename, replace or delete files: run this job in a" in said
    said = server.refusal("archive", "t", "lake", "--group", "g", "--format", "delta")
    assert "relative to a folder of the server of Spark Connect" in said


def test_keys_are_counted(server: ConnectServer, gateway: SparkGateway, tmp_path: Path) -> None:
    topic, out = gateway.a_topic(), tmp_path / "profile"
    gateway.send(topic, [b'{"a": %d}' % (number % 5) for number in range(20)], properties={"p": ""})
    found = server.run(
        "key-profile",
        *("--topic", topic, "--proxy", gateway.servers, "--out", out, "-o", "json"),
        *("--candidate=$.a", "--candidate=KEY"),
    )
    figures = {each["candidate"]: each for each in found["candidates"]}
    assert found["messages"] == 20
    assert (figures["$.a"]["keys"], figures["$.a"]["top1_share"]) == (5, 0.2)
    assert (figures["KEY"]["keys"], figures["KEY"]["missing"]) == (0, 20)
    (report,) = (out / "report.json").glob("part-*.txt")  # the server writes it
    assert orjson.loads(report.read_bytes()) == found


def test_a_verdict_on_histories_equals_that_of_one_process(
    server: ConnectServer, tmp_path: Path
) -> None:
    (mutant,) = (each for each in MUTANTS if each.what == _BUG)
    lines: defaultdict[str, list[bytes]] = defaultdict(list)
    for event in mutant.run():
        lines[event["node"]].append(orjson.dumps(event))
    for node, written in lines.items():
        (tmp_path / f"{node}.jsonl").write_bytes(b"\n".join(written) + b'\n{"e": "tor')
    (tmp_path / "proxy.log").write_text("not a history\n")
    expected: dict[str, Any] = counted(verify(sorted(tmp_path.glob("*.jsonl"))))
    report = server.run("audit", tmp_path, "--out", tmp_path / "out", "-o", "json", code=1)
    report["by_id"] = {name: each["count"] for name, each in report["by_id"].items()}
    assert report == expected


def test_an_unreachable_server_is_named_without_its_token() -> None:
    with (
        pytest.raises(OptionError, match=r"Connect at sc://127\.0\.0\.1:1/: ") as refused,
        job_session("test", master="sc://127.0.0.1:1/;token=secret", settings={}),
    ):
        pass
    assert "secret" not in str(refused.value)
