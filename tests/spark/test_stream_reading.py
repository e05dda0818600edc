"""``spark.readStream.format("orderlane")``: streams read each message across restarts and
failures.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from testkit.spark_site import SparkGateway
from thin_client.spark.bulk_client import BulkClient
from thin_client.spark.options import Connecting

Places = list[tuple[str, int]]


class Seen:
    """A sink in the test process that keeps the last output of each batch."""

    def __init__(self) -> None:
        self.batches: dict[int, Places] = {}

    def __call__(self, rows: Any, batch: int) -> None:
        found = rows.select("qid", "offset").collect()
        self.batches[batch] = sorted((row.qid, row.offset) for row in found)

    @property
    def places(self) -> Places:
        """Return the places of all batches, with duplicates."""
        return sorted(place for batch in self.batches.values() for place in batch)


def start(
    spark: Any,
    seen: Callable[[Any, int], None],
    checkpoint: Path,
    *,
    now: bool = False,
    **options: Any,
) -> Any:
    given = {"startingOffsets": "earliest", **options}
    given = {name: value for name, value in given.items() if value is not None}
    stream = spark.readStream.format("orderlane").options(**given).load()
    writer = stream.writeStream.foreachBatch(seen).option("checkpointLocation", str(checkpoint))
    return (writer.trigger(availableNow=True) if now else writer).start()


def run(spark: Any, seen: Callable[[Any, int], None], checkpoint: Path, **options: Any) -> None:
    """Run the query until all stored messages are read."""
    query = start(spark, seen, checkpoint, now=True, **options)
    assert query.awaitTermination(90), "the query did not end"


def places(*receipts: list[Any]) -> Places:
    return sorted((each.queue.qid, each.offset) for some in receipts for each in some)


def test_a_stream_survives_a_proxy_restart_and_reads_new_queues(
    spark: Any, gateway: SparkGateway, tmp_path: Path
) -> None:
    """The proxy is killed and its port reused by the next one; queues are added in between."""
    topic, group = gateway.a_topic(queues=1), gateway.a_group()
    proxy, ready = gateway.start_proxy()
    first = gateway.send(topic, [b"x"] * 10)
    seen = Seen()
    query = start(spark, seen, tmp_path, servers=ready["thrift"], group=group, subscribe=topic)
    try:
        query.processAllAvailable()
        assert seen.places == places(first)
        proxy.kill()
        gateway.create_topic(topic, queues=2)
        second = gateway.send(topic, [b"y"] * 10)
        assert {each.queue.qid for each in second} == {"broker-a_0", "broker-a_1"}
        gateway.start_proxy(thrift_port=int(ready["thrift"].rpartition(":")[2]))
        query.processAllAvailable()
        assert seen.places == places(first, second)
        third = gateway.send(topic, [b"z"] * 10)
        query.processAllAvailable()
        assert seen.places == places(first, second, third)
    finally:
        query.stop()
    assert gateway.committed(group, topic) == {
        qid: max(offset for of, offset in seen.places if of == qid) + 1
        for qid in ("broker-a_0", "broker-a_1")
    }


def test_a_query_continues_from_its_checkpoint_and_repeats_a_lost_batch(
    spark: Any, gateway: SparkGateway, tmp_path: Path
) -> None:
    """It repeats the planned batch without newer messages, also with another server address."""
    topic, group = gateway.a_topic(queues=2), gateway.a_group()
    options = {"servers": gateway.servers, "group": group, "subscribe": topic}
    first = gateway.send(topic, [b"x"] * 20)
    before, after = Seen(), Seen()
    run(spark, before, tmp_path / "checkpoint", **options, maxOffsetsPerTrigger=8)
    assert before.places == places(first)
    assert [len(batch) for batch in before.batches.values()] == [0, 8, 8, 4]

    (tmp_path / "checkpoint/commits/3").unlink()
    (tmp_path / "checkpoint/commits/.3.crc").unlink(missing_ok=True)
    second = gateway.send(topic, [b"y"] * 5)
    options["servers"] = f"127.0.0.1:1,{gateway.servers}"  # no proxy listens at the first address
    run(spark, after, tmp_path / "checkpoint", **options)
    assert after.batches == {3: before.batches[3], 4: places(second)}
    assert gateway.committed(group, topic) == {"broker-a_0": 13, "broker-a_1": 12}


def test_progress_is_reported_after_the_last_batch_and_by_a_run_without_new_messages(
    spark: Any, gateway: SparkGateway, tmp_path: Path
) -> None:
    """Spark does not notify a source of these batches itself."""
    topic, group = gateway.a_topic(queues=1), gateway.a_group()
    options = {"servers": gateway.servers, "group": group, "subscribe": topic}
    gateway.send(topic, [b"x"] * 6)
    run(spark, Seen(), tmp_path, **options, maxOffsetsPerTrigger=4)
    assert gateway.committed(group, topic) == {"broker-a_0": 6}

    # As after a crash between the last batch and its report.
    client = BulkClient(Connecting(servers=(gateway.servers,), group=group))
    assert client.report({topic: {"broker-a_0": 4}}) is None
    client.close()
    assert gateway.committed(group, topic) == {"broker-a_0": 4}
    nothing = Seen()
    run(spark, nothing, tmp_path, **options)
    assert (nothing.places, gateway.committed(group, topic)) == ([], {"broker-a_0": 6})


def test_a_query_that_failed_in_its_first_batch_keeps_its_start(
    spark: Any, gateway: SparkGateway, tmp_path: Path
) -> None:
    """The topic grew since then: the messages sent meanwhile are read."""
    topic = gateway.a_topic(queues=2)
    options = {"servers": gateway.servers, "group": gateway.a_group(), "subscribe": topic}
    options["startingOffsets"] = "latest"

    def fail(rows: Any, batch: int) -> None:
        raise RuntimeError("a mistake in the application")

    gateway.send(topic, [b"before"] * 5)
    with pytest.raises(StreamingQueryException, match="a mistake in the application"):
        run(spark, fail, tmp_path, **options)
    meanwhile = gateway.send(topic, [b"meanwhile"] * 5)
    seen = Seen()
    run(spark, seen, tmp_path, **options)
    assert seen.places == places(meanwhile)


def test_a_query_without_messages_reports_no_progress(
    spark: Any, gateway: SparkGateway, tmp_path: Path
) -> None:
    topic, group = gateway.a_topic(queues=1), gateway.a_group()
    gateway.send(topic, [b"x"] * 3)
    options = {"servers": gateway.servers, "group": group, "subscribe": topic}
    run(spark, Seen(), tmp_path, **options, startingOffsets="latest")
    assert gateway.committed(group, topic) == {"broker-a_0": None}


def test_a_refused_progress_report_does_not_end_the_query(
    spark: Any, gateway: SparkGateway, tmp_path: Path
) -> None:
    topic, group = gateway.a_topic(queues=1), gateway.a_group()
    sent = gateway.send(topic, [b"x"] * 4)
    other = BulkClient(Connecting(servers=(gateway.servers,), group=group, consumer_id="other"))
    assert other.report({topic: {"broker-a_0": 1}}) is None
    other.close()
    seen = Seen()
    options = {"servers": gateway.servers, "group": group, "subscribe": topic}
    run(spark, seen, tmp_path, **options, maxOffsetsPerTrigger=2)
    assert seen.places == places(sent)
    assert gateway.committed(group, topic) == {"broker-a_0": 1}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"endingOffsets": "latest"}, "OptionError: endingOffsets does not apply to readStream"),
        ({"startingTimestamp": "4102444800000"}, "OptionError: startingTimestamp is 4102444800000"),
        ({"subscribe": "nothing-here"}, "refused ranges: "),
    ],
)
def test_an_invalid_stream_ends_with_a_sentence(
    spark: Any, gateway: SparkGateway, tmp_path: Path, options: dict[str, str], sentence: str
) -> None:
    given: dict[str, Any] = {"servers": gateway.servers, "group": gateway.a_group(), **options}
    given.setdefault("subscribe", gateway.a_topic())
    if "startingTimestamp" in given:
        given["startingOffsets"] = None
    query = start(spark, Seen(), tmp_path, **given)
    with pytest.raises(StreamingQueryException) as caught:
        query.awaitTermination(60)
    assert sentence in str(caught.value)
    assert "Traceback" not in str(caught.value)
