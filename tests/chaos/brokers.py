"""Nameserver and broker of a run: embedded, or Apache RocketMQ's, optionally with a slave."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from proxy.history.record import HistoryWriter
from testkit.processes import Child, Children
from testkit.rocketmq import OfficialCluster, Place
from tests.chaos.clocks import Clocks
from tests.chaos.network import Network
from tests.chaos.torn import tear

SLAVE = "slave"
_READY_S = 120
#: Size of the disk that can be filled.
_DISK_BYTES = 384 * 1024 * 1024
#: OK means that the slave has the message too.
_REPLICATED = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2"}


@dataclass(slots=True)
class Places:
    """Starts processes, each on its host."""

    network: Network
    clocks: Clocks | None
    children: Children

    def on(self, host: str, *, clock: str | None = None) -> Children:
        """Return the starter of children on *host*; *clock*: the host whose wall clock they use."""
        moved = {} if self.clocks is None else self.clocks.environment(clock or host)
        return self.children.at(self.network.command(host), moved)

    def place(self, host: str) -> Place:
        """The same for Apache RocketMQ's processes."""
        moved = {} if self.clocks is None else self.clocks.environment(host)
        under = tuple(self.network.command(host))
        return Place(self.network.address(host), under, moved)


class Brokers(Protocol):
    """Operations of a run on its broker. All methods block."""

    nameserver: str
    address: str

    def start(self, exits: ExitStack) -> None:
        """Start nameserver and broker."""

    def start_broker(self) -> None:
        """Start it with its existing data; returns once it is registered."""

    def stop_broker(self, *, crash: bool) -> str | None:
        """Send SIGTERM, or ``kill -9``; return what was wrong with its end."""

    def pause_broker(self) -> None:
        """SIGSTOP."""

    def resume_broker(self) -> None:
        """SIGCONT."""


@dataclass(slots=True)
class EmbeddedBroker:
    """The embedded broker. *changed* is called when its address changes."""

    folder: Path
    places: Places
    changed: Callable[[], None]
    small_disk: bool = False
    """Its data are on a separate disk, which can be filled."""
    nameserver: str = ""
    address: str = ""
    _broker: Child | None = None

    @property
    def process(self) -> Child:
        """The broker's process."""
        assert self._broker is not None
        return self._broker

    @property
    def data(self) -> Path:
        """Its data folder."""
        return self.folder / "data"

    def start(self, exits: ExitStack) -> None:
        """Start nameserver and broker."""
        if self.small_disk:
            self.data.mkdir(parents=True)
            size = f"size={_DISK_BYTES}"
            mounted = ["mount", "-t", "tmpfs", "-o", size, "chaos", str(self.data)]
            subprocess.run(mounted, check=True, timeout=30)
            exits.callback(self._keep)
        listen = self._listen("nameserver", 9876)
        started = self.places.on("nameserver").start("nameserver", *listen)
        self.nameserver = started.ready(within_s=_READY_S)["nameserver"]
        self.start_broker()

    def _listen(self, host: str, port: int) -> tuple[str, ...]:
        network = self.places.network
        listen = f"{network.address(host)}:{network.port(port)}"
        return ("--listen", listen, "--history", "history")

    def start_broker(self) -> None:
        """Start it with its existing data."""
        self._broker = self.places.on("broker").start(
            *("broker", "--data", "data", *self._listen("broker", 10911)),
            *("--broker-settings", "broker.yaml", "--nameserver", self.nameserver),
        )
        self.address = self._broker.ready(within_s=_READY_S)["broker"]
        self.changed()

    def stop_broker(self, *, crash: bool) -> str | None:
        """Send SIGTERM, or ``kill -9``."""
        if crash:
            self.process.kill()
            return None
        return ended_badly(self.process)

    def pause_broker(self) -> None:
        """SIGSTOP."""
        self.process.pause()

    def resume_broker(self) -> None:
        """SIGCONT."""
        self.process.resume()

    # ---- its disk -------------------------------------------------------------------------------

    @property
    def _ballast(self) -> Path:
        return self.data / "ballast"

    def fill_disk(self) -> None:
        """Fill the disk."""
        with self._ballast.open("wb") as file:
            for size in (1 << 24, 1 << 20, 4096):
                with suppress(OSError):
                    while True:
                        os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), size)

    def free_disk(self) -> None:
        """Free the disk again."""
        self._ballast.unlink(missing_ok=True)

    def tear(self, seed: str) -> None:
        """Add the torn end of a crash during a write to its log; it must not be running."""
        tear(self.data / "commitlog", seed)

    def _keep(self) -> None:
        """Copy the data from the disk, which is removed."""
        kept = self.folder / "data-kept"
        subprocess.run(["cp", "-r", str(self.data), str(kept)], check=False, timeout=300)
        subprocess.run(["umount", "--lazy", str(self.data)], check=False, timeout=30)


@dataclass(slots=True)
class OfficialBroker:
    """Apache RocketMQ's broker, with a slave if *replicated*."""

    folder: Path
    places: Places
    version: str
    lock_expiry_s: float
    replicated: bool = False
    nameserver: str = ""
    address: str = ""
    _cluster: OfficialCluster | None = None
    _history: HistoryWriter | None = None

    @property
    def cluster(self) -> OfficialCluster:
        """Its processes."""
        assert self._cluster is not None
        return self._cluster

    def start(self, exits: ExitStack) -> None:
        """Start nameserver, broker and slave."""
        hosts = {"namesrv": "nameserver", "broker": "broker", SLAVE: SLAVE}
        if not self.replicated:
            del hosts[SLAVE]
        self._cluster = OfficialCluster(
            folder=self.folder / "rocketmq",
            version=self.version,
            settings={
                "autoCreateTopicEnable": "false",
                **(_REPLICATED if self.replicated else {}),
            },
            lock_expiry_s=self.lock_expiry_s,
            places={name: self.places.place(host) for name, host in hosts.items()},
        )
        exits.callback(self._cluster.close)
        self._cluster.start_nameserver()
        self._cluster.start_broker()
        if self.replicated:
            self._cluster.start_slave()
        self.nameserver, self.address = self._cluster.nameserver, self._cluster.broker_address
        self._history = HistoryWriter(self.folder / "history", "rocketmq", parts=("rocketmq",))
        exits.callback(self._history.close)

    def start_broker(self) -> None:
        """Start it with its existing data."""
        assert self._history is not None
        # Before the start: it answers commits long before it reports its start.
        self._history.write("start", parts=["rocketmq"])
        self.cluster.start_broker()

    def stop_broker(self, *, crash: bool) -> str | None:
        """Send SIGTERM, or ``kill -9``; its end is not judged."""
        self.cluster.stop_broker(crash=crash)
        return None

    def pause_broker(self) -> None:
        """SIGSTOP."""
        self.cluster.pause_broker()

    def resume_broker(self) -> None:
        """SIGCONT."""
        self.cluster.resume_broker()


#: A proxy's drain waits up to 30 s for leased messages, and for busy brokers.
_ENDS_WITHIN_S = 240


def ended_badly(child: Child) -> str | None:
    """Send SIGTERM, wait for the end, and return what was wrong with it. Blocks."""
    try:
        code = child.terminate(within_s=_ENDS_WITHIN_S)
    except subprocess.TimeoutExpired:
        child.kill()
        return f"did not end within {_ENDS_WITHIN_S} s"
    return f"ended with {code}: {child.err[-1000:].strip()}" if code else None
