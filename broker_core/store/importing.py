"""Import of a backup into a new data folder.

The file ``format`` is written last. Until then a broker refuses the folder, so an interrupted
import is never taken for a complete one.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from broker_core.errors import StoreError
from broker_core.names import Topic
from broker_core.private_files import make_folder
from broker_core.store.backup import (
    LOG,
    NAMESERVER_TABLE,
    TABLES_FOLDER,
    Manifest,
    Progress,
    QueueEnds,
    copy_verified,
    read_log,
    table_of,
)
from broker_core.store.consume_queue import ConsumeQueue
from broker_core.store.data_folder import NAMESERVER, hold, new_data_folder
from broker_core.store.files import OpenFiles, sync_folder
from broker_core.store.tables import JsonTable

#: Receives a table's name, its content and the queues' next offsets; returns the content of the
#: restored table.
Restored = Callable[[str, dict[str, Any], Callable[[Topic, int], int]], dict[str, Any]]


def import_store(
    source: Path,
    folder: Path,
    *,
    restored: Restored,
    progress: Progress = lambda done, total: None,
) -> Manifest:
    """Make the data folder *folder* from the backup *source*, whose every byte is verified.

    *restored* is called for each table of a broker. Raises StoreError if the backup is incomplete
    or damaged, or if *folder* has data or is in use; OSError if a file cannot be read or written.
    """
    manifest = Manifest.load(source)
    done = 0

    def read(size: int) -> None:
        nonlocal done
        done += size
        progress(done, manifest.size)

    if manifest.kind == "nameserver":
        _import_values(manifest, NAMESERVER_TABLE, source, folder, read)
        return manifest
    with new_data_folder(folder):
        hidden = _import_log(manifest, source, folder, read)
        _import_queues(hidden, folder / "consumequeue")
        _import_tables(manifest, source, folder, restored, read)
        if (name := f"{NAMESERVER}/{NAMESERVER_TABLE}") in manifest.files:
            _import_values(manifest, name, source, folder / NAMESERVER, read)
    return manifest


def _import_values(
    manifest: Manifest, name: str, source: Path, folder: Path, read: Callable[[int], None]
) -> None:
    table = JsonTable(folder / NAMESERVER_TABLE)
    if table.exists():
        raise StoreError(
            f"{table.path} has the values of a nameserver: move it away, or choose another folder"
        )
    held = hold(folder)
    try:
        table.save(_verified_table(manifest, name, source, folder, read))
    finally:
        os.close(held)


def _verified_table(
    manifest: Manifest, name: str, source: Path, folder: Path, read: Callable[[int], None]
) -> dict[str, Any]:
    copy = folder / "import.new"
    try:
        copy_verified(manifest, name, source, copy, read=read)
        return table_of(copy)
    finally:
        copy.unlink(missing_ok=True)


def _import_log(
    manifest: Manifest, source: Path, folder: Path, read: Callable[[int], None]
) -> QueueEnds:
    """Copy the log; return the next offsets of queues that its messages do not show."""
    make_folder(folder / LOG)
    for name in sorted(manifest.files):
        if name.startswith(f"{LOG}/"):
            copy_verified(manifest, name, source, folder / name, read=read)
    sync_folder(folder / LOG)
    found = read_log(folder / LOG, known_ends=manifest.known_ends)
    known = (manifest.messages, manifest.damaged, manifest.queue_ends)
    if (found.messages, found.damaged, found.queue_ends) != known:
        raise StoreError(
            f"the log in backup {source} has {found.messages} messages, its manifest says"
            f" {manifest.messages}: use another backup"
        )
    return found.without_messages


def _import_queues(ends: QueueEnds, folder: Path) -> None:
    """Note the next offset of each queue in *ends*; the broker finds the others in the log."""
    make_folder(folder)
    files = OpenFiles(limit=16)
    for topic, queues in ends.items():
        for number, end in queues.items():
            ConsumeQueue(folder / topic / str(number), files=files).end_empty_at(end)
    files.close()


def _import_tables(
    manifest: Manifest,
    source: Path,
    folder: Path,
    restored: Restored,
    read: Callable[[int], None],
) -> None:
    make_folder(folder / TABLES_FOLDER)
    ends = manifest.queue_ends

    def end_offset(topic: Topic, queue_id: int) -> int:
        return ends.get(topic, {}).get(queue_id, 0)

    for name in sorted(manifest.files):
        if name.startswith(f"{TABLES_FOLDER}/"):
            path = folder / name
            content = _verified_table(manifest, name, source, folder, read)
            JsonTable(path).save(restored(path.stem, content, end_offset))
