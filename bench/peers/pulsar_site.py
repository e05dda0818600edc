"""Apache Pulsar with a Key_Shared subscription, under an open load."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from bench.frame.context import RunContext
from bench.load.shape import Arrivals, Batches, Shape, key_name
from bench.peers.java_programs import client_path
from bench.peers.open_load import Consumer, OpenWork, start_consumer
from bench.peers.pulsar import PulsarPeer, consumer_options
from bench.peers.pulsar_standalone import Pulsar, Sent, pulsar
from broker_core.clock import now_ns

#: From the first message of a load that is written for the sender until it is due.
_AHEAD_NS = 500_000_000


@dataclass(frozen=True, slots=True)
class PulsarSite:
    """A standalone server with a topic."""

    server: Pulsar
    topic: str
    work: OpenWork

    def start_consumer(self, _number: int, options: Mapping[str, object], folder: Path) -> Consumer:
        """Start a consumer."""
        own = {
            **consumer_options(self.server, self.work.concurrency),
            "topic": self.topic,
            "group": self.work.topic,
        }
        return start_consumer(client_path("pulsar"), "PulsarPeer", {**own, **options}, folder)

    def send(self, *, rate: float, count: int) -> None:
        """Send *count* messages, one by one; return once all are stored."""
        self.server.send(
            self.topic,
            islice(load(self.work, rate), count),
            messages=count,
            partitions=self.work.queues,
        )

    def process_to_end(self, consumer: Consumer) -> subprocess.Popen[bytes]:
        """Return *consumer* itself, which only the broker serves."""
        return consumer.process


@dataclass(frozen=True, slots=True)
class OpenPulsar:
    """The peer."""

    peer: PulsarPeer = field(default_factory=PulsarPeer)

    @property
    def about(self) -> str:
        """Return one sentence for the document."""
        return f"{self.peer.about}; messages are sent without batching"

    @contextmanager
    def site(self, context: RunContext, work: OpenWork, *, consumers: int) -> Iterator[PulsarSite]:
        """Run a server for any number of *consumers*."""
        with pulsar(context.folder / "pulsar") as server:
            yield PulsarSite(server, server.create_topic(work.topic, partitions=work.queues), work)


def load(work: OpenWork, rate: float) -> Iterator[Sent]:
    """Yield the messages of a load without end, at random instants with the mean *rate*: the same
    keys and instants as those of ``bench.load.sender``.
    """
    shape = Shape(work.queues, work.keys, work.body_bytes, 0.0, work.seed)
    arrivals = Arrivals(shape, rate=rate, began_ns=now_ns() + _AHEAD_NS)
    bodies = Batches(shape, number=0, connections=1)
    while True:
        due_ns, key = arrivals.next()
        yield Sent(key % work.queues, due_ns, key_name(key), bodies.body(key, due_ns))
