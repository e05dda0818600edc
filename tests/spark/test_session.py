"""The session and the gateway on which the other tests rely."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from testkit.spark_site import SparkGateway


def test_workers_run_the_interpreter_of_the_tests(spark: Any) -> None:
    def interpreters(_: Iterator[Any]) -> Iterator[str]:
        yield sys.executable

    found = spark.sparkContext.parallelize([1, 2], 2).mapPartitions(interpreters).collect()
    assert found == [sys.executable] * 2


def test_the_gateway_stores_what_is_sent(gateway: SparkGateway) -> None:
    topic = gateway.a_topic(queues=2)
    receipts = gateway.send(topic, [b"a", b"b", b"c"])
    assert sorted((each.queue.qid, each.offset) for each in receipts) == [
        ("broker-a_0", 0),
        ("broker-a_0", 1),
        ("broker-a_1", 0),
    ]
    assert gateway.committed(gateway.a_group(), topic) == {"broker-a_0": None, "broker-a_1": None}
