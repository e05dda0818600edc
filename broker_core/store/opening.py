"""Opening the folder of a store: reserve it, apply a planned rejoin, and recover."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import structlog

from broker_core.errors import StoreError
from broker_core.private_files import make_folder
from broker_core.store.commit_log import CommitLog
from broker_core.store.consume_queues import ConsumeQueues
from broker_core.store.data_folder import DataFolder
from broker_core.store.files import sync_file, sync_folder
from broker_core.store.recovery import Checkpoint, Recovery, recover
from broker_core.store.rejoin import Rejoin
from broker_core.store.tables import JsonTable

_MOST_PLACES = 20  # of damage in one line

_log = structlog.get_logger("store")


@dataclass(slots=True)
class Opened:
    """A store that was opened and recovered.

    ``visible_end``: end of the visible messages, as far as known; ``rejoin_table``: table of a
    ``Rejoin`` for the next opening.
    """

    data: DataFolder
    log: CommitLog
    queues: ConsumeQueues
    recovery: Recovery
    checkpoint_table: JsonTable
    checkpoint: Checkpoint | None
    rejoin_table: JsonTable
    visible_end: int


def open_store(folder: Path, *, segment_bytes: int, entries_per_file: int) -> Opened:
    """Open and recover the store in *folder*. Raise StoreError if it cannot be used."""
    data = DataFolder(folder)
    with ExitStack() as undo:
        undo.callback(data.release)
        try:
            opened = _open(data, segment_bytes, entries_per_file, undo)
        except OSError as error:
            where = error.filename or folder
            raise StoreError(f"{where} cannot be used: {error.strerror}") from error
        undo.pop_all()
    _log_recovery(opened.recovery, folder, was_closed=data.was_closed)
    return opened


def _open(data: DataFolder, segment_bytes: int, entries_per_file: int, undo: ExitStack) -> Opened:
    folder = data.path
    make_folder(folder / "config")
    log = CommitLog(folder / "commitlog", segment_bytes=segment_bytes)
    undo.callback(log.close)
    queues = ConsumeQueues(folder / "consumequeue", entries_per_file=entries_per_file)
    undo.callback(queues.close)
    sync_folder(folder)
    checkpoint_table, rejoin_table = (
        JsonTable(folder / "checkpoint.json", is_derived=True),
        JsonTable(folder / "rejoin.json", is_derived=True),
    )
    checkpoint = _checkpoint_in(checkpoint_table)
    rejoin = Rejoin.from_table(rejoin_table.load())
    is_new = checkpoint is None and rejoin is None and not log.segments and not queues.count()
    visible_end = checkpoint.physical if checkpoint is not None else 0
    if data.was_closed:
        _log_missing_begin(log, checkpoint)
    if rejoin is not None:
        visible_end = rejoin.visible
        checkpoint_table.delete()
        checkpoint = None
        rejoin.apply(log, queues)
    forget = partial(_forget, checkpoint_table, checkpoint)
    recovery = recover(log, queues, checkpoint, forget_checkpoint=forget)
    if recovery.rebuilt:
        checkpoint = None
    if is_new:
        checkpoint = Checkpoint(log.end_offset, queues.count(), log.first_offset)
        checkpoint_table.save(checkpoint.to_table())
    if rejoin is not None:
        checkpoint = _end_rejoin(rejoin, log, queues, checkpoint_table)
        rejoin_table.delete()
    visible_end = min(max(visible_end, log.first_offset), log.end_offset)
    return Opened(
        data, log, queues, recovery, checkpoint_table, checkpoint, rejoin_table, visible_end
    )


def _checkpoint_in(table: JsonTable) -> Checkpoint | None:
    """Return the checkpoint; None, which makes the start read the whole log, if it is damaged."""
    try:
        return Checkpoint.from_table(table.load())
    except StoreError as error:
        _log.warning("the whole log is read: its checkpoint is damaged", reason=str(error))
        return None


def _log_missing_begin(log: CommitLog, checkpoint: Checkpoint | None) -> None:
    """Log that the first files of a log that was closed are missing; retention does that too."""
    begin = None if checkpoint is None else checkpoint.begin
    if begin is not None and log.segments and log.first_offset > begin:
        _log.error(
            "the first files of the log are missing, with their messages",
            began_at=begin,
            begins_at=log.first_offset,
        )


def _forget(table: JsonTable, checkpoint: Checkpoint | None) -> None:
    """Make starts rebuild the queues until there is another checkpoint. Raise OSError."""
    if checkpoint is not None:
        with suppress(OSError):  # disk full; the visible end is unknown then
            table.save(checkpoint.forgotten().to_table())
            table.delete_backup()
            return
    table.delete()


def _end_rejoin(
    rejoin: Rejoin, log: CommitLog, queues: ConsumeQueues, table: JsonTable
) -> Checkpoint:
    # Only the files of a queue without messages contain its next offset.
    for queue in queues:
        queue.flush()
        for path in queue.take_written():
            sync_file(path)
    checkpoint = Checkpoint(log.end_offset, queues.count(), log.first_offset)
    table.save(checkpoint.to_table())
    _log.warning(
        "the log was truncated to match its master's; removed bytes are in *.dropped files",
        begun_anew=rejoin.queue_starts is not None,
        log_begins_at=log.first_offset,
        log_ends_at=log.end_offset,
    )
    return checkpoint


def _log_recovery(recovery: Recovery, folder: Path, *, was_closed: bool) -> None:
    """Log in one line what the start changed, if anything."""
    found: dict[str, object] = {
        "folder": str(folder),
        "log_ends_at": recovery.end_offset,
        "replayed_messages": recovery.replayed,
        "consume_queues_rebuilt": recovery.rebuilt,
    }
    if recovery.gaps or recovery.lost_bytes:
        _log.error(
            "store recovered; its log is damaged, and intact messages behind the damage are kept",
            places=[f"{gap.path.name}:{gap.position}" for gap in recovery.gaps[:_MOST_PLACES]],
            gaps=len(recovery.gaps),
            damaged_bytes=recovery.lost_bytes,
            offsets_left_out=recovery.unwritten,
            reason=recovery.gaps[0].reason if recovery.gaps else recovery.reason,
            **found,
        )
    if recovery.dropped:
        _log.warning(
            "store recovered; the incomplete end of its log was dropped",
            file=str(recovery.dropped.path),
            offset=recovery.dropped.position,
            dropped_bytes=recovery.dropped.size,
            lost_bytes=recovery.lost_bytes,
            reason=recovery.reason,
            **found,
        )
    elif recovery.gaps:
        return
    elif recovery.replayed or not was_closed:
        _log.info("store recovered", **found)
