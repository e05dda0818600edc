"""Apache Pulsar, standalone: broker, bookie and metadata in one process; and its senders."""

from __future__ import annotations

import struct
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from typing import NamedTuple

from bench.frame.peer import Work
from bench.peers.backlog import backlog_of
from bench.peers.java_programs import (
    PeerFailed,
    client_path,
    clock_ns,
    printed,
    server_path,
    start,
)
from testkit.processes import wait_until
from testkit.rocketmq import free_ports

_MAIN = "org.apache.pulsar.PulsarStandaloneStarter"
_READY_S, _STORE_S = 240.0, 300.0
_HEAD = struct.Struct(">iqii")

#: One copy of each entry; no transactions or topic policies, which the work does not use.
_SERVER = """clusterName=standalone
bindAddress=127.0.0.1
advertisedAddress=127.0.0.1
brokerServicePort={port}
webServicePort={web_port}
managedLedgerDefaultEnsembleSize=1
managedLedgerDefaultWriteQuorum=1
managedLedgerDefaultAckQuorum=1
brokerDeleteInactiveTopicsEnabled=false
loadBalancerEnabled=false
systemTopicEnabled=false
topicLevelPoliciesEnabled=false
transactionCoordinatorEnabled=false
diskUsageThreshold=0.99
diskUsageWarnThreshold=0.98
bookiePort={bookie_port}
"""


class Sent(NamedTuple):
    """A message for ``PulsarSender``: its partition, its due time by ``now_ns`` (0: at once), its
    key and body.
    """

    partition: int
    due_ns: int
    key: str
    body: bytes

    def to_bytes(self) -> bytes:
        """Return the message as the sender reads it."""
        name = self.key.encode()
        return _HEAD.pack(self.partition, self.due_ns, len(name), len(self.body)) + name + self.body


@dataclass(frozen=True, slots=True)
class Pulsar:
    """A running standalone server. *service*: its URL for clients; *admin*: that of its API."""

    folder: Path
    service: str
    admin: str
    pid: int

    def create_topic(self, name: str, *, partitions: int) -> str:
        """Create a partitioned topic; return its full name. Raises PeerFailed."""
        self._put(f"persistent/public/default/{name}/partitions", str(partitions))
        return f"persistent://public/default/{name}"

    def store(self, topic: str, work: Work) -> None:
        """Store the messages of *work*. Raises PeerFailed."""
        self.send(
            topic, backlog(work), messages=work.messages, partitions=work.queues, batching=True
        )

    def send(
        self,
        topic: str,
        messages_: Iterable[Sent],
        *,
        messages: int,
        partitions: int,
        batching: bool = False,
    ) -> None:
        """Send *messages_*, each at its due time, and wait until all are stored. Raises
        PeerFailed.
        """
        main = "PulsarSender"
        options = {
            "servers": self.service,
            "topic": topic,
            "partitions": partitions,
            "messages": messages,
            "batching": int(batching),
            "clock-ns": clock_ns(),
        }
        process = start(client_path("pulsar"), main, options, self.folder, stdin=subprocess.PIPE)
        try:
            assert process.stdin is not None
            wait_until(
                lambda: "ready" in printed(main, self.folder) or process.poll() is not None,
                within_s=_READY_S,
                what="Pulsar's producers are connected",
            )
            with process.stdin as pipe:
                for each in messages_:
                    pipe.write(each.to_bytes())
            code = process.wait(timeout=_STORE_S)
        except BrokenPipeError as error:
            raise PeerFailed(f"{main} ended early; {printed(main, self.folder, '.err')}") from error
        finally:
            process.kill()
            process.wait()
        if code != 0:
            raise PeerFailed(f"{main} ended with {code}; {printed(main, self.folder, '.err')}")

    @property
    def serves(self) -> bool:
        """Whether its default namespace is there, which it creates last."""
        try:
            with urllib.request.urlopen(f"{self.admin}/namespaces/public", timeout=5) as answer:
                return b"public/default" in answer.read()
        except OSError:
            return False

    def _put(self, path: str, body: str) -> None:
        request = urllib.request.Request(
            f"{self.admin}/{path}",
            data=body.encode(),
            headers={"Content-Type": "application/json"},
            method="PUT",
        )
        try:
            with urllib.request.urlopen(request, timeout=30):
                pass
        except urllib.error.HTTPError as error:
            raise PeerFailed(f"Pulsar refused PUT {path}: {error}") from error


@contextmanager
def pulsar(folder: Path) -> Iterator[Pulsar]:
    """Run a standalone server without data. Raises PeerFailed."""
    folder.mkdir(parents=True)
    bookie_port, port, web_port = free_ports()
    settings = folder / "standalone.conf"
    settings.write_text(settings_text(port=port, web_port=web_port, bookie_port=bookie_port))
    arguments: list[object] = ["--config", settings, "--no-functions-worker", "--no-stream-storage"]
    arguments += ["--metadata-dir", folder / "metadata", "--bookkeeper-dir", folder / "bookkeeper"]
    arguments += ["--bookkeeper-port", bookie_port]
    process = start(server_path("pulsar-server"), _MAIN, {}, folder, arguments=arguments)
    server = Pulsar(
        folder, f"pulsar://127.0.0.1:{port}", f"http://127.0.0.1:{web_port}/admin/v2", process.pid
    )
    try:

        def serves() -> bool:
            if process.poll() is not None:
                output = printed(_MAIN, folder, ".err") or printed(_MAIN, folder)
                raise PeerFailed(f"Pulsar ended; {output}")
            return server.serves

        wait_until(serves, within_s=_READY_S, what="Pulsar serves its default namespace")
        yield server
    finally:
        process.kill()
        process.wait()


def settings_text(*, port: int, web_port: int, bookie_port: int) -> str:
    """Return the server's settings file."""
    return _SERVER.format(port=port, web_port=web_port, bookie_port=bookie_port)


def backlog(work: Work) -> Iterator[Sent]:
    """Yield all messages, alternating between partitions, those of a partition in order."""
    stored = backlog_of(work)

    def of(partition: int) -> Iterator[Sent]:
        for key, body in stored.bodies(partition, work.queues):
            yield Sent(partition, 0, key, body)

    turns = zip_longest(*(of(partition) for partition in range(work.queues)))
    return (each for each in chain.from_iterable(turns) if each is not None)
