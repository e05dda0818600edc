"""A JSON file with a journal beside it, so that a change costs as much as the change.

``NAME`` has the content at some time, and ``NAME.journal`` the changes since: one line each with a
CRC-32, a number, a depth and JSON. A change is a merge patch (RFC 7396) down to that depth: objects
are merged, null deletes; below, values are replaced. Depth 0 replaces the whole content.
``NAME.journal.bak`` has the lines before those.

1. A change counts once its line is on disk. A crash may leave a torn last line, which never
   counted.
2. A small table has no journal: it is replaced as a whole.
3. When the journal has outgrown the content, both are folded into a new ``NAME``, and the journal
   becomes ``NAME.journal.bak``. A crash in between only means that lines are applied again, in
   their order, with the same result; the same holds for the older content ``NAME.bak``.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import structlog

from broker_core.errors import StoreError
from broker_core.store.files import sync_folder, write_at
from broker_core.store.tables import JsonTable

#: Length up to which a table is replaced as a whole.
SMALL_BYTES = 64 * 1024
#: A journal below that length is not folded: folding would cost more than it saves.
LEAST_FOLDED_BYTES = 256 * 1024

_log = structlog.get_logger("store")


class _Line(NamedTuple):
    number: int
    depth: int
    change: dict[str, Any]


class JournaledTable:
    """One JSON object. Methods block; callers serialize those that write."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._table = JsonTable(path)
        self._journal = path.with_name(f"{path.name}.journal")
        self._earlier = path.with_name(f"{path.name}.journal.bak")
        self._end: int | None = None  # of the journal's valid lines; None: not read yet
        self._next = 1  # number of the next line
        self._fold_at = 0
        self._unlisted = False  # the folder on disk may lack the journal

    def load(self) -> dict[str, Any]:
        """Return the content, {} if never saved. Raise StoreError if it is damaged."""
        # In this order: a fold meanwhile moves lines from the journal towards the content.
        lines, end = _lines(self._journal, limit=self._end)
        earlier, _ = _lines(self._earlier)
        content = self._table.load()
        if self._end is None and self._journal.exists():
            unread = self._journal.stat().st_size - end
            if unread > 0:
                _log.warning(
                    "the last line of a journal is incomplete or damaged, and left out",
                    journal=str(self._journal),
                    position=end,
                    bytes=unread,
                )
        if not content and (lines or earlier) and not self.path.exists():
            raise StoreError(f"table {self.path} is missing beside its journal: restore it")
        self._end = end
        numbered = {each.number: each for each in (*earlier, *lines)}
        for number in sorted(numbered):
            line = numbered[number]
            content = merged(content, line.change, depth=line.depth)
        self._next = max(numbered, default=0) + 1
        return content

    def repair(self) -> None:
        """Make the file and its copy alike again, as ``JsonTable.repair`` does."""
        self._table.repair()

    def append(self, *patches: dict[str, Any], depth: int = 2) -> None:
        """Apply *patches* durably, in order, all or (after a crash) the first ones.

        *depth*: number of levels of objects that are merged. Raises OSError, then without effect.
        """
        self._append([(depth, orjson.dumps(patch)) for patch in patches])

    def save_bytes(self, content: bytes) -> None:
        """Replace the content durably by *content*, a JSON object. Raise OSError."""
        self._append([(0, content)])

    def fold(self) -> None:
        """Write the content as one file, as older versions of this program read it.

        Raises OSError; the content is then unchanged.
        """
        if self._length() == 0:
            return
        content = self.load()
        self._table.save_bytes(orjson.dumps(content))
        self._journal.replace(self._earlier)
        self._end = 0  # even if the next step fails: a line at the former end would follow a hole
        sync_folder(self.path.parent)

    def _append(self, changes: Sequence[tuple[int, bytes]]) -> None:
        start = self._length()
        # A new table is never begun by a journal: one beside its journal is missing.
        if start == 0 and self._is_small(sum(len(change) for _, change in changes)):
            self._replace(changes)
            return
        lines = bytearray()
        for number, (depth, change) in enumerate(changes, self._next):
            rest = b"%d %d %s" % (number, depth, change)
            lines += b"%08x %s\n" % (zlib.crc32(rest), rest)
        self._unlisted = self._unlisted or not self._journal.exists()
        descriptor = os.open(self._journal, os.O_RDWR | os.O_CREAT, 0o640)
        try:
            if os.fstat(descriptor).st_size > start:
                os.ftruncate(descriptor, start)  # a torn line, or one that could not be synced
            write_at(descriptor, bytes(lines), start)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if self._unlisted:
            sync_folder(self.path.parent)
            self._unlisted = False
        self._end, self._next = start + len(lines), self._next + len(changes)
        self._fold_if_long(self._end)

    def _is_small(self, more: int) -> bool:
        try:
            return self.path.stat().st_size + more <= SMALL_BYTES
        except FileNotFoundError:
            return True

    def _replace(self, changes: Sequence[tuple[int, bytes]]) -> None:
        content = self.load()
        for depth, change in changes:
            content = merged(content, orjson.loads(change), depth=depth)
        if self._earlier.exists():  # its lines are in the table, and older than what follows
            self._earlier.unlink()
            sync_folder(self.path.parent)
        self._table.save_bytes(orjson.dumps(content))

    def _length(self) -> int:
        """Return the length of the journal's valid lines; read it at the first use."""
        if self._end is None:
            self.load()
        assert self._end is not None, "known after a load"
        return self._end

    def _fold_if_long(self, length: int) -> None:
        content = self.path.stat().st_size if self.path.exists() else 0
        if length <= max(LEAST_FOLDED_BYTES, content, self._fold_at):
            return
        try:
            self.fold()
            self._fold_at = 0
        except OSError as error:  # the changes are on disk; it is tried again later
            self._fold_at = length * 2
            _log.warning("journal not folded", table=str(self.path), reason=str(error))


def merged(content: Any, patch: Any, *, depth: int) -> Any:
    """Return *content* after *patch*, which may change *content*; see above for *depth*."""
    if not isinstance(patch, dict) or depth == 0:
        return patch
    result = content if isinstance(content, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value, depth=depth - 1)
    return result


def versions_of(path: Path) -> str:
    """Return an identification of the state of the table at *path*; "" if it was never saved."""
    parts = []
    for name in (path, path.with_name(f"{path.name}.journal")):
        try:
            found = name.stat()
        except FileNotFoundError:
            continue
        parts.append(f"{found.st_ino}.{found.st_mtime_ns}.{found.st_size}")
    return "+".join(parts)


def damaged_lines(path: Path) -> list[int]:
    """Return the positions of damaged lines of a journal. Raise OSError."""
    position, found = 0, []
    for text in path.read_bytes().split(b"\n"):
        if text and _line_of(text) is None:
            found.append(position)
        position += len(text) + 1
    return found


def _lines(path: Path, *, limit: int | None = None) -> tuple[list[_Line], int]:
    """Return the lines of a journal, of its first *limit* bytes, and their end.

    Raises StoreError if a line is damaged that intact ones follow.
    """
    try:
        data = path.read_bytes()[:limit]
    except FileNotFoundError:
        return [], 0
    lines: list[_Line] = []
    position = end = damaged = 0
    for number, text in enumerate(data.split(b"\n")[:-1], 1):
        position += len(text) + 1
        if (line := _line_of(text)) is None:
            damaged = damaged or number  # from 1
        elif damaged:
            raise StoreError(
                f"journal {path} is damaged at line {damaged}, and intact lines follow: restore"
                " it, or delete that line to continue without its change"
            )
        else:
            lines.append(line)
            end = position
    return lines, end


def _line_of(text: bytes) -> _Line | None:
    try:
        crc, rest = text.split(b" ", 1)
        if int(crc, 16) != zlib.crc32(rest):
            return None
        number, depth, change = rest.split(b" ", 2)
        content = orjson.loads(change)
        return _Line(int(number), int(depth), content) if isinstance(content, dict) else None
    except ValueError:
        return None
