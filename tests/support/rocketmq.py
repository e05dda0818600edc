"""Apache RocketMQ's own nameserver and broker as processes on the loopback.

With small heaps and files for tests, or sized for work: what a benchmark compares with.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from broker_core.remoting.codes import RequestCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.connection import NEED_DATA, RemotingConnection, Role
from broker_core.remoting.route_bodies import MASTER_ID, ClusterTable
from tests.support.java import java, rocketmq_jars
from tests.support.processes import wait_until

#: The newest of each line that can be had.
VERSIONS = ("5.3.3", "4.9.7")
_READY_S = 60
_UPDATE_BROKER_CONFIG = 25  # a change of the permission is told to the nameservers at once

#: What 4.9 insists on finding in its home; 5.x brings its own.
_LOGBACK = """<configuration><appender name="file" class="ch.qos.logback.core.FileAppender">
<file>{file}</file><encoder><pattern>%d %p %c - %m%n</pattern></encoder></appender>
<root level="INFO"><appender-ref ref="file"/></root></configuration>
"""

_BROKER = """brokerClusterName=DefaultCluster
brokerName=broker-a
brokerId=0
brokerIP1=127.0.0.1
namesrvAddr={nameserver}
listenPort={port}
storePathRootDir={store}
storePathCommitLog={store}/commitlog
brokerRole=ASYNC_MASTER
flushDiskType=SYNC_FLUSH
timerWheelEnable=true
transientStorePoolEnable=false
diskMaxUsedSpaceRatio=99
{more}"""

#: Small files and few threads, for tests.
SMALL = {
    "mappedFileSizeCommitLog": "33554432",
    "mappedFileSizeConsumeQueue": "600000",
    "maxIndexNum": "20000",
    "maxHashSlotNum": "5000",
    "sendMessageThreadPoolNums": "4",
    "pullMessageThreadPoolNums": "4",
}
#: For work: files and threads are the broker's own defaults, a pull of a consumer that asks for
#: many messages gets them, where the default is 32 and 256 KiB, and what waited long is taken.
SIZED_FOR_WORK = {
    "waitTimeMillsInSendQueue": "10000",
    "maxTransferCountOnMessageInMemory": "1024",
    "maxTransferBytesOnMessageInMemory": "4194304",
}


@dataclass(slots=True)
class OfficialCluster:
    """One nameserver and one broker ``broker-a``; the broker can be killed and started again."""

    folder: Path
    version: str
    settings: dict[str, str]
    lock_expiry_s: float
    heap: str | None = None  # of the broker; None: a small one, in a machine that starts soon
    nameserver: str = ""
    broker_address: str = ""
    broker_name: str = "broker-a"
    _port: int = 0
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start_nameserver(self) -> None:
        """Start it on a free port."""
        port = free_ports()[1]
        self.nameserver = f"127.0.0.1:{port}"
        self._write("namesrv.properties", f"listenPort={port}\n")
        self._start("namesrv", "org.apache.rocketmq.namesrv.NamesrvStartup", heap=None)
        self._wait_for_port("namesrv", port)

    def start_broker(self) -> None:
        """Start it on the data and the port of before; returns once the nameserver knows it.

        5.x registers by itself 10 s after its start only.
        """
        self._port = self._port or free_ports()[1]
        self.broker_address = f"127.0.0.1:{self._port}"
        sizes = SMALL if self.heap is None else SIZED_FOR_WORK
        more = "".join(f"{name}={value}\n" for name, value in {**sizes, **self.settings}.items())
        text = _BROKER.format(
            nameserver=self.nameserver, port=self._port, store=self.folder / "store", more=more
        )
        self._write("broker.properties", text)
        out = self.folder / "broker.out"
        before = out.stat().st_size if out.exists() else 0
        self._start("broker", "org.apache.rocketmq.broker.BrokerStartup", heap=self.heap)
        self._wait_until(
            lambda: b"boot success" in out.read_bytes()[before:], "broker", "boot success"
        )
        self._wait_until(self._is_registered, "broker", "registered")

    def stop_broker(self, *, crash: bool = False) -> None:
        """SIGTERM, or ``kill -9``."""
        process = self._processes["broker"]
        if crash:
            process.kill()
        else:
            process.terminate()
        process.wait(timeout=60)

    def restart_broker(self, *, crash: bool = False) -> None:
        self.stop_broker(crash=crash)
        self.start_broker()

    def pause_broker(self) -> None:
        """SIGSTOP: it lives and does nothing."""
        self._processes["broker"].send_signal(signal.SIGSTOP)

    def resume_broker(self) -> None:
        """SIGCONT."""
        self._processes["broker"].send_signal(signal.SIGCONT)

    @property
    def broker_runs(self) -> bool:
        process = self._processes.get("broker")
        return process is not None and process.poll() is None

    @property
    def pids(self) -> dict[str, int]:
        """Processes by name: ``namesrv`` and ``broker``."""
        return {name: process.pid for name, process in self._processes.items()}

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()

    def log(self, name: str) -> str:
        """The end of what process *name* printed."""
        return (self.folder / f"{name}.out").read_text(errors="replace")[-3000:]

    def _start(self, name: str, main: str, *, heap: str | None) -> None:
        jars = rocketmq_jars(self.version)
        conf = self.folder / "conf"
        conf.mkdir(exist_ok=True)
        (conf / f"logback_{name}.xml").write_text(_LOGBACK.format(file=self.folder / f"{name}.log"))
        properties = self.folder / f"{name}.properties"
        command = java(
            *(f"{jars}/*", main, "-c", properties), heap=heap or "320m", quick_start=heap is None
        )
        command[1:1] = [
            f"-Duser.home={self.folder}",
            f"-XX:MaxDirectMemorySize={heap or '256m'}",
            "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99",
            "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.99",
            f"-Drocketmq.broker.rebalance.lockMaxLiveTime={int(self.lock_expiry_s * 1000)}",
        ]
        with (self.folder / f"{name}.out").open("ab") as out:
            self._processes[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env={**os.environ, "ROCKETMQ_HOME": str(self.folder)},
            )

    def _write(self, name: str, text: str) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_text(text)

    def _is_registered(self) -> bool:
        answer = _ask(self.nameserver, RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO))
        broker = ClusterTable.from_json(answer.body).brokers.get(self.broker_name)
        if broker is not None and MASTER_ID in broker.addresses:
            return True
        # A new topic would not do: the nameserver refuses strangers who speak of one topic only.
        change = RemotingCommand(_UPDATE_BROKER_CONFIG, body=b"brokerPermission=6")
        _ask(self.broker_address, change)
        return False

    def _wait_for_port(self, name: str, port: int) -> None:
        self._wait_until(lambda: not is_free(port), name, f"listening on {port}")

    def _wait_until(self, holds: Callable[[], bool], name: str, what: str) -> None:
        process = self._processes[name]

        def does() -> bool:
            assert process.poll() is None, f"{name} ended: {self.log(name)}"
            return holds()

        wait_until(does, within_s=_READY_S, what=f"{name} {self.version}: {what}")


@contextmanager
def official_cluster(
    folder: Path,
    version: str,
    *,
    lock_expiry_s: float = 60,
    heap: str | None = None,
    **settings: str,
) -> Iterator[OfficialCluster]:
    """Nameserver and broker of Apache RocketMQ *version*; *settings* go to the broker's file.

    *lock_expiry_s*: how long an orderly lock outlives its last renewal; 60 is their own default.
    *heap*, such as ``2g``: the broker is sized for work, not for tests.
    """
    cluster = OfficialCluster(folder, version, settings, lock_expiry_s, heap)
    try:
        cluster.start_nameserver()
        cluster.start_broker()
        yield cluster
    finally:
        cluster.close()


def _ask(address: str, command: RemotingCommand) -> RemotingCommand:
    """One request on a connection of its own."""
    host, _, port = address.rpartition(":")
    connection = RemotingConnection(Role.CLIENT)
    with socket.create_connection((host, int(port)), timeout=10) as sock:
        sock.sendall(connection.send(command))
        while (event := connection.next_event()) is NEED_DATA:
            received = sock.recv(65536)
            assert received, f"{address} closed the connection"
            connection.receive_data(received)
    return event.command


def free_ports() -> tuple[int, int, int]:
    """Three free ports p - 2, p, p + 1: a broker listens on all of them. Returned in this order.

    Below those that systems give to whoever asks for any: they have to be free for seconds, and
    again after a restart.
    """
    chooser = random.Random()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        port = chooser.randrange(15_000, 32_000)
        if all(is_free(each) for each in (port - 2, port, port + 1)):
            return port - 2, port, port + 1
    raise AssertionError("no three free ports")


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0
