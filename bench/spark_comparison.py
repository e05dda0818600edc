"""The plan of ``bench.spark_kafka``: operations, their arms, and one run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

OURS, KAFKA, MEMORY, CLIENT = "orderlane", "kafka", "memory", "python-client"
#: The arms of each operation.
OPERATIONS: Mapping[str, tuple[str, ...]] = {
    "read": (OURS, KAFKA, MEMORY),
    "stream": (OURS, KAFKA),
    "filtered": (OURS, KAFKA),
    "write": (OURS, KAFKA, CLIENT),
    "archive": (OURS, KAFKA, MEMORY),
}
#: The version of Spark's module for Kafka. It fits Spark 4.3 too, which has all classes and methods
#: that it uses.
SOURCE_VERSION = "4.2.0"


@dataclass(frozen=True, slots=True)
class Plan:
    """Options of the measurement: *rows* in *queues* queues are read, *written* ones written.

    *warm_ups*: rounds that do not count; *source_version*: of Spark's module for Kafka.
    """

    broker: str
    rows: int = 1_000_000
    written: int = 500_000
    body_bytes: int = 256
    queues: int = 2
    rounds: int = 5
    warm_ups: int = 2
    operations: tuple[str, ...] = tuple(OPERATIONS)
    source_version: str = SOURCE_VERSION
    seed: int = 7


@dataclass(frozen=True, slots=True)
class Run:
    """One run. *server_us*: processor time for each row of proxy and broker, or of Kafka's node;
    None for an arm without either.
    """

    operation: str
    arm: str
    round: int
    per_s: float
    server_us: float | None
