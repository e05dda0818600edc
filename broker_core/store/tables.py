"""JSON files that are read and replaced as a whole."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import orjson
import structlog

from broker_core.errors import StoreError
from broker_core.private_files import create, make_folder
from broker_core.store.files import sync_folder

_log = structlog.get_logger("store")


class JsonTable:
    """One JSON object in one file. A crash leaves the old content or the new, never a mixture.

    The previous content stays in ``NAME.bak``, in case the disk corrupts NAME.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._backup = path.with_name(path.name + ".bak")

    def load(self) -> dict[str, Any]:
        """Return the content, {} if never saved. Raise StoreError if neither it nor its backup is
        valid.
        """
        if (content := _read(self.path)) is not None:
            return content
        if (content := _read(self._backup)) is not None:
            _log.warning("table unreadable or missing, using its backup", table=str(self.path))
            return content
        if self.path.exists() or self._backup.exists():
            raise StoreError(
                f"table {self.path} and its backup contain no JSON object; restore one of them"
            )
        return {}

    def load_newest(self) -> dict[str, Any] | None:
        """Return the content as last saved, never its backup; None if it is missing or damaged."""
        return _read(self.path)

    def save(self, content: dict[str, Any]) -> None:
        """Replace the content durably. Blocks; on OSError the old content is kept."""
        self.save_bytes(orjson.dumps(content, option=orjson.OPT_INDENT_2))

    def save_bytes(self, content: bytes) -> None:
        """Replace the content as ``save`` does, with JSON encoded before (in another thread)."""
        make_folder(self.path.parent)
        fresh = self.path.with_name(self.path.name + ".new")
        try:
            with create(fresh) as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            fresh.unlink(missing_ok=True)  # on a full disk every byte counts
            raise
        if self.path.exists():
            # A link first: backup and table both exist at every moment.
            old = self.path.with_name(self.path.name + ".old")
            old.unlink(missing_ok=True)
            old.hardlink_to(self.path)
            old.replace(self._backup)
        fresh.replace(self.path)
        sync_folder(self.path.parent)

    def delete(self) -> None:
        """Delete the content durably. Raise OSError."""
        self._backup.unlink(missing_ok=True)  # first: it is older, and would be trusted alone
        self.path.unlink(missing_ok=True)
        sync_folder(self.path.parent)

    def delete_backup(self) -> None:
        """Delete the content before the last save, durably. Raise OSError."""
        self._backup.unlink(missing_ok=True)
        sync_folder(self.path.parent)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        content = orjson.loads(path.read_bytes())
    except (FileNotFoundError, orjson.JSONDecodeError):
        return None
    return content if isinstance(content, dict) else None
