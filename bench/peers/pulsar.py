"""Apache Pulsar with a Key_Shared subscription."""

from __future__ import annotations

from dataclasses import dataclass

from bench.frame.context import RunContext
from bench.frame.figures import Figures
from bench.frame.peer import Work
from bench.peers.java_programs import client_path, consume, version_in
from bench.peers.pulsar_standalone import Pulsar, pulsar

#: Messages that a consumer holds; its default.
_RECEIVER_QUEUE = 1000


@dataclass(frozen=True, slots=True)
class PulsarPeer:
    """The peer."""

    @property
    def about(self) -> str:
        """Return one sentence for the document."""
        return (
            f"Apache Pulsar {version_in('pulsar-server')}, standalone, and one consumer with a"
            " Key_Shared subscription, with one listener thread per handler, among which the"
            " client spreads the keys; its defaults otherwise"
        )

    def run(self, context: RunContext, work: Work) -> Figures:
        """Run the work. Raises PeerFailed."""
        class_path = client_path("pulsar")
        with pulsar(context.folder / "pulsar") as server:
            topic = server.create_topic(work.topic, partitions=work.queues)
            server.store(topic, work)
            return consume(
                class_path,
                "PulsarPeer",
                {**consumer_options(server, work.concurrency), "topic": topic, "group": work.topic},
                work=work,
                folder=context.folder,
                processes={"broker": server.pid},
                ordered=True,
            )


def consumer_options(server: Pulsar, concurrency: int) -> dict[str, object]:
    """Return the options of a consumer at *server* with *concurrency* handlers, except topic and
    subscription.
    """
    return {
        "servers": server.service,
        "concurrency": concurrency,
        "receiver-queue": _RECEIVER_QUEUE,
        "server-version": version_in("pulsar-server"),
    }
