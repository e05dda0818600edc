"""Apache RocketMQ's own nameserver and broker as processes on the loopback, with small heaps."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.java import java, rocketmq_jars
from tests.support.processes import wait_until

#: The newest of each line that can be had.
VERSIONS = ("5.3.3", "4.9.7")
_READY_S = 60

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
mappedFileSizeCommitLog=33554432
mappedFileSizeConsumeQueue=600000
maxIndexNum=20000
maxHashSlotNum=5000
timerWheelEnable=false
transientStorePoolEnable=false
diskMaxUsedSpaceRatio=99
sendMessageThreadPoolNums=4
pullMessageThreadPoolNums=4
{more}"""


@dataclass(slots=True)
class OfficialCluster:
    """One nameserver and one broker ``broker-a``; the broker can be killed and started again."""

    folder: Path
    version: str
    settings: dict[str, str]
    nameserver: str = ""
    broker_address: str = ""
    broker_name: str = "broker-a"
    _port: int = 0
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start_nameserver(self) -> None:
        """Start it on a free port."""
        port = _free_ports()[1]
        self.nameserver = f"127.0.0.1:{port}"
        self._write("namesrv.properties", f"listenPort={port}\n")
        self._start("namesrv", "org.apache.rocketmq.namesrv.NamesrvStartup", heap="128m")
        self._wait_for_port("namesrv", port)

    def start_broker(self) -> None:
        """Start it on the data and the port of before; returns once the nameserver knows it."""
        self._port = self._port or _free_ports()[1]
        self.broker_address = f"127.0.0.1:{self._port}"
        more = "".join(f"{name}={value}\n" for name, value in self.settings.items())
        text = _BROKER.format(
            nameserver=self.nameserver, port=self._port, store=self.folder / "store", more=more
        )
        self._write("broker.properties", text)
        self._start("broker", "org.apache.rocketmq.broker.BrokerStartup", heap="320m")
        self._wait_for_port("broker", self._port)

    def stop_broker(self, *, crash: bool = False) -> None:
        """SIGTERM, or ``kill -9``."""
        process = self._processes.pop("broker")
        if crash:
            process.kill()
        else:
            process.terminate()
        process.wait(timeout=60)

    def restart_broker(self, *, crash: bool = False) -> None:
        self.stop_broker(crash=crash)
        self.start_broker()

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()

    def log(self, name: str) -> str:
        """The end of what process *name* printed."""
        return (self.folder / f"{name}.out").read_text(errors="replace")[-3000:]

    def _start(self, name: str, main: str, *, heap: str) -> None:
        jars = rocketmq_jars(self.version)
        conf = self.folder / "conf"
        conf.mkdir(exist_ok=True)
        (conf / f"logback_{name}.xml").write_text(_LOGBACK.format(file=self.folder / f"{name}.log"))
        command = java(f"{jars}/*", main, "-c", self.folder / f"{name}.properties", heap=heap)
        command[1:1] = [
            f"-Duser.home={self.folder}",
            "-XX:MaxDirectMemorySize=256m",
            "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99",
            "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.99",
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

    def _wait_for_port(self, name: str, port: int) -> None:
        process = self._processes[name]

        def answers() -> bool:
            assert process.poll() is None, f"{name} ended: {self.log(name)}"
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0

        wait_until(answers, within_s=_READY_S, what=f"{name} {self.version} listens on {port}")


@contextmanager
def official_cluster(folder: Path, version: str, **settings: str) -> Iterator[OfficialCluster]:
    """Nameserver and broker of Apache RocketMQ *version*; *settings* go to the broker's file."""
    cluster = OfficialCluster(folder, version, settings)
    try:
        cluster.start_nameserver()
        cluster.start_broker()
        yield cluster
    finally:
        cluster.close()


def _free_ports() -> tuple[int, int, int]:
    """Three free ports p - 2, p, p + 1: a broker listens on all of them. Returned in this order."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with socket.socket() as first:
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
        if port < 65000 and all(_is_free(each) for each in (port - 2, port, port + 1)):
            return port - 2, port, port + 1
    raise AssertionError("no three free ports")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0
