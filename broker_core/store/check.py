"""A full check of a data folder: every record, index entry, key and table. It changes nothing.

It also works beside a running broker: the log is read up to the last checkpoint, and what lies
behind may be under way. A broker repairs index entries and keys itself when it reads them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from broker_core.names import TIMER_TOPIC, Topic
from broker_core.remoting.message import StoredMessage
from broker_core.store.consume_queue import ENTRY
from broker_core.store.data_folder import NAMESERVER, is_in_use, require_folder
from broker_core.store.deletions import deleted_topic
from broker_core.store.entry_code import entry_code_of
from broker_core.store.journaled_table import damaged_lines
from broker_core.store.key_index import damaged_runs
from broker_core.store.log_scan import Gap, LogScan, LogView, UnreadableAsDamage
from broker_core.store.recovery import Checkpoint
from broker_core.store.segments import used_bytes
from broker_core.store.tables import TABLES, content_of

#: Receives the bytes of the log that were read, and their total.
Progress = Callable[[int, int], None]
_MOST_LISTED = 1000
_PROGRESS_BYTES = 16 * 1024 * 1024
_ENTRIES_AT_ONCE = 1024
_BLOCKS = 512


class Problem(NamedTuple):
    """One finding: what is wrong at byte *position* of a file (None: as a whole)."""

    kind: str
    file: str
    position: int | None
    reason: str
    topic: str | None = None
    queue: int | None = None
    offset: int | None = None


@dataclass(slots=True)
class Report:
    """The result of a check; ``problems`` lists at most the first thousand of ``found``."""

    folder: str
    in_use: bool
    messages: int = 0
    log_bytes: int = 0
    index_entries: int = 0
    tables: int = 0
    found: int = 0
    problems: list[Problem] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """True if nothing is wrong."""
        return not self.found

    def add(self, problem: Problem) -> None:
        """Add a finding."""
        self.found += 1
        if len(self.problems) < _MOST_LISTED:
            self.problems.append(problem)

    def to_json(self) -> dict[str, Any]:
        """Return the report as a JSON object."""
        return {
            "folder": self.folder,
            "in_use": self.in_use,
            "clean": self.is_clean,
            "messages": self.messages,
            "log_bytes": self.log_bytes,
            "index_entries": self.index_entries,
            "tables": self.tables,
            "found": self.found,
            "problems": [each._asdict() for each in self.problems],
        }


def check_store(folder: Path, *, progress: Progress = lambda done, total: None) -> Report:
    """Check the data folder *folder*. Raise StoreError if it is none, or OSError."""
    require_folder(folder)
    report = Report(str(folder), is_in_use(folder))
    checkpoint = _check_tables(folder, report)
    log = LogView.of_files(folder / "commitlog")
    try:
        _LogCheck(UnreadableAsDamage(log), folder, checkpoint, report, progress).run()
    finally:
        log.close()
    _check_keys(folder / "index", report)
    return report


def _check_tables(folder: Path, report: Report) -> Checkpoint | None:
    checkpoint = None
    paths = [folder / "checkpoint.json", folder / "rejoin.json"]
    for each in (folder / "config", folder / NAMESERVER):
        if each.is_dir():
            paths += sorted({*each.glob("*.json"), *_listed(each)})
    for path in paths:
        copy = path.with_name(path.name + ".bak")
        if path.parent != folder and not path.exists():
            report.add(Problem("table", str(path), None, "the table is missing"))
        for file in (each for each in (path, copy) if each.exists()):
            report.tables += 1
            content = content_of(file.read_bytes())
            if content is None:
                reason = "it contains no JSON object, or does not match its checksum"
                report.add(Problem("table", str(file), None, reason))
            elif path.name == "checkpoint.json" and checkpoint is None:
                checkpoint = Checkpoint.from_table(content)
    for journal in sorted((folder / "config").glob("*.journal*")):
        report.tables += 1
        for position in damaged_lines(journal):
            reason = "the line is incomplete, or does not match its checksum"
            report.add(Problem("table", str(journal), position, reason))
    return checkpoint


def _listed(folder: Path) -> Iterator[Path]:
    path = folder / TABLES
    for name in path.read_bytes().decode("utf-8", "replace").split() if path.exists() else ():
        yield folder / name


@dataclass(slots=True)
class _QueueCheck:
    """The comparison of one queue's entries with the log."""

    right: int = 0
    wrong: list[Problem] = field(default_factory=list)


class _LogCheck:
    """Reads all records of a log, and compares the entries of consume queues with them."""

    def __init__(
        self,
        log: UnreadableAsDamage,
        folder: Path,
        checkpoint: Checkpoint | None,
        report: Report,
        progress: Progress,
    ) -> None:
        self._log = log
        self._folder = folder
        self._on_disk = 0 if checkpoint is None else checkpoint.physical
        self._report = report
        self._progress = progress
        self._queues: dict[tuple[Topic, int], _QueueCheck] = {}
        self._blocks: OrderedDict[tuple[Topic, int], tuple[int, bytes]] = OrderedDict()

    def run(self) -> None:
        """Check log and queues."""
        segments, report = self._log.segments, self._report
        where = str(self._folder / "commitlog")
        if not segments:
            if self._on_disk:
                report.add(Problem("log", where, None, "the files of the log are missing"))
            return
        for before, after in pairwise(segments):
            if before.end < after.start:
                reason = f"the log lacks the bytes from {before.end} to {after.start}"
                report.add(Problem("log", str(before.path), before.capacity, reason))
        if segments[-1].end < self._on_disk:
            reason = f"the log ends at {segments[-1].end}, but had {self._on_disk} bytes"
            report.add(Problem("log", str(segments[-1].path), segments[-1].capacity, reason))
        self._read_log()
        for (topic, queue_id), check in sorted(self._queues.items()):
            for problem in check.wrong:
                report.add(problem)
            self._check_others(topic, queue_id, check)

    def _read_log(self) -> None:
        start, end = self._log.segments[0].start, self._log.segments[-1].end
        if self._report.in_use:
            end = min(end, self._on_disk)
        scan = LogScan(self._log, start=start, until=end)
        said = 0
        for message in scan:
            self._report.messages += 1
            self._compare(message)
            if scan.end - said >= _PROGRESS_BYTES:
                said = scan.end
                self._progress(scan.end - start, end - start)
        for gap in scan.gaps:
            self._add_gap(gap)
        self._check_end(scan, end)
        self._report.log_bytes = max(0, scan.end - start)
        self._progress(end - start, end - start)

    def _check_end(self, scan: LogScan, end: int) -> None:
        """Report damage that nothing intact follows, unless it is unused room."""
        at = scan.damaged_from
        segment = None if at is None else self._log.segment_at(at)
        if at is None or segment is None:
            return
        used = used_bytes(segment.path, at - segment.start)
        behind = max(self._on_disk, at + used if not self._report.in_use else at)
        if behind > at:
            self._add_gap(scan.gap_of(at, min(behind, end), scan.reason or "unreadable"))

    def _add_gap(self, found: Gap) -> None:
        gap = self._log.named(found)
        reason = f"{gap.reason} ({gap.size} bytes from there on are damaged)"
        self._report.add(Problem("log", str(gap.path), gap.position, reason))

    def _compare(self, message: StoredMessage) -> None:
        name = (message.topic, message.queue_id)
        check = self._queues.setdefault(name, _QueueCheck())
        code = entry_code_of(message.topic, message.raw_properties)
        entry = self._entry(*name, message.queue_offset)
        if entry == ENTRY.pack(message.physical_offset, message.size, code):
            check.right += 1
        elif entry:
            path, position = self._place(*name, message.queue_offset)
            reason = "the entry names another place, size or tag than the log"
            check.wrong.append(
                Problem("index", str(path), position, reason, *name, message.queue_offset)
            )
        if (topic := deleted_topic(message)) is not None:
            for each in [each for each in self._queues if each[0] == topic]:
                del self._queues[each]

    def _files(self, topic: Topic, queue_id: int) -> list[Path]:
        folder = self._folder / "consumequeue" / topic / str(queue_id)
        names = folder.iterdir() if folder.is_dir() else ()
        return sorted(path for path in names if path.name.isdigit())

    def _place(self, topic: Topic, queue_id: int, offset: int) -> tuple[Path, int]:
        at = offset * ENTRY.size
        files = self._files(topic, queue_id)
        path = max((each for each in files if int(each.name) <= at), default=None)
        folder = self._folder / "consumequeue" / topic / str(queue_id)
        return (folder, at) if path is None else (path, at - int(path.name))

    def _entry(self, topic: Topic, queue_id: int, offset: int) -> bytes:
        """Return the entry of *offset*, or b"" if there is none."""
        first, block = self._blocks.get((topic, queue_id), (0, b""))
        at = (offset - first) * ENTRY.size
        if not 0 <= at < len(block):
            path, position = self._place(topic, queue_id, offset)
            if not path.is_file():
                return b""
            with path.open("rb") as file:
                file.seek(position)
                block = file.read(_ENTRIES_AT_ONCE * ENTRY.size)
            self._blocks[topic, queue_id] = offset, block
            self._blocks.move_to_end((topic, queue_id))
            if len(self._blocks) > _BLOCKS:
                self._blocks.popitem(last=False)
            at = 0
        entry = block[at : at + ENTRY.size]
        return entry if len(entry) == ENTRY.size else b""

    def _check_others(self, topic: Topic, queue_id: int, check: _QueueCheck) -> None:
        """Report entries of messages that are not in the log, or are damaged there."""
        if (topic, queue_id) == (TIMER_TOPIC, 1):
            return
        first = self._log.segments[0].start
        others = -check.right - len(check.wrong)
        for path in self._files(topic, queue_id):
            data = path.read_bytes()
            entries = ENTRY.iter_unpack(data[: len(data) - len(data) % ENTRY.size])
            for place, size, _ in entries:
                self._report.index_entries += 1
                if size and place >= first and not (self._report.in_use and place >= self._on_disk):
                    others += 1
        if others > 0:
            folder = self._folder / "consumequeue" / topic / str(queue_id)
            reason = f"messages of the queue that the log lacks, or that are damaged: {others}"
            self._report.add(Problem("index", str(folder), None, reason, topic, queue_id))


def _check_keys(folder: Path, report: Report) -> None:
    if not folder.is_dir():
        return
    for path in sorted(each for each in folder.iterdir() if each.name.isdigit()):
        for position, reason in damaged_runs(path):
            report.add(Problem("keys", str(path), position, reason))
