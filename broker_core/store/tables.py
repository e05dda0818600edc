"""JSON files that are read and replaced as a whole.

1. Each contains a checksum as its last member: a changed digit is as invalid as a missing brace.
2. Each has a copy, ``NAME.bak``, with the same content, for a disk that corrupts one of them.
3. The file ``TABLES`` lists the tables that hold what nothing else does. One of these that is
   missing was lost: it does not count as empty.
"""

from __future__ import annotations

import os
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import structlog

from broker_core.errors import StoreError
from broker_core.private_files import create, make_folder
from broker_core.store.files import sync_folder

_CHECKSUM = "checksum"
_MARK = b'"checksum":"crc32:'
#: File with the names of the tables that hold what nothing else does.
TABLES = "TABLES"

_log = structlog.get_logger("store")


class JsonTable:
    """One JSON object in one file. A crash leaves the old content or the new, never a mixture."""

    def __init__(self, path: Path, *, is_derived: bool = False) -> None:
        """Use the file *path*. *is_derived*: what it holds can be made again if it is lost."""
        self.path = path
        self._backup = path.with_name(path.name + ".bak")
        self._list = None if is_derived else path.with_name(TABLES)
        self._known_listed = False
        #: True if the last ``load`` used the copy, whose content may be that of an earlier save.
        self.used_copy = False

    def load(self) -> dict[str, Any]:
        """Return the content, {} if never saved.

        Raises StoreError if neither it nor its copy is valid, or if both are missing although the
        table was saved.
        """
        self.used_copy = False
        if (content := _read(self.path)) is not None:
            return content
        if (content := _read(self._backup)) is not None:
            _log.warning("table unreadable or missing, using its copy", table=str(self.path))
            self.used_copy = True
            return content
        if self.path.exists() or self._backup.exists():
            raise StoreError(
                f"table {self.path} and its copy {self._backup.name} are damaged: restore one of"
                " them (after an edit, remove its member checksum)"
            )
        if self._is_listed():
            raise StoreError(
                f"table {self.path} and its copy are missing: restore one of them, or write {{}}"
                " into it to continue without its content"
            )
        return {}

    def repair(self) -> None:
        """Make the file and its copy alike again, if one of them is missing, damaged or older: a
        crash between the two writes, or damage, must not leave a table with one of them for long.

        Only for the process that writes the table, and where it does not matter later whether
        ``load`` used the copy. If the disk refuses, only with a warning.
        """
        files = (self.path, self._backup)
        found = [path.read_bytes() if path.exists() else b"" for path in files]
        whole = next((each for each in found if content_of(each) is not None), None)
        if whole is None:
            return
        for path, each in zip(files, found, strict=True):
            if each != whole:
                try:
                    _replace(path, whole)
                    sync_folder(path.parent)
                except OSError as error:
                    _log.warning("table not repaired", table=str(path), reason=str(error))

    def load_newest(self) -> dict[str, Any] | None:
        """Return the content as last saved, never its backup; None if it is missing or damaged."""
        return _read(self.path)

    def exists(self) -> bool:
        """Return whether the table or its copy is there."""
        return self.path.exists() or self._backup.exists()

    def save(self, content: dict[str, Any]) -> None:
        """Replace the content durably. Blocks; on OSError the old content is kept."""
        self.save_bytes(orjson.dumps(content, option=orjson.OPT_INDENT_2))

    def save_bytes(self, content: bytes) -> None:
        """Replace the content as ``save`` does, with JSON encoded before (in another thread)."""
        make_folder(self.path.parent)
        content = _with_checksum(content)
        _replace(self.path, content)
        sync_folder(self.path.parent)
        self._enter_list()
        try:
            _replace(self._backup, content)
        except OSError as error:
            # No copy is better than an old one.
            self._backup.unlink(missing_ok=True)
            _log.warning("table saved without its copy", table=str(self.path), reason=str(error))

    def delete(self) -> None:
        """Delete the content durably. Raise OSError."""
        if self._list is not None and self._is_listed():
            self._write_list({*_names(self._list)} - {self.path.name})
        self._known_listed = False
        self._backup.unlink(missing_ok=True)
        self.path.unlink(missing_ok=True)
        sync_folder(self.path.parent)

    def delete_backup(self) -> None:
        """Delete the copy, durably. Raise OSError."""
        self._backup.unlink(missing_ok=True)
        sync_folder(self.path.parent)

    def _is_listed(self) -> bool:
        return self._list is not None and self.path.name in _names(self._list)

    def _enter_list(self) -> None:
        """List the table, once its file is on disk: a crash in between must not count as a loss."""
        if self._list is None or self._known_listed:
            return
        if not self._is_listed():
            with suppress(OSError):  # on a full disk: at the next save
                self._write_list({*_names(self._list), self.path.name})
        self._known_listed = self._is_listed()

    def _write_list(self, names: set[str]) -> None:
        if self._list is not None and not names:
            self._list.unlink(missing_ok=True)
        elif self._list is not None:
            _replace(self._list, "".join(f"{name}\n" for name in sorted(names)).encode())


def _names(path: Path) -> list[str]:
    try:
        return path.read_bytes().decode("utf-8", "replace").split()
    except FileNotFoundError:
        return []


def _replace(path: Path, content: bytes) -> None:
    """Replace the content of *path*, which is on disk then. On OSError the old one is kept."""
    fresh = path.with_name(path.name + ".new")
    try:
        with create(fresh) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        fresh.unlink(missing_ok=True)  # on a full disk every byte counts
        raise
    fresh.replace(path)


def _with_checksum(content: bytes) -> bytes:
    body = content.rstrip()[:-1]
    comma = b"" if body.strip() == b"{" else b","
    return body + comma + _MARK + b'%08x"}\n' % zlib.crc32(body)


def _read(path: Path) -> dict[str, Any] | None:
    """Return the valid content of *path*, or None. Raise OSError if it cannot be read."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return None
    return content_of(raw)


def content_of(raw: bytes) -> dict[str, Any] | None:
    """Return the content of a table's file *raw*, or None if it is invalid.

    A file of an earlier version, or of a person, has no checksum.
    """
    try:
        content = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(content, dict):
        return None
    if content.pop(_CHECKSUM, None) is not None:
        at = raw.rfind(_MARK)
        if at < 0 or raw != _with_checksum(raw[:at].removesuffix(b",") + b"}"):
            return None
    return content
