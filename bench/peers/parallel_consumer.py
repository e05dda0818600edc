"""Confluent's Parallel Consumer on Apache Kafka."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bench.frame.context import RunContext
from bench.frame.figures import Figures
from bench.frame.peer import Work
from bench.peers.java_programs import client_path, consume, version_in
from bench.peers.kafka_node import kafka_node


@dataclass(frozen=True, slots=True)
class ParallelConsumerPeer:
    """The peer. *order*: by key, by partition, or none."""

    order: Literal["KEY", "PARTITION", "UNORDERED"]

    @property
    def about(self) -> str:
        """Return one sentence for the document."""
        own, kafka = version_in("parallel-consumer"), version_in("kafka-server")
        return (
            f"Confluent Parallel Consumer {own}, ordering {self.order}, on one node of Apache Kafka"
            f" {kafka} (KRaft), one worker per handler, offsets committed periodically and"
            " asynchronously (its default and fastest mode)"
        )

    def run(self, context: RunContext, work: Work) -> Figures:
        """Run the work. Raises PeerFailed."""
        class_path = client_path("parallel-consumer")
        with kafka_node(context.folder / "kafka") as node:
            node.store(work)
            options = {
                "servers": node.address,
                "topic": work.topic,
                "group": f"{work.topic}-{self.order}",
                "order": self.order,
                "concurrency": work.concurrency,
                "handler-batch": 1,
                "max-poll-records": 500,
                "version": version_in("parallel-consumer"),  # its jar has no version
            }
            return consume(
                class_path,
                "ParallelConsumerPeer",
                options,
                work=work,
                folder=context.folder,
                processes={"broker": node.pid},
                ordered=self.order != "UNORDERED",
            )
