"""A backup of a data folder: its files, and the manifest that lists them.

A backup is a folder. ``manifest.json`` is written last: without it, or with another file than it
lists, the backup is incomplete. It contains the log, the tables that hold what nothing else does,
and the next offset of each queue; indexes are made again from the log. It does not contain what
belongs to one installation: orderly locks, the identity of a log among its replicas, the clock of
its retention.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import orjson

from broker_core.errors import InvalidCommand, StoreError
from broker_core.names import TIMER_TOPIC, Topic
from broker_core.private_files import create
from broker_core.remoting.json_fields import JsonObject
from broker_core.store.deletions import deleted_topic
from broker_core.store.files import sync_folder
from broker_core.store.log_scan import LogScan, LogView
from broker_core.store.tables import content_of

#: Receives the bytes that were copied or verified, and their total.
Progress = Callable[[int, int], None]
QueueEnds = dict[Topic, dict[int, int]]
Kind = Literal["broker", "nameserver"]

MANIFEST = "manifest.json"
LOG = "commitlog"
TABLES_FOLDER = "config"
#: Tables of a broker that a backup contains.
KEPT_TABLES = ("topics", "subscriptionGroup", "consumerOffset")
NAMESERVER_TABLE = "kvConfig.json"
_FORMAT = "orderlane-backup 1"
_PIECE_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class FileSum:
    """Length and SHA-256 of a file."""

    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """The contents of a backup.

    ``files`` are relative to its folder. ``log_end`` is the offset after the last message.
    ``queue_ends`` are the next offsets by topic and queue id, also of queues without messages;
    ``known_ends`` those that the indexes stated.
    ``damaged`` counts damaged places of the log.
    """

    kind: Kind
    version: str
    made_ms: int
    files: dict[str, FileSum] = field(default_factory=dict)
    messages: int = 0
    log_start: int = 0
    log_end: int = 0
    damaged: int = 0
    queue_ends: QueueEnds = field(default_factory=dict)
    known_ends: QueueEnds = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(each.size for each in self.files.values())

    def save(self, folder: Path) -> None:
        """Complete the backup in *folder*. Raise OSError."""
        body = orjson.dumps(self._to_json())
        content = orjson.dumps({"manifest": self._to_json(), "crc32": zlib.crc32(body)})
        fresh = folder / f"{MANIFEST}.new"
        with create(fresh) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(folder / MANIFEST)
        sync_folder(folder)

    @classmethod
    def load(cls, folder: Path) -> Manifest:
        """Read the manifest of *folder*. Raise StoreError if there is none, or it is invalid."""
        path = folder / MANIFEST
        try:
            raw = orjson.loads(path.read_bytes())
            whole = JsonObject(raw, "backup")
            content = whole.items("manifest")
            if zlib.crc32(orjson.dumps(content)) != whole.integer("crc32", -1):
                raise StoreError(f"{path} does not match its checksum: use another backup")
            if content.get("format") != _FORMAT:
                raise StoreError(
                    f"{path} has format {content.get('format')!r}, this version of orderlane reads"
                    f" {_FORMAT!r}"
                )
            return cls._from_json(content)
        except OSError as error:
            raise StoreError(
                f"{folder} is not a complete backup: {path} cannot be read: {error.strerror}"
            ) from error
        except (ValueError, KeyError, TypeError, AttributeError, InvalidCommand) as error:
            raise StoreError(f"{path} is not the manifest of a backup: {error}") from error

    def _to_json(self) -> dict[str, Any]:
        return {
            "format": _FORMAT,
            "kind": self.kind,
            "version": self.version,
            "madeMs": self.made_ms,
            "messages": self.messages,
            "logStart": self.log_start,
            "logEnd": self.log_end,
            "damaged": self.damaged,
            "queueEnds": _ends_to_json(self.queue_ends),
            "knownEnds": _ends_to_json(self.known_ends),
            "files": {
                name: {"bytes": each.size, "sha256": each.sha256}
                for name, each in sorted(self.files.items())
            },
        }

    @classmethod
    def _from_json(cls, content: Mapping[str, Any]) -> Manifest:
        kind = content["kind"]
        if kind not in ("broker", "nameserver"):
            raise ValueError(f"kind is {kind!r}: expected broker or nameserver")
        for name in content["files"]:
            if name.startswith("/") or ".." in name.split("/"):
                raise ValueError(f"file {name!r} is outside of the backup")
        return cls(
            kind,
            str(content["version"]),
            int(content["madeMs"]),
            {
                name: FileSum(int(each["bytes"]), str(each["sha256"]))
                for name, each in content["files"].items()
            },
            int(content["messages"]),
            int(content["logStart"]),
            int(content["logEnd"]),
            int(content["damaged"]),
            _ends_from_json(content["queueEnds"]),
            _ends_from_json(content["knownEnds"]),
        )


def _ends_to_json(ends: QueueEnds) -> dict[str, dict[str, int]]:
    return {
        topic: {str(number): end for number, end in sorted(those.items())}
        for topic, those in sorted(ends.items())
    }


def _ends_from_json(content: Mapping[str, Mapping[str, int]]) -> QueueEnds:
    for topic in content:  # the name of a folder
        if "/" in topic or topic in ("", ".", ".."):
            raise ValueError(f"{topic!r} is not a topic")
    return {
        Topic(topic): {int(number): int(end) for number, end in those.items()}
        for topic, those in content.items()
    }


@dataclass(frozen=True, slots=True)
class LogContents:
    """A log, read completely: number of messages, damaged places, and queues' next offsets.

    ``queue_ends`` are never beyond the next offset that a broker will give: an entry of a message
    that the log lacks does not count. ``without_messages`` are the ends that the messages of the
    log do not show; in a damaged log the last ones of a queue may be damaged.
    """

    messages: int
    damaged: int
    queue_ends: QueueEnds
    without_messages: QueueEnds


def read_log(folder: Path, *, known_ends: QueueEnds) -> LogContents:
    """Verify each message of the log in *folder*. Raise OSError.

    *known_ends*: next offsets of queues, whose messages may all be deleted by retention.
    """
    ends = {topic: dict(those) for topic, those in known_ends.items()}
    shown: QueueEnds = {}
    messages = 0
    log = LogView.of_files(folder)
    try:
        start = log.segments[0].start if log.segments else 0
        scan = LogScan(log, start=start)
        for message in scan:
            messages += 1
            shown.setdefault(message.topic, {})[message.queue_id] = message.queue_offset + 1
            if (topic := deleted_topic(message)) is not None:
                ends.pop(topic, None)
                shown.pop(topic, None)
        damaged = len(scan.gaps) + (scan.damaged_from is not None)
    finally:
        log.close()
    # The queue of ended delayed messages is made again from the log.
    ends.get(TIMER_TOPIC, {}).pop(1, None)
    whole = {topic: dict(queues) for topic, queues in shown.items()}
    hidden: QueueEnds = {}
    for topic, queues in ends.items():
        for number, end in queues.items():
            last = shown.get(topic, {}).get(number)
            if last is None:
                whole.setdefault(topic, {})[number] = end
            if last is None or (damaged and end > last):
                hidden.setdefault(topic, {})[number] = end
    return LogContents(messages, damaged, whole, hidden)


def copied(pieces: Iterator[bytes], target: Path, *, read: Callable[[int], None]) -> FileSum:
    """Write *pieces* to *target*, durably; *read* receives the length of each. Raise OSError."""
    digest, size = hashlib.sha256(), 0
    with create(target) as file:
        for piece in pieces:
            file.write(piece)
            digest.update(piece)
            size += len(piece)
            read(len(piece))
        file.flush()
        os.fsync(file.fileno())
    return FileSum(size, digest.hexdigest())


def pieces_of(descriptor: int, end: int) -> Iterator[bytes]:
    """Yield the first *end* bytes of an open file; fewer if it is shorter. Raise OSError."""
    position = 0
    while position < end:
        piece = os.pread(descriptor, min(_PIECE_BYTES, end - position), position)
        if not piece:
            return
        position += len(piece)
        yield piece


def copy_verified(
    manifest: Manifest, name: str, source: Path, target: Path, *, read: Callable[[int], None]
) -> None:
    """Copy the file *name* of the backup *source* to *target*.

    Raises StoreError if it is not the file that *manifest* lists, or OSError.
    """
    path = source / name
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError as error:
        raise StoreError(f"backup {source} lacks its file {name}: use another backup") from error
    try:
        found = copied(pieces_of(descriptor, os.fstat(descriptor).st_size), target, read=read)
    finally:
        os.close(descriptor)
    wanted = manifest.files[name]
    if found != wanted:
        reason = (
            f"has {found.size} bytes instead of {wanted.size}"
            if found.size != wanted.size
            else "does not match its checksum"
        )
        raise StoreError(f"{path} {reason}: the backup is damaged, use another one")


def table_of(path: Path) -> dict[str, Any]:
    """Return the content of a table in a backup. Raise StoreError if it is invalid."""
    content = content_of(path.read_bytes())
    if content is None:
        raise StoreError(f"{path} is not a table of a broker: the backup is damaged")
    return content
