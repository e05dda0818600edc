"""Writes a history: one JSON line per event, passed to the kernel before the call returns."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

import orjson
import structlog

from broker_core.clock import now_ns, wall_ms
from broker_core.private_files import FILE_MODE, make_folder
from proxy.errors import OrderlaneError

_log = structlog.get_logger("history")


class History(Protocol):
    """Destination of a process's events. Check ``enabled`` before collecting costly fields."""

    @property
    def enabled(self) -> bool:
        """Whether events are stored."""

    def write(self, event: str, **fields: Any) -> None:
        """Write one event; values are those that JSON supports."""

    def write_many(self, event: str, each: Iterable[Mapping[str, Any]]) -> None:
        """Write several events of one kind with one system call and one time."""

    def close(self) -> None:
        """Write ``stop``: the process ended normally."""


class NullHistory:
    """Discards events."""

    enabled = False

    def write(self, event: str, **fields: Any) -> None:
        """Do nothing."""

    def write_many(self, event: str, each: Iterable[Mapping[str, Any]]) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class HistoryWriter:
    """Appends to ``<directory>/<node>.jsonl``, beginning with ``start``. Thread-safe.

    Every call ends in ``write(2)``, so a process that is killed later loses nothing: the pages
    belong to the kernel. A power failure may lose events.
    """

    def __init__(self, directory: Path, node: str, *, parts: Iterable[str] = ()) -> None:
        """*node* names the process; *parts* lists its components, such as ``broker``.

        Raises OrderlaneError if the file cannot be opened.
        """
        self.path = directory / f"{node}.jsonl"
        self.enabled = True
        self._node = node
        self._lock = threading.Lock()  # lines are in the order of their times
        try:
            make_folder(directory)
            self._fd = os.open(
                self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, FILE_MODE
            )
            self._end_torn_line()
        except OSError as error:
            raise OrderlaneError(
                f"history {self.path}: cannot be written: {error.strerror or error}"
            ) from None
        self.write("start", pid=os.getpid(), parts=list(parts))

    def write(self, event: str, **fields: Any) -> None:
        """Write one event; values are those that JSON supports."""
        self.write_many(event, (fields,))

    def write_many(self, event: str, each: Iterable[Mapping[str, Any]]) -> None:
        """Write several events of one kind with one system call and one time."""
        with self._lock:
            if not self.enabled:
                return
            head = {"e": event, "t_ns": now_ns(), "wall_ms": wall_ms(), "node": self._node}
            lines = [
                orjson.dumps({**head, **fields}, option=orjson.OPT_APPEND_NEWLINE)
                for fields in each
            ]
            try:
                self._append(b"".join(lines))
            except OSError as error:
                self.enabled = False  # a full disk must not stop the messages
                _log.error("history ends: cannot write", path=str(self.path), error=error.strerror)

    def close(self) -> None:
        """Write ``stop``: the process ended normally. A second call does nothing."""
        self.write("stop")
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
            self._fd = -1
            self.enabled = False

    def _append(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]

    def _end_torn_line(self) -> None:
        """End a line left open by a killed process; readers skip it."""
        size = os.fstat(self._fd).st_size
        if size and os.pread(self._fd, 1, size - 1) != b"\n":
            os.write(self._fd, b"\n")
