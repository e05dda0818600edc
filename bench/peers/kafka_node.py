"""One node of Apache Kafka in KRaft mode, controller and broker in one process, and its backlog."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path

from bench.frame.peer import Work
from bench.peers.backlog import backlog_of
from bench.peers.java_programs import PeerFailed, client_path, printed, server_path, start
from testkit.processes import wait_until
from testkit.rocketmq import free_ports, is_free

_CLUSTER_ID = "b3JkZXJsYW5lLWJlbmNoLg"  # any 16 bytes in base64
_READY_S, _STORE_S = 60.0, 300.0
_HEAD = struct.Struct(">iii")

_SERVER = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={folder}/logs
offsets.topic.replication.factor=1
offsets.topic.num.partitions=8
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
"""
#: The same for clients with TLS, which have to present a certificate.
_TLS = """listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller},SSL://127.0.0.1:{tls}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},SSL://127.0.0.1:{tls}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL
ssl.client.auth=required
ssl.keystore.type=PEM
ssl.keystore.location={keystore}
ssl.truststore.type=PEM
ssl.truststore.location={ca}
"""


@dataclass(frozen=True, slots=True)
class KafkaNode:
    """A running node. *tls_address* is for clients with TLS, if it serves any."""

    folder: Path
    address: str
    pid: int
    tls_address: str = ""

    def store(self, work: Work) -> None:
        """Create the topic of *work* and store its messages. Raises PeerFailed."""
        options = {
            "servers": self.address,
            "topic": work.topic,
            "partitions": work.queues,
            "messages": work.messages,
        }
        main = "KafkaPreload"
        path = client_path("parallel-consumer")
        process = start(path, main, options, self.folder, stdin=subprocess.PIPE)
        try:
            assert process.stdin is not None
            with process.stdin as pipe:
                for partition, key, body in _messages(work):
                    name = key.encode()
                    pipe.write(_HEAD.pack(partition, len(name), len(body)) + name + body)
            code = process.wait(timeout=_STORE_S)
        except BrokenPipeError as error:
            raise PeerFailed(f"{main} ended early; {printed(main, self.folder, '.err')}") from error
        finally:
            process.kill()
            process.wait()
        if code != 0:
            raise PeerFailed(f"{main} ended with {code}; {printed(main, self.folder, '.err')}")


@dataclass(frozen=True, slots=True)
class NodeTls:
    """PEM files of a node: *keystore* has its certificate and its key in PKCS #8, *authority* the
    certificate of the authority that signs those of clients.
    """

    keystore: Path
    authority: Path


@contextmanager
def kafka_node(folder: Path, tls: NodeTls | None = None) -> Iterator[KafkaNode]:
    """Run a node without data; with *tls* it serves clients with TLS too. Raises PeerFailed."""
    folder.mkdir(parents=True)
    tls_port, port, controller = free_ports()
    settings = folder / "server.properties"
    ports = {"port": port, "controller": controller, "tls": tls_port}
    text = _SERVER.format(folder=folder, **ports)
    if tls is not None:  # the last of several lines for a setting counts
        text += _TLS.format(keystore=tls.keystore, ca=tls.authority, **ports)
    settings.write_text(text)
    path = server_path("kafka-server")
    _format(path, settings, folder)
    process = start(path, "kafka.Kafka", {}, folder, arguments=[settings])
    try:

        def serves() -> bool:
            if process.poll() is not None:
                raise PeerFailed(f"Kafka ended; {printed('kafka.Kafka', folder)}")
            return not is_free(port)

        wait_until(serves, within_s=_READY_S, what="Kafka listens")
        yield KafkaNode(folder, f"127.0.0.1:{port}", process.pid, f"127.0.0.1:{tls_port}")
    finally:
        process.kill()
        process.wait()


def _format(path: str, settings: Path, folder: Path) -> None:
    words = ["format", "--cluster-id", _CLUSTER_ID, "--config", settings]
    main = "kafka.tools.StorageTool"
    process = start(path, main, {}, folder, arguments=words)
    try:
        code = process.wait(timeout=_READY_S)
    finally:
        process.kill()
        process.wait()
    if code != 0:
        raise PeerFailed(f"{main} ended with {code}; {printed(main, folder, '.err')}")


def _messages(work: Work) -> Iterator[tuple[int, str, bytes]]:
    """Yield all messages, alternating between partitions, those of a partition in order."""
    backlog = backlog_of(work)

    def of(partition: int) -> Iterator[tuple[int, str, bytes]]:
        for key, body in backlog.bodies(partition, work.queues):
            yield partition, key, body

    turns = zip_longest(*(of(partition) for partition in range(work.queues)))
    return (each for each in chain.from_iterable(turns) if each is not None)
