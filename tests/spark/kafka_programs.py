"""Programs of Spark's Kafka source: a run for each option, the same on each source."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testkit.certificates import Certificates, keystore

#: Messages in the partitions 0 and 1.
SIZES = (4, 2)
ALL = [(partition, offset) for partition, size in enumerate(SIZES) for offset in range(size)]
SCHEMA = "key binary, value binary, partition int"


@dataclass(frozen=True, slots=True)
class Site:
    """A topic of a source, which *format* names, with messages in its partitions: those after the
    first of each were stored at *later_ms* or later.

    Args:
        connecting: options of every program.
        names: yields names that no other program uses, for groups and folders.
        new_topic: creates a topic with two partitions.
    """

    spark: Any
    folder: Path
    format: str
    connecting: Mapping[str, object]
    names: Iterator[str]
    new_topic: Callable[[], str]
    topic: str
    later_ms: int

    def options(self, **more: object) -> dict[str, object]:
        """Return the options of a program that reads the topic, with *more*; None removes one."""
        own = {"kafka.group.id": next(self.names), "subscribe": self.topic}
        given = {**self.connecting, **own, **more}
        return {name: value for name, value in given.items() if value is not None}

    def frame(self, **more: object) -> Any:
        return self.spark.read.format(self.format).options(**self.options(**more)).load()

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
        rows = self.spark.readStream.format(self.format).options(**given).load()
        writer = rows.writeStream.foreachBatch(lambda some, _: sizes.append(some.count()))
        place = str(self.folder / f"checkpoint-{next(self.names)}")
        query = writer.option("checkpointLocation", place).trigger(availableNow=True).start()
        assert query.awaitTermination(240), "the query did not end"
        return sizes

    def written(self, **more: object) -> list[tuple[int, str, bytes]]:
        """Return partition, key and value of rows that are written to a new topic."""
        target = self.new_topic()
        rows = self.spark.createDataFrame([(b"k", b"a", 1), (b"k", b"b", 0)], SCHEMA).coalesce(1)
        given = {name: target if value is TARGET else value for name, value in more.items()}
        writer = rows.write.format(self.format).options(**{**self.connecting, **given})
        writer.mode("append").save()
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


def tls_options(files: Certificates) -> dict[str, str]:
    """Return the options of TLS, and write the keystore that they name."""
    given = {name: str(value(files)) for name, value in TLS.items()}
    place = Path(given["kafka.ssl.keystore.location"])
    place.write_bytes(keystore(files.client, files.client_key))
    return given
