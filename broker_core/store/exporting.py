"""Export of a data folder to a backup, also beside the running broker.

The result is what a crash could have left at one moment: committed offsets are read first, then the
log up to a fixed end, then topics and groups. So no offset is ahead of the log, and each message
has its topic. Files of the log are opened before they are read, so retention may delete them
meanwhile. If a topic is deleted meanwhile, the export begins again.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from broker_core.clock import wall_ms
from broker_core.errors import StoreError
from broker_core.names import Topic
from broker_core.private_files import make_folder
from broker_core.store.backup import (
    KEPT_TABLES,
    LOG,
    NAMESERVER_TABLE,
    TABLES_FOLDER,
    FileSum,
    Manifest,
    Progress,
    QueueEnds,
    copied,
    pieces_of,
    read_log,
)
from broker_core.store.consume_queue import ENTRY
from broker_core.store.data_folder import NAMESERVER, is_in_use, require_folder
from broker_core.store.files import sync_folder
from broker_core.store.journaled_table import JournaledTable
from broker_core.store.log_scan import LogScan
from broker_core.store.recovery import Checkpoint
from broker_core.store.segments import Segment, used_bytes
from broker_core.store.tables import JsonTable

_MOST_ATTEMPTS = 10
#: Time for a write that is under way, and how often it is waited for.
_WRITE_S, _WRITE_ATTEMPTS = 0.2, 10


def export_store(
    folder: Path,
    to: Path,
    *,
    version: str,
    progress: Progress = lambda done, total: None,
) -> Manifest:
    """Copy the data folder *folder* of a broker or nameserver to the new backup *to*.

    *version*: of this program. Raises StoreError if *folder* has no data, if *to* exists and is not
    empty or is inside of *folder*, or if a table is damaged; OSError if a file cannot be read or
    written.
    """
    _require_new(to, folder)
    files: dict[str, FileSum] = {}
    made_ms = wall_ms()
    if (folder / NAMESERVER_TABLE).is_file() and not (folder / "format").exists():
        make_folder(to)
        _export_values(folder / NAMESERVER_TABLE, to, NAMESERVER_TABLE, files)
        manifest = Manifest("nameserver", version, made_ms, files)
    else:
        require_folder(folder)
        make_folder(to)
        start, end, ends = _export_broker(folder, to, files, progress)
        if (folder / NAMESERVER / NAMESERVER_TABLE).is_file():
            make_folder(to / NAMESERVER)
            name = f"{NAMESERVER}/{NAMESERVER_TABLE}"
            _export_values(folder / name, to, name, files)
        found = read_log(to / LOG, known_ends=ends)
        manifest = Manifest(
            "broker",
            version,
            made_ms,
            files,
            messages=found.messages,
            log_start=start,
            log_end=end,
            damaged=found.damaged,
            queue_ends=found.queue_ends,
            known_ends=ends,
        )
    sync_folder(to.parent)
    manifest.save(to)
    return manifest


def _require_new(to: Path, folder: Path) -> None:
    if to.resolve().is_relative_to(folder.resolve()):
        raise StoreError(f"backup {to} is inside of the data folder: choose a folder elsewhere")
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise StoreError(f"backup {to} exists and is not an empty folder: choose another name")


def _export_values(table: Path, to: Path, name: str, files: dict[str, FileSum]) -> None:
    _write_table(to, name, JsonTable(table).load(), files)


def _write_table(to: Path, name: str, content: dict[str, Any], files: dict[str, FileSum]) -> None:
    files[name] = copied(iter([orjson.dumps(content)]), to / name, read=_ignore)


def _ignore(_: int) -> None:
    return None


def _export_broker(
    folder: Path, to: Path, files: dict[str, FileSum], progress: Progress
) -> tuple[int, int, QueueEnds]:
    """Copy tables and log; return start and end of the log, and the queues' next offsets."""
    for _ in range(_MOST_ATTEMPTS):
        with _HeldLog() as log:
            offsets = _table(folder, "consumerOffset").load()
            deletions = _table(folder, "topics").load().get("deletions", 0)
            ends = queue_ends(folder / "consumequeue")
            checkpoint = Checkpoint.from_table(
                JsonTable(folder / "checkpoint.json", is_derived=True).load_newest() or {}
            )
            log.open(folder / LOG)
            end = fixed_end(log, checkpoint, in_use=is_in_use(folder))
            topics = _table(folder, "topics").load()
            if topics.get("deletions", 0) != deletions:
                continue  # the log may have messages of the deleted topic, and no topic for them
            groups = _table(folder, "subscriptionGroup").load()
            _write_tables(to, files, (topics, groups, offsets))
            return write_log(log, end, to, files, progress), end, ends
    raise StoreError(
        f"topics of {folder} were deleted during each of {_MOST_ATTEMPTS} attempts to export it:"
        " export it when no topics are deleted"
    )


def _table(folder: Path, name: str) -> JournaledTable:
    return JournaledTable(folder / TABLES_FOLDER / f"{name}.json")


def _write_tables(to: Path, files: dict[str, FileSum], contents: Sequence[dict[str, Any]]) -> None:
    make_folder(to / TABLES_FOLDER)
    for name, content in zip(KEPT_TABLES, contents, strict=True):
        _write_table(to, f"{TABLES_FOLDER}/{name}.json", content, files)
    sync_folder(to / TABLES_FOLDER)


def write_log(
    log: _HeldLog, end: int, to: Path, files: dict[str, FileSum], progress: Progress
) -> int:
    """Copy *log* up to *end*; return its start. Raise StoreError, OSError."""
    make_folder(to / LOG)
    segments = [each for each in log.segments if each.start < end]
    total, done = sum(min(each.end, end) - each.start for each in segments), 0

    def read(size: int) -> None:
        nonlocal done
        done += size
        progress(done, total)

    for segment in segments:
        name = f"{LOG}/{segment.path.name}"
        size = min(segment.end, end) - segment.start
        files[name] = _copied_segment(log, segment, size, to / name, read)
    sync_folder(to / LOG)
    return segments[0].start if segments else end


def _copied_segment(log: _HeldLog, segment: Segment, size: int, target: Path, read: Any) -> FileSum:
    found = copied(pieces_of(log.descriptor(segment), size), target, read=read)
    if found.size != size:
        raise StoreError(
            f"{segment.path} has {found.size} bytes, of which the export needs {size}: check the"
            " data folder"
        )
    return found


def fixed_end(log: _HeldLog, checkpoint: Checkpoint | None, *, in_use: bool) -> int:
    """Return the end of the log to export: of the last message that is complete by now.

    Behind the checkpoint of a running broker, bytes that are no message may be a write that is
    under way; if they are still none after two seconds, they are damage.
    """
    if not log.segments:
        return 0
    first = log.segments[0].start
    start = first if checkpoint is None else max(first, checkpoint.physical)
    for attempt in range(_WRITE_ATTEMPTS):
        scan = LogScan(log, start=start)
        for _ in scan:
            pass
        if not (in_use and scan.gaps):
            return max(scan.end, start)
        if attempt < _WRITE_ATTEMPTS - 1:
            time.sleep(_WRITE_S)
    return max(scan.end, start)


def queue_ends(folder: Path) -> QueueEnds:
    """Return the next offset of each queue, by the files of its consume queue. Raise OSError."""
    ends: QueueEnds = {}
    for queue in folder.glob("*/*"):
        if not queue.name.isdigit() or "." in queue.parent.name:  # of a deleted topic
            continue
        with suppress(FileNotFoundError, ValueError):  # its topic is being deleted, or it is empty
            name = max(each.name for each in queue.iterdir() if each.name.isdigit())
            used = used_bytes(queue / name, 0)  # without zeros after a power failure
            end = int(name) // ENTRY.size + -(-used // ENTRY.size)
            ends.setdefault(Topic(queue.parent.name), {})[int(queue.name)] = end
    return ends


class _Held(NamedTuple):
    segment: Segment
    descriptor: int


class _HeldLog:
    """The files of a log, kept open: those that retention deletes meanwhile can still be read."""

    def __init__(self) -> None:
        self._held: list[_Held] = []
        self.segments: list[Segment] = []

    def __enter__(self) -> _HeldLog:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._held:
            os.close(each.descriptor)

    def open(self, folder: Path) -> None:
        """Open the files in *folder*. Raise StoreError if one between others is missing."""
        names = [each.name for each in folder.iterdir()] if folder.is_dir() else []
        for start in sorted(int(name) for name in names if name.isdigit()):
            path = folder / f"{start:020d}"
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                self._drop_deleted()
                continue
            size = os.fstat(descriptor).st_size
            self._held.append(_Held(Segment(path, start, size), descriptor))
        for before, after in zip(self._held, self._held[1:], strict=False):
            gap = after.segment.start - before.segment.end
            if gap > 0:
                raise StoreError(
                    f"the log in {folder} lacks the bytes from {before.segment.end} to"
                    f" {after.segment.start}: restore the missing file first"
                )
            before.segment.resize(after.segment.start - before.segment.start)
        self.segments = [each.segment for each in self._held]

    def _drop_deleted(self) -> None:
        """Forget the files before one that retention has just deleted: it deletes in order."""
        for each in self._held:
            os.close(each.descriptor)
        self._held.clear()

    def descriptor(self, segment: Segment) -> int:
        """Return the open file of *segment*."""
        return next(each.descriptor for each in self._held if each.segment is segment)

    def segment_at(self, offset: int) -> Segment | None:
        """Return the segment that contains *offset*."""
        at = bisect_right(self.segments, offset, key=lambda each: each.start) - 1
        return self.segments[at] if at >= 0 and offset < self.segments[at].end else None

    def read_segment(self, segment: Segment, offset: int, size: int) -> bytes:
        """Return up to *size* bytes of a segment. Raise OSError."""
        return os.pread(self.descriptor(segment), size, offset - segment.start)
