"""``spark.read.format("orderlane")``: whole topics, ranges of them, and refused options."""

from __future__ import annotations

import hashlib
import pickle
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException

from broker_core.names import Topic
from broker_core.remoting.message import OutgoingMessage
from testkit.certificates import make_certificates
from testkit.spark_site import SparkGateway
from thin_client.spark.data_source import BatchReader
from thin_client.spark.options import ReadOptions
from thin_client.spark.records import column_names


def options_of(gateway: SparkGateway, topic: str, **options: object) -> dict[str, Any]:
    given = {"servers": gateway.servers, "group": gateway.a_group(), "subscribe": topic, **options}
    return {name: value for name, value in given.items() if value is not None}


def frame(spark: Any, gateway: SparkGateway, topic: str, **options: object) -> Any:
    given = options_of(gateway, topic, **options)
    return spark.read.format("orderlane").options(**given).load()


def offsets(rows: Any) -> list[tuple[str, int]]:
    return sorted((row.qid, row.offset) for row in rows.select("qid", "offset").collect())


def test_a_topic_is_read_with_all_its_columns(spark: Any, gateway: SparkGateway) -> None:
    topic = gateway.a_topic(queues=1)
    before = datetime.now(UTC).replace(microsecond=0)
    (receipt,) = gateway.send(topic, [b"\x00body"], key="k", tag="t", properties={"p": "q"})
    gateway.send_messages(topic, [OutgoingMessage(Topic(topic), b"", born_ms=1_000)])
    full, bare = frame(spark, gateway, topic, includeHeaders="true").orderBy("offset").collect()
    assert full.asDict() == {
        "key": "k",
        "value": bytearray(b"\x00body"),
        "topic": topic,
        "qid": "broker-a_0",
        "offset": 0,
        "timestamp": full.timestamp,
        "bornTimestamp": full.bornTimestamp,
        "tag": "t",
        "properties": {"p": "q"},
        "messageId": receipt.message_id,
        "headers": full.headers,
    }
    assert before <= full.timestamp.astimezone(UTC) <= datetime.now(UTC)
    headers = [(header.key, bytes(header.value)) for header in full.headers]
    assert headers == [("p", b"q")]
    assert (bare.key, bytes(bare.value), bare.offset, bare.tag) == (None, b"", 1, None)
    assert (bare.properties, bare.headers) == ({}, None)
    assert bare.bornTimestamp.astimezone(UTC) == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)


def test_every_message_of_all_queues_is_read_once(spark: Any, gateway: SparkGateway) -> None:
    """Uses the requested number of tasks, with each message in exactly one."""
    topic = gateway.a_topic(queues=3)
    sent = gateway.send(topic, [b"%d" % number for number in range(3000)])
    rows = frame(spark, gateway, topic, minPartitions=5, batchBytes="64k")
    assert offsets(rows) == sorted((each.queue.qid, each.offset) for each in sent)
    assert rows.rdd.getNumPartitions() == 5


def test_a_view_reads_between_offsets(spark: Any, gateway: SparkGateway) -> None:
    topic = gateway.a_topic(queues=2)
    gateway.send(topic, [b"x"] * 20)
    spark.sql(
        f"""CREATE TEMPORARY VIEW part USING orderlane OPTIONS (
            servers '{gateway.servers}', group '{gateway.a_group()}', subscribe '{topic}',
            startingOffsets '{{"{topic}": {{"broker-a_0": 7, "broker-a_1": -2}}}}',
            endingOffsets '{{"{topic}": {{"broker-a_0": 9, "broker-a_1": 1}}}}')"""
    )
    found = spark.sql("SELECT qid, offset FROM part ORDER BY ALL").collect()
    assert [tuple(row) for row in found] == [
        ("broker-a_0", 7),
        ("broker-a_0", 8),
        ("broker-a_1", 0),
    ]


def test_times_bound_the_messages_that_are_read(spark: Any, gateway: SparkGateway) -> None:
    topic = gateway.a_topic(queues=1)
    gateway.send(topic, [b"a"])
    time.sleep(0.01)  # stored times are whole milliseconds
    (second,) = gateway.send(topic, [b"b"])
    time.sleep(0.01)
    gateway.send(topic, [b"c"])
    (row,) = [row for row in frame(spark, gateway, topic).collect() if row.offset == second.offset]
    at_ms = int(row.timestamp.timestamp() * 1000)
    rows = frame(spark, gateway, topic, startingTimestamp=at_ms, endingTimestamp=at_ms + 5)
    assert [bytes(row.value) for row in rows.collect()] == [b"b"]


def test_an_empty_topic_has_no_rows(spark: Any, gateway: SparkGateway) -> None:
    assert frame(spark, gateway, gateway.a_topic()).count() == 0


def test_a_pattern_reads_the_topics_of_the_group(spark: Any, gateway: SparkGateway) -> None:
    one, other = gateway.a_topic(), gateway.a_topic()
    for topic in (one, other):
        gateway.send(topic, [b"x"] * 3)
    group = gateway.a_group()
    assert frame(spark, gateway, f"{one},{other}", group=group).count() == 6
    pattern = {"subscribe": None, "subscribePattern": f"(?:{one}|nothing)", "group": group}
    rows = frame(spark, gateway, "", **pattern)
    assert {row.topic for row in rows.collect()} == {one}


def optimized_plan(rows: Any, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    rows.explain(extended=True)
    _, _, plan = capsys.readouterr().out.partition("== Optimized Logical Plan ==")
    return plan.partition("== Physical Plan ==")[0]


def test_pushed_filters_reduce_the_fetched_messages(
    spark: Any, gateway: SparkGateway, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rows equal those without push-down, and only matching messages are fetched."""
    topic = gateway.a_topic(queues=2)
    gateway.send(topic, [b"x"] * 20)
    condition = (
        f"topic = '{topic}' AND qid = 'broker-a_1' AND offset >= 3 AND offset < 7"
        " AND timestamp > '2020-01-01'"
    )
    plain = frame(spark, gateway, topic).where(condition)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        pushed = frame(spark, gateway, topic).where(condition)
        assert offsets(pushed) == offsets(plain) == [("broker-a_1", n) for n in range(3, 7)]
        plan = optimized_plan(pushed, capsys)
        unpushed = frame(spark, gateway, topic, filterPushdown="false").where(condition)
        assert offsets(unpushed) == offsets(plain)
        some = frame(spark, gateway, topic).where("offset IN (2, 5) AND NOT qid = 'broker-a_0'")
        assert offsets(some) == [("broker-a_1", 2), ("broker-a_1", 5)]
        nothing = frame(spark, gateway, topic, filterPushdown="true").where("offset > 100")
        assert nothing.count() == 0
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    # Spark does not check exact filters again; it rechecks times.
    assert "2020-01-01" in plan
    assert "broker-a_1" not in plan


def test_a_schema_chooses_columns(spark: Any, gateway: SparkGateway) -> None:
    topic = gateway.a_topic(queues=2)
    gateway.send(topic, [bytes(2000)] * 20, key="k")
    chosen = spark.read.format("orderlane").options(**options_of(gateway, topic))
    positions = chosen.schema("offset bigint, qid string").load()
    assert positions.columns == ["offset", "qid"]
    assert offsets(positions) == offsets(frame(spark, gateway, topic))
    keys = chosen.schema("key string, timestamp timestamp").load().distinct().collect()
    assert {row.key for row in keys} == {"k"}
    with pytest.raises(AnalysisException, match="names the column 'amount'"):
        chosen.schema("amount bigint").load().collect()


def test_a_repeated_task_reads_the_same_messages(spark: Any, gateway: SparkGateway) -> None:
    topic = gateway.a_topic(queues=1)
    gateway.send(topic, [b"x"] * 100)
    options = ReadOptions.parse(options_of(gateway, topic), streaming=False)
    reader = BatchReader(options, column_names(include_headers=False))
    (task,) = reader.partitions()
    copy = pickle.loads(pickle.dumps(reader))
    first, second = ([batch.to_pydict() for batch in each.read(task)] for each in (copy, reader))
    assert first == second
    assert sum(len(each["offset"]) for each in first) == 100


# ---- refusals -----------------------------------------------------------------------------------


def refusal(of: Any) -> str:
    """Return the error that Spark prints, without the name of its class."""
    with pytest.raises(AnalysisException) as caught:
        of()
    text = str(caught.value)
    assert "Traceback" not in text
    return text.partition("\n")[0].partition("Error: ")[2] or text


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"subscribePattern": "o.*"}, "subscribe and subscribePattern exclude each other"),
        (
            {"startingOffset": "earliest"},
            "'startingoffset' is not an option of orderlane: did you mean",
        ),
        ({"startingOffsets": "first"}, "startingOffsets is 'first': expected earliest, latest"),
        ({"group": None}, "group is missing"),
        ({"servers": "a:b:c"}, "servers: 'a:b:c' is not a proxy address"),
        (
            {"maxOffsetsPerTrigger": "many"},
            "maxOffsetsPerTrigger is 'many': expected a whole number",
        ),
    ],
)
def test_wrong_options_are_refused_before_anything_runs(
    spark: Any, gateway: SparkGateway, options: dict[str, object], sentence: str
) -> None:
    assert refusal(lambda: frame(spark, gateway, "t", **options)).startswith(sentence)


def test_options_of_streams_are_refused_when_a_batch_is_planned(
    spark: Any, gateway: SparkGateway
) -> None:
    rows = frame(spark, gateway, "t", maxOffsetsPerTrigger=10)
    assert refusal(rows.collect).startswith("maxOffsetsPerTrigger does not apply to read")


def test_a_schema_with_another_type_is_refused(spark: Any, gateway: SparkGateway) -> None:
    reader = spark.read.format("orderlane").schema("value string")
    rows = reader.options(**options_of(gateway, "t")).load()
    sentence = "schema() gives the column 'value' another type: expected BINARY"
    assert refusal(rows.collect).startswith(sentence)


def test_a_missing_topic_is_named(spark: Any, gateway: SparkGateway) -> None:
    with pytest.raises(AnalysisException, match=r"refused ranges: .*nothing-here"):
        frame(spark, gateway, "nothing-here").collect()


def test_tls_and_a_token_reach_the_tasks(spark: Any, gateway: SparkGateway, tmp_path: Path) -> None:
    """Tasks connect from other processes; without the token the query fails with one sentence."""
    topic, files = gateway.a_topic(), make_certificates(tmp_path)
    gateway.send(topic, [b"x"] * 4)
    known = hashlib.sha256(b"let-me-in").hexdigest()
    _, ready = gateway.start_proxy(
        settings=f"listen: {{tls: {{certificate: {files.server}, key: {files.server_key}}}}}\n"
        f"tokens: [{{name: spark, sha256: {known}}}]\n"
    )
    safe = {"servers": ready["thrift"], "tls": "true", "tlsCa": files.ca}
    assert frame(spark, gateway, topic, **safe, token="let-me-in").count() == 4
    with pytest.raises(AnalysisException, match=r"refused ranges: .*set the client's option token"):
        frame(spark, gateway, topic, **safe).count()
