"""Files and folders that only the account of this process and its group may read.

Modes are given explicitly, so a permissive umask does not widen them. A stricter umask holds.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

FOLDER_MODE, FILE_MODE = 0o750, 0o640
#: Permissions that none of them has: writing by the group, and anything by others.
_TOO_WIDE = 0o027


def make_folder(path: Path) -> None:
    """Create *path* and its missing parents. Raise OSError."""
    if path.is_dir():
        return
    make_folder(path.parent)
    try:
        path.mkdir(FOLDER_MODE, exist_ok=True)
    except FileExistsError as error:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path)) from error


def create(path: Path) -> BinaryIO:
    """Open *path* for writing, empty. Raise OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, FILE_MODE), "wb")


def write(path: Path, content: bytes) -> None:
    """Replace the content of *path*. Raise OSError."""
    with create(path) as file:
        file.write(content)


def forbid_others() -> None:
    """Let this process create no file that others may read, regardless of the mode given."""
    os.umask(os.umask(_TOO_WIDE) | _TOO_WIDE)


def tighten(folder: Path) -> list[Path]:
    """Remove the permissions of others from *folder* and everything in it; return the changed
    paths.

    Earlier versions created data folders with the umask of their start. Links are not followed. A
    path of another account stays as it is, and is returned as well. Raise OSError if *folder*
    cannot be listed.
    """
    return [path for path in (folder, *_below(folder)) if _tighten(path)]


def is_private(path: Path) -> bool:
    """Return whether only the account of *path* may write it, and others have no access."""
    return not path.lstat().st_mode & _TOO_WIDE


def _below(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            yield Path(parent, name)


def _tighten(path: Path) -> bool:
    try:
        if path.is_symlink() or is_private(path):
            return False
        path.chmod(path.stat().st_mode & 0o7777 & ~_TOO_WIDE)
    except FileNotFoundError:
        return False  # deleted meanwhile
    except PermissionError:
        return True
    return True
