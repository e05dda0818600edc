"""Case ``restart``: time and bytes read until a broker serves again after ``kill -9``."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from bench.cpu import cpu_s
from bench.frame.case import Case, Column, Point, Shape
from bench.frame.context import RunContext
from bench.frame.figures import Figures
from bench.load.stage import stage
from bench.site import EMBEDDED, Brokers, open_site
from broker_core.store.tables import JsonTable
from proxy.errors import OrderlaneError
from testkit.processes import Child, Children, Starter

_BODY_BYTES = 65_536
#: Messages per second until the kill, which comes later than one checkpoint interval.
_RATE = 500
_BEFORE_KILL_S = 7


class _Broker:
    """A nameserver, and a broker that can be killed and restarted on its data."""

    def __init__(self, folder: Path, children: Children) -> None:
        self.data = folder / "data"
        self._children = children
        self.nameserver = children.start("nameserver", "--listen", "127.0.0.1:0").ready()[
            "nameserver"
        ]
        self.start()

    def start(self, *, cold: bool = False) -> tuple[Child, float]:
        """Start the broker; return the process, and the seconds until it served."""
        began_s = time.monotonic()
        children = self._children.cold if cold else self._children
        child = children.start(
            *("broker", "--data", self.data, "--listen", "127.0.0.1:0", "--flush", "async"),
            *("--nameserver", self.nameserver),
        )
        child.ready(within_s=900)
        self.child = child
        return child, time.monotonic() - began_s

    def as_brokers(self) -> Brokers:
        """Return the broker as ``Brokers``, for sites."""
        return Brokers(EMBEDDED, self.nameserver, 10.0, self.child.process.pid)


@contextmanager
def _broker(folder: Path, starter: Starter) -> Iterator[_Broker]:
    with Children(folder, starter) as children:
        yield _Broker(folder, children)


def _restarted(context: RunContext, point: Point, *, checkpoint: bool) -> Figures:
    """Write a log of *megabytes*, kill the broker under load, and restart it."""
    folder, size = context.folder / "broker", int(point) * 10**6
    if shutil.disk_usage(context.folder).free < size + size // 4 + 2 * 10**9:
        raise OrderlaneError(
            f"{point} MB of log need a quarter more disk space below {context.folder}"
        )
    with _broker(folder, context.starter) as broker:
        with open_site(
            *(broker.as_brokers(), context.folder / "load", "load"),
            queues=8,
            histories=False,
            starter=context.starter,
        ) as site:
            place = stage(site)
            if count := size // _BODY_BYTES:
                place.preload(count, body_bytes=_BODY_BYTES, batch=8)
            sender = place.sender(rate=_RATE, keys=1_000)
            sender.wait_for(int(_RATE * context.sizes["before_kill_s"]))
            broker.child.kill()
            sender.child.kill()
        log_bytes = sum(path.stat().st_size for path in (broker.data / "commitlog").iterdir())
        if not checkpoint:
            JsonTable(broker.data / "checkpoint.json").delete()
        cold = _forget_pages(broker.data)
        child, served_s = broker.start(cold=True)
        cpu, calls_mb, disk_mb = cpu_s(child.process.pid), *_read_mb(child)
        said = _recovered(child.err)
        rest_mb = (log_bytes - said["log_ends_at"]) / 1e6  # nothing of this log was deleted
        return {
            "served_s": served_s,
            "cpu_s": cpu,
            "log_mb": said["log_ends_at"] / 1e6,
            "read_mb": calls_mb - rest_mb,
            "rest_mb": rest_mb,
            "disk_mb": disk_mb,
            "replayed": said["replayed_messages"],
            "cold_mb": cold / 1e6,
        }


def _forget_pages(folder: Path) -> int:
    """Write files to disk and drop them from the page cache, so that later reads hit the disk.

    Returns the number of bytes.
    """
    total = 0
    for path in folder.rglob("*"):
        if not path.is_file():
            continue
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            total += os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)
    return total


def _read_mb(child: Child) -> tuple[float, float]:
    """Return the MB that the process has read so far: by all its calls, and from the disk."""
    text = Path(f"/proc/{child.process.pid}/io").read_text()
    fields = dict(line.split(": ") for line in text.splitlines())
    return int(fields["rchar"]) / 1e6, int(fields["read_bytes"]) / 1e6


def _recovered(log: str) -> dict[str, Any]:
    """Return the broker's recovery report."""
    for line in log.splitlines():
        said: dict[str, Any] = orjson.loads(line)
        if said["event"].startswith("store recovered"):
            return said
    raise OrderlaneError("the broker did not log a recovery report")


_SIZES = {"before_kill_s": _BEFORE_KILL_S}

CASES = (
    Case(
        name="restart",
        title="Restart of a broker",
        question="How long does a broker with a long log take to serve again after kill -9?",
        about=f"A log of the given size, messages of {_BODY_BYTES // 1024} KiB in eight queues;"
        f" then {_RATE} small ones a second, and a kill {_BEFORE_KILL_S} s later. All files"
        " are synced to disk and the system's cache of them is dropped; then the broker is"
        " started. *Serves after* is from its start to its ready line, including Python's"
        " imports; *read* counts all bytes read until then, except the unused rest of the"
        " last file, whose zeros are not on disk and are scanned for traces of a power cut."
        " *Beyond an empty log* is the difference to a log of the small messages alone,"
        " *from disk* the part that was not cached, including the system's read-ahead. After"
        " the checkpoint there are messages of the last five seconds, which are *entered"
        " again*. *no checkpoint*: the same with its file deleted, so that everything is"
        " read and all queues are rebuilt.",
        point="MB of log",
        points=(0, 200, 1_000, 10_000),
        arms={
            "checkpoint": partial(_restarted, checkpoint=True),
            "no checkpoint": partial(_restarted, checkpoint=False),
        },
        columns=(
            Column("served_s", "serves after s", digits=2),
            Column("cpu_s", "CPU s", digits=2),
            Column("read_mb", "read MB", digits=1),
            Column("read_mb", "beyond an empty log", digits=1, at=0, minus=True),
            Column("disk_mb", "from disk MB", digits=1),
            Column("replayed", "entered again"),
        ),
        short=Shape(rounds=3, sizes=_SIZES, points=(200,)),
        full=Shape(rounds=5, sizes=_SIZES, limit_s=1_800),
        histories="none",
    ),
)
