"""``spark.readStream.format("orderlane")``: what a query reads, restarts and failures or not."""

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
    """A sink in the test's own process: what each batch brought, the last time that it came."""

    def __init__(self) -> None:
        self.batches: dict[int, Places] = {}

    def __call__(self, rows: Any, batch: int) -> None:
        found = rows.select("qid", "offset").collect()
        self.batches[batch] = sorted((row.qid, row.offset) for row in found)

    @property
    def places(self) -> Places:
        """Of all batches; what comes twice stands here twice."""
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
    """To the end of what is there."""
    query = start(spark, seen, checkpoint, now=True, **options)
    assert query.awaitTermination(90), "the query did not end"


def places(*receipts: list[Any]) -> Places:
    return sorted((each.queue.qid, each.offset) for some in receipts for each in some)


def test_a_stream_goes_on_with_a_proxy_that_comes_back_and_with_new_queues(
    spark: Any, gateway: SparkGateway, tmp_path: Path
) -> None:
    """Killed without a word, its port taken again by the next one, queues added in between."""
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


def test_a_query_goes_on_from_its_checkpoint_and_reads_a_lost_batch_again(
    spark: Any, gateway: SparkGateway, tmp_path: Path
) -> None:
    """The batch that it had planned, not what came since; another server serves as well."""
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
    options["servers"] = f"127.0.0.1:1,{gateway.servers}"  # nobody listens at the first
    run(spark, after, tmp_path / "checkpoint", **options)
    assert after.batches == {3: before.batches[3], 4: places(second)}
    assert gateway.committed(group, topic) == {"broker-a_0": 13, "broker-a_1": 12}


def test_progress_is_reported_after_the_last_batch_and_by_a_run_that_finds_nothing_new(
    spark: Any, gateway: SparkGateway, tmp_path: Path
) -> None:
    """Of those batches Spark itself tells a source nothing."""
    topic, group = gateway.a_topic(queues=1), gateway.a_group()
    options = {"servers": gateway.servers, "group": group, "subscribe": topic}
    gateway.send(topic, [b"x"] * 6)
    run(spark, Seen(), tmp_path, **options, maxOffsetsPerTrigger=4)
    assert gateway.committed(group, topic) == {"broker-a_0": 6}

    # As after a crash between the last batch and its report.
    client = BulkClient(Connecting(servers=(gateway.servers,), group=group))
    assert client.ack({topic: {"broker-a_0": 4}})
    client.close()
    assert gateway.committed(group, topic) == {"broker-a_0": 4}
    nothing = Seen()
    run(spark, nothing, tmp_path, **options)
    assert (nothing.places, gateway.committed(group, topic)) == ([], {"broker-a_0": 6})


def test_a_query_that_failed_in_its_first_batch_begins_where_it_first_began(
    spark: Any, gateway: SparkGateway, tmp_path: Path
) -> None:
    """The end of the topic was then elsewhere: what came meanwhile is read."""
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


def test_a_query_that_has_read_nothing_reports_nothing(
    spark: Any, gateway: SparkGateway, tmp_path: Path
) -> None:
    topic, group = gateway.a_topic(queues=1), gateway.a_group()
    gateway.send(topic, [b"x"] * 3)
    options = {"servers": gateway.servers, "group": group, "subscribe": topic}
    run(spark, Seen(), tmp_path, **options, startingOffsets="latest")
    assert gateway.committed(group, topic) == {"broker-a_0": None}


def test_a_refused_report_of_progress_harms_nothing(
    spark: Any, gateway: SparkGateway, tmp_path: Path
) -> None:
    topic, group = gateway.a_topic(queues=1), gateway.a_group()
    sent = gateway.send(topic, [b"x"] * 4)
    other = BulkClient(Connecting(servers=(gateway.servers,), group=group, consumer_id="other"))
    other.ranges([topic])  # which makes the group
    assert other.ack({topic: {"broker-a_0": 1}})
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
def test_what_a_stream_cannot_serve_ends_it_with_a_sentence(
    spark: Any, gateway: SparkGateway, tmp_path: Path, options: dict[str, str], sentence: str
) -> None:
    given = {"servers": gateway.servers, "group": gateway.a_group(), **options}
    given.setdefault("subscribe", gateway.a_topic())
    if "startingTimestamp" in given:
        given["startingOffsets"] = None
    query = start(spark, Seen(), tmp_path, **given)
    with pytest.raises(StreamingQueryException) as caught:
        query.awaitTermination(60)
    assert sentence in str(caught.value)
    assert "Traceback" not in str(caught.value)
