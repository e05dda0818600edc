"""Programs of Spark's Kafka source: every option, the columns, and the way back into a topic."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException

from testkit.certificates import Certificates, make_certificates
from testkit.spark_site import SparkGateway
from thin_client.spark.kafka_names import KAFKA_OPTIONS, KafkaOption
from thin_client.spark.option_table import READ, replacement

#: Messages in the partitions 0 and 1.
SIZES = (4, 2)
ALL = [(partition, offset) for partition, size in enumerate(SIZES) for offset in range(size)]
SCHEMA = "key binary, value binary, partition int"


@dataclass(frozen=True, slots=True)
class Site:
    """A topic whose messages after the first of each partition were stored at *later_ms*."""

    spark: Any
    gateway: SparkGateway
    folder: Path
    topic: str
    later_ms: int

    def options(self, **more: object) -> dict[str, object]:
        """Return the options of a program that reads the topic, with *more*; None removes one."""
        least = {
            "names": "kafka",
            "kafka.bootstrap.servers": self.gateway.servers,
            "kafka.group.id": self.gateway.a_group(),
            "subscribe": self.topic,
        }
        return {name: value for name, value in (least | more).items() if value is not None}

    def frame(self, **more: object) -> Any:
        return self.spark.read.format("orderlane").options(**self.options(**more)).load()

    def read(self, **more: object) -> list[tuple[int, int]]:
        """Return partition and offset of all rows of a batch."""
        return sorted(map(tuple, self.frame(**more).select("partition", "offset").collect()))

    def tasks(self, **more: object) -> int:
        rows = self.frame(**more)
        assert rows.count() == len(ALL)
        return int(rows.rdd.getNumPartitions())

    def batches(self, **more: object) -> list[int]:
        """Return the number of rows of each micro-batch of a whole stream."""
        sizes: list[int] = []
        given = self.options(startingOffsets="earliest", **more)
        rows = self.spark.readStream.format("orderlane").options(**given).load()
        writer = rows.writeStream.foreachBatch(lambda some, _: sizes.append(some.count()))
        place = str(self.folder / f"checkpoint-{self.gateway.a_group()}")
        query = writer.option("checkpointLocation", place).trigger(availableNow=True).start()
        assert query.awaitTermination(240), "the query did not end"
        return sizes

    def written(self, **more: object) -> list[tuple[int, str, bytes]]:
        """Return partition, key and value of rows that are written to a new topic."""
        target = self.gateway.a_topic(queues=2)
        rows = self.spark.createDataFrame([(b"k", b"a", 1), (b"k", b"b", 0)], SCHEMA).coalesce(1)
        least = {"names": "kafka", "kafka.bootstrap.servers": self.gateway.servers}
        given = {name: target if value is TARGET else value for name, value in more.items()}
        rows.write.format("orderlane").options(**least, **given).mode("append").save()
        found = self.frame(subscribe=target).select("partition", "key", "value").collect()
        return sorted((row.partition, bytes(row.key).decode(), bytes(row.value)) for row in found)

    def of_topic(self, by_partition: dict[str, int]) -> str:
        """Return the JSON of offsets or times."""
        return json.dumps({self.topic: by_partition})


TARGET = object()
WRITTEN = [(0, "k", b"b"), (1, "k", b"a")]
LATER = [(0, 1), (0, 2), (0, 3), (1, 1)]

#: What shows that an option has its effect, and the expected result.
RUNS: dict[str, tuple[Callable[[Site], object], object]] = {
    "kafka.bootstrap.servers": (lambda site: site.read(), ALL),
    "kafka.group.id": (lambda site: site.read(**{"kafka.group.id": "by-kafka-s-name"}), ALL),
    "subscribe": (lambda site: site.read(subscribe=f" {site.topic} "), ALL),
    "subscribePattern": (
        lambda site: site.read(subscribe=None, subscribePattern=f"{site.topic}|none"),
        ALL,
    ),
    "assign": (
        lambda site: site.read(subscribe=None, assign=json.dumps({site.topic: [1]})),
        ALL[SIZES[0] :],
    ),
    "startingOffsets": (
        lambda site: site.read(startingOffsets=site.of_topic({"0": 3, "1": -2})),
        ALL[3:],
    ),
    "startingTimestamp": (lambda site: site.read(startingTimestamp=site.later_ms), LATER),
    "startingOffsetsByTimestamp": (
        lambda site: site.read(
            startingOffsetsByTimestamp=site.of_topic({"0": site.later_ms, "1": 0})
        ),
        ALL[1:],
    ),
    "startingOffsetsByTimestampStrategy": (
        lambda site: site.read(
            startingTimestamp=site.later_ms + 10**9, startingOffsetsByTimestampStrategy="latest"
        ),
        [],
    ),
    "endingOffsets": (
        lambda site: site.read(endingOffsets=site.of_topic({"0": 1, "1": -1})),
        [(0, 0), (1, 0), (1, 1)],
    ),
    "endingTimestamp": (lambda site: site.read(endingTimestamp=site.later_ms), [(0, 0), (1, 0)]),
    "endingOffsetsByTimestamp": (
        lambda site: site.read(
            endingOffsetsByTimestamp=site.of_topic({"0": site.later_ms, "1": 0})
        ),
        [(0, 0)],
    ),
    "failOnDataLoss": (lambda site: site.read(failOnDataLoss="false"), ALL),
    "maxOffsetsPerTrigger": (lambda site: site.batches(maxOffsetsPerTrigger=4), [0, 4, 2]),
    "minOffsetsPerTrigger": (lambda site: site.batches(minOffsetsPerTrigger=4), [0, 6]),
    "maxTriggerDelay": (
        lambda site: site.batches(minOffsetsPerTrigger=4, maxTriggerDelay="1m"),
        [0, 6],
    ),
    "minPartitions": (lambda site: site.tasks(minPartitions=3), 3),
    "maxRecordsPerPartition": (lambda site: site.tasks(maxRecordsPerPartition=1), len(ALL)),
    "includeHeaders": (lambda site: site.frame(includeHeaders="true").columns[-1], "headers"),
    "kafkaConsumer.pollTimeoutMs": (
        lambda site: site.read(**{"kafkaConsumer.pollTimeoutMs": 20_000}),
        ALL,
    ),
    "kafka.request.timeout.ms": (
        lambda site: site.read(**{"kafka.request.timeout.ms": 20_000}),
        ALL,
    ),
    "kafka.max.partition.fetch.bytes": (
        lambda site: site.read(**{"kafka.max.partition.fetch.bytes": 1 << 20}),
        ALL,
    ),
    "topic": (lambda site: site.written(topic=TARGET), WRITTEN),
    "kafka.security.protocol": (
        lambda site: site.read(**{"kafka.security.protocol": "PLAINTEXT"}),
        ALL,
    ),
}
#: Options of TLS, which share a run.
TLS: dict[str, Callable[[Certificates], Any]] = {
    "kafka.security.protocol": lambda _: "SSL",
    "kafka.ssl.truststore.location": lambda files: files.ca,
    "kafka.ssl.truststore.type": lambda _: "PEM",
    "kafka.ssl.keystore.location": lambda files: files.ca.with_name("client-both.pem"),
    "kafka.ssl.keystore.type": lambda _: "PEM",
}


@pytest.fixture(scope="module")
def site(spark: Any, gateway: SparkGateway, tmp_path_factory: pytest.TempPathFactory) -> Site:
    topic = gateway.a_topic(queues=len(SIZES))
    for queue in range(len(SIZES)):
        gateway.send(topic, [b"first"], queue=queue, key="k")
    time.sleep(0.05)  # stored times are whole milliseconds
    later_ms = time.time_ns() // 1_000_000
    for queue, size in enumerate(SIZES):
        gateway.send(topic, [b"more"] * (size - 1), queue=queue, key="k")
    return Site(spark, gateway, tmp_path_factory.mktemp("kafka-names"), topic, later_ms)


def test_a_program_of_kafka_s_source_and_sink_runs(site: Site) -> None:
    """The columns, offsets by partition, and rows that are written where they were."""
    options = {"includeHeaders": "true", "startingOffsets": site.of_topic({"0": 2, "1": 1})}
    rows = site.frame(**options)
    assert [(name, kind) for name, kind in rows.dtypes if name != "value"] == [
        ("key", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]
    found = sorted(rows.collect(), key=lambda row: (row.partition, row.offset))
    assert [(row.partition, row.offset) for row in found] == [(0, 2), (0, 3), (1, 1)]
    assert {(bytes(row.key), bytes(row.value), row.timestampType) for row in found} == {
        (b"k", b"more", 1)
    }
    copy = site.gateway.a_topic(queues=2)
    sink = rows.drop("topic").write.format("orderlane").mode("append").option("topic", copy)
    sink.options(**{"names": "kafka", "kafka.bootstrap.servers": site.gateway.servers}).save()
    assert site.read(subscribe=copy) == [(0, 0), (0, 1), (1, 0)]


def test_every_accepted_option_has_a_run() -> None:
    accepted = {option.name for option in KAFKA_OPTIONS if option.is_accepted}
    assert RUNS.keys() | TLS.keys() == accepted


@pytest.mark.parametrize("name", RUNS)
def test_an_option_has_its_effect(name: str, site: Site) -> None:
    run, expected = RUNS[name]
    assert run(site) == expected


def test_options_of_tls_have_their_effect(site: Site, tmp_path: Path) -> None:
    """The proxy requires a client's certificate, the keystore."""
    files = make_certificates(tmp_path)
    both = TLS["kafka.ssl.keystore.location"](files)
    both.write_bytes(files.client.read_bytes() + files.client_key.read_bytes())
    _, ready = site.gateway.start_proxy(
        settings=f"listen: {{tls: {{certificate: {files.server}, key: {files.server_key},"
        f" client_ca: {files.ca}}}}}\n"
    )
    given = {name: str(value(files)) for name, value in TLS.items()}
    servers = {"kafka.bootstrap.servers": ready["thrift"]}
    assert site.read(**servers, **given) == ALL


@pytest.mark.parametrize(
    "option", [each for each in KAFKA_OPTIONS if not each.is_accepted], ids=lambda each: each.name
)
def test_an_option_without_counterpart_is_refused(option: KafkaOption, site: Site) -> None:
    run: Callable[..., object] = site.frame
    if READ not in option.where:
        run = partial(site.written, topic=TARGET)
    with pytest.raises(AnalysisException) as caught:
        run(**{option.name: "1"})
    sentence = f"is not an option of orderlane: {replacement(option.name)}"
    assert sentence in str(caught.value)
    assert "Traceback" not in str(caught.value)
