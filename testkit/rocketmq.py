"""Apache RocketMQ's own nameserver and broker as processes on loopback.

With small heaps and files for tests, or sized for work in benchmarks.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from broker_core.remoting.codes import RequestCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.connection import NEED_DATA, RemotingConnection, Role
from broker_core.remoting.route_bodies import MASTER_ID, ClusterTable
from testkit.java import java, rocketmq_jars
from testkit.processes import wait_until

#: The newest available version of each line.
VERSIONS = ("5.3.3", "4.9.7")
_READY_S = 300
#: Its shutdown has several waits of ten seconds.
_ENDS_WITHIN_S = 120
_UPDATE_BROKER_CONFIG = 25  # changed permissions are registered with nameservers at once

#: Required by 4.9 in its home; 5.x includes its own.
_LOGBACK = """<configuration><appender name="file" class="ch.qos.logback.core.FileAppender">
<file>{file}</file><encoder><pattern>%d %p %c - %m%n</pattern></encoder></appender>
<root level="INFO"><appender-ref ref="file"/></root></configuration>
"""

_BROKER = """brokerClusterName=DefaultCluster
brokerName=broker-a
brokerId=0
brokerIP1={address}
brokerIP2={address}
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
    # Requests that waited longer are refused as "broker busy": by default after 200 ms, and after a
    # second for its disk. The tests' machine may stand still for longer.
    "waitTimeMillsInSendQueue": "10000",
    "osPageCacheBusyTimeOutMills": "10000",
    # Off, in case other programs have filled the disk: see diskMaxUsedSpaceRatio.
    "cleanFileForciblyEnable": "false",
}
#: For work: files and threads are the broker's defaults. Pulls may take many messages, where the
#: default is 32 and 256 KiB, and requests that waited long are accepted.
SIZED_FOR_WORK = {
    "waitTimeMillsInSendQueue": "10000",
    "maxTransferCountOnMessageInMemory": "1024",
    "maxTransferBytesOnMessageInMemory": "4194304",
}


#: Makes a broker a slave of the master of the same name.
_SLAVE = {"brokerId": "1", "brokerRole": "SLAVE"}
_SLAVE_ID = 1


@dataclass(frozen=True, slots=True)
class Place:
    """The host of a process: its address, command prefix, and folders."""

    address: str = "127.0.0.1"
    under: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class OfficialCluster:
    """One nameserver and one broker ``broker-a``.

    The broker can be killed and restarted, and may have a slave, which can be too.
    """

    folder: Path
    version: str
    settings: dict[str, str]
    lock_expiry_s: float
    heap: str | None = None  # of the broker; None: a small one, for a quick start
    nameserver: str = ""
    broker_address: str = ""
    broker_name: str = "broker-a"
    places: Mapping[str, Place] = field(default_factory=dict)
    """Hosts of ``namesrv``, ``broker`` and ``slave``; loopback by default."""
    _ports: dict[str, int] = field(default_factory=dict)
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start_nameserver(self) -> None:
        """Start the nameserver on a free port."""
        port, address = free_ports()[1], self._place("namesrv").address
        self.nameserver = f"{address}:{port}"
        self._write("namesrv.properties", f"listenPort={port}\n")
        self._start("namesrv", "org.apache.rocketmq.namesrv.NamesrvStartup", heap=None)
        self._wait_until(
            lambda: not is_free(port, address), "namesrv", f"listening on {self.nameserver}"
        )

    def start_broker(self) -> None:
        """Start the broker on its previous data and port; return once the nameserver lists it.

        5.x registers by itself only 10 s after its start.
        """
        self.broker_address = self._start_broker("broker", MASTER_ID, {})

    def start_slave(self) -> None:
        """Start the slave in the same way."""
        self._start_broker("slave", _SLAVE_ID, _SLAVE)

    def _start_broker(self, name: str, broker_id: int, more: dict[str, str]) -> str:
        """Start a broker and return its address."""
        port = self._ports.setdefault(name, 0) or free_ports()[1]
        self._ports[name] = port
        address = self._place(name).address
        sizes = SMALL if self.heap is None else SIZED_FOR_WORK
        store = self.folder / ("slave-store" if broker_id else "store")
        text = _BROKER.format(
            address=address,
            nameserver=self.nameserver,
            port=port,
            store=store,
            more="".join(f"{k}={v}\n" for k, v in {**sizes, **self.settings, **more}.items()),
        )
        self._write(f"{name}.properties", text)
        out = self.folder / f"{name}.out"
        before = out.stat().st_size if out.exists() else 0
        self._start(name, "org.apache.rocketmq.broker.BrokerStartup", heap=self.heap)
        self._wait_until(lambda: b"boot success" in out.read_bytes()[before:], name, "boot success")
        at = f"{address}:{port}"
        self._wait_until(lambda: self._is_registered(broker_id, at), name, "registered")
        return at

    def stop_broker(self, *, crash: bool = False, name: str = "broker") -> None:
        """Send SIGTERM, or ``kill -9``; *name*: ``broker`` or ``slave``."""
        process = self._processes[name]
        if crash:
            process.kill()
        else:
            process.terminate()
        try:
            process.wait(timeout=_ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def restart_broker(self, *, crash: bool = False) -> None:
        self.stop_broker(crash=crash)
        self.start_broker()

    def pause_broker(self, name: str = "broker") -> None:
        """Send SIGSTOP."""
        self._processes[name].send_signal(signal.SIGSTOP)

    def resume_broker(self, name: str = "broker") -> None:
        """Send SIGCONT."""
        self._processes[name].send_signal(signal.SIGCONT)

    @property
    def broker_runs(self) -> bool:
        process = self._processes.get("broker")
        return process is not None and process.poll() is None

    @property
    def pids(self) -> dict[str, int]:
        """Return the process ids by name: ``namesrv`` and ``broker``."""
        return {name: process.pid for name, process in self._processes.items()}

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()

    def log(self, name: str) -> str:
        """Return the end of the output of process *name*."""
        return (self.folder / f"{name}.out").read_text(errors="replace")[-3000:]

    def _start(self, name: str, main: str, *, heap: str | None) -> None:
        jars, place = rocketmq_jars(self.version), self._place(name)
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
                [*place.under, *command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env={**os.environ, **place.environment, "ROCKETMQ_HOME": str(self.folder)},
            )

    def _write(self, name: str, text: str) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_text(text)

    def _place(self, name: str) -> Place:
        return self.places.get(name, Place())

    def _is_registered(self, broker_id: int, address: str) -> bool:
        with suppress(OSError):  # it may be slow
            answer = ask(self.nameserver, RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO))
            broker = ClusterTable.from_json(answer.body).brokers.get(self.broker_name)
            if broker is not None and broker_id in broker.addresses:
                return True
            # A new topic would not do: the nameserver rejects unknown brokers that register a
            # single topic.
            change = RemotingCommand(_UPDATE_BROKER_CONFIG, body=b"brokerPermission=6")
            ask(address, change)
        return False

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
    places: Mapping[str, Place] | None = None,
    **settings: str,
) -> Iterator[OfficialCluster]:
    """Run nameserver and broker of Apache RocketMQ *version*; *settings* go to the broker's file.

    *lock_expiry_s*: seconds that an orderly lock outlives its last renewal; their own default is
    60. *heap*, such as ``2g``: the broker is sized for work, not for tests. *places*: hosts of
    processes that do not run on loopback.
    """
    cluster = OfficialCluster(
        folder, version, settings, lock_expiry_s, heap, places={} if places is None else places
    )
    try:
        cluster.start_nameserver()
        cluster.start_broker()
        yield cluster
    finally:
        cluster.close()


def ask(address: str, command: RemotingCommand) -> RemotingCommand:
    """Send one request on a connection of its own; return the answer."""
    host, _, port = address.rpartition(":")
    connection = RemotingConnection(Role.CLIENT)
    with socket.create_connection((host, int(port)), timeout=10) as sock:
        sock.sendall(connection.send(command))
        while (event := connection.next_event()) is NEED_DATA:
            if not (received := sock.recv(65536)):
                raise ConnectionError(f"{address} closed the connection")
            connection.receive_data(received)
    return event.command


def free_ports() -> tuple[int, int, int]:
    """Return three free ports p - 2, p, p + 1, in this order: a broker listens on all of them.

    They are below the ephemeral range: they have to stay free for seconds, and again after a
    restart.
    """
    chooser = random.Random()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        port = chooser.randrange(15_000, 32_000)
        if all(is_free(each) for each in (port - 2, port, port + 1)):
            return port - 2, port, port + 1
    raise AssertionError("no three consecutive free ports")


def is_free(port: int, address: str = "127.0.0.1") -> bool:
    """Return whether no process listens on the port."""
    with socket.socket() as probe:
        return probe.connect_ex((address, port)) != 0
