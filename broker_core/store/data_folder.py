"""The data folder: checks its owner and format version, and reserves it for one process."""

from __future__ import annotations

import errno
import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import structlog

from broker_core.errors import StoreError
from broker_core.private_files import FILE_MODE, is_private, make_folder, tighten, write
from broker_core.store.files import sync_file, sync_folder

_FORMAT_LINE = "orderlane-store 1"
#: File with the format line, and its copy for a disk that corrupts one of them.
_FORMAT, _FORMAT_COPY = "format", "format.bak"
#: Line of any version: such a folder is never taken for a damaged one of this version.
_ANY_FORMAT = re.compile(r"orderlane-store [0-9]+")
#: Subfolder for the values of a nameserver that runs beside the broker.
NAMESERVER = "nameserver"

_log = structlog.get_logger("store")


def require_folder(path: Path) -> None:
    """Raise StoreError unless *path* is a data folder of this version. Changes nothing."""
    if not path.is_dir():
        raise StoreError(f"{path} is not a folder: give the data folder of a broker")
    try:
        found = _format_of(path)
    except OSError as error:
        raise StoreError(
            f"{path} is not a data folder of a broker: its file format cannot be read:"
            f" {error.strerror}"
        ) from error
    if found != _FORMAT_LINE:
        raise StoreError(
            f"data folder {path} has format {found!r}, this version of orderlane reads"
            f" {_FORMAT_LINE!r}"
        )


def is_in_use(path: Path) -> bool:
    """Return whether a broker runs on the data folder *path*. Raise OSError."""
    try:
        descriptor = os.open(path / "lock", os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def hold(path: Path) -> int:
    """Reserve the folder *path* of a nameserver, creating it; return the descriptor to close.

    The lock is on the folder itself, so that no file of it counts as data. Raises StoreError if
    another process holds it, or it cannot be used.
    """
    try:
        make_folder(path)
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise
    except BlockingIOError:
        raise StoreError(
            f"folder {path} is in use by another nameserver; stop it or choose another folder"
        ) from None
    except OSError as error:
        raise StoreError(f"folder {path} cannot be used: {error.strerror}") from error
    return descriptor


class DataFolder:
    """A data folder reserved by this process from construction to ``close``.

    Raises StoreError, in one sentence, if it cannot be created, belongs to another program, has
    another version, or is in use. ``was_closed`` is False if its last user did not close it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            make_folder(path)
            sync_folder(path.parent)
            self._check_foreign()
            self._lock = _lock_of(path)
        except OSError as error:
            raise StoreError(f"data folder {path} cannot be used: {error.strerror}") from error
        try:
            self._check_format()
            self.was_closed = not self._abort.exists()
            self._abort.touch(FILE_MODE)
            self._keep_private()
            sync_folder(path)
        except BaseException as error:
            os.close(self._lock)
            if isinstance(error, OSError):
                raise StoreError(f"data folder {path} cannot be used: {error.strerror}") from error
            raise

    @property
    def _abort(self) -> Path:
        # Exists while a process runs, as in RocketMQ; found at the start, it means a crash.
        return self.path / "abort"

    def close(self) -> None:
        """Release the folder after everything was written."""
        self._abort.unlink(missing_ok=True)
        self.release()

    def release(self) -> None:
        """Release the folder as it is; the next user finds it not closed."""
        os.close(self._lock)

    def _check_foreign(self) -> None:
        names = {entry.name for entry in self.path.iterdir()}
        # A new volume has lost+found; a start that failed leaves the others.
        of_no_data = {"lock", "lost+found", NAMESERVER, "format.new", "format.bak.new"}
        if names - of_no_data and not names & {_FORMAT, _FORMAT_COPY}:
            raise StoreError(
                f"data folder {self.path} contains files of another program"
                f" ({', '.join(sorted(names)[:3])}); choose an empty folder or one of orderlane"
            )

    def _keep_private(self) -> None:
        """Tighten what an earlier version left readable for other accounts."""
        changed = tighten(self.path)
        if changed:
            still = [path for path in changed if not is_private(path)]
            _log.warning(
                "the data folder was readable for other accounts: permissions removed",
                folder=str(self.path),
                paths=len(changed) - len(still),
                **({"still_readable": [str(path) for path in still[:3]]} if still else {}),
            )

    def _check_format(self) -> None:
        if not (self.path / _FORMAT).exists() and not _has_copy(self.path):
            _write_format(self.path)
            return
        found = _format_of(self.path)
        if found != _FORMAT_LINE:
            hint = f", or, if the file was damaged, replace it by {_FORMAT_COPY}"
            raise StoreError(
                f"data folder {self.path} has format {found!r}, this version of orderlane reads"
                f" {_FORMAT_LINE!r}; use the version that wrote it or choose another folder"
                f"{hint if _has_copy(self.path) else ''}"
            )
        is_intact = _read_format(self.path) == _FORMAT_LINE
        if not is_intact:
            _log.warning("format file damaged or missing, using its copy", folder=str(self.path))
        if not is_intact or not _has_copy(self.path):
            _write_format(self.path)


def _format_of(path: Path) -> str:
    """Return the format line of a data folder: that of the copy if the file is missing or is no
    such line. Raise OSError.
    """
    found = _read_format(path)
    if found is not None and _ANY_FORMAT.fullmatch(found):
        return found
    if _has_copy(path):
        return _FORMAT_LINE
    if found is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    return found


def _read_format(path: Path) -> str | None:
    with suppress(FileNotFoundError):
        return (path / _FORMAT).read_bytes()[:100].decode("utf-8", "replace").strip()
    return None


def _has_copy(path: Path) -> bool:
    """Return whether the copy of the format file is that of this version."""
    with suppress(OSError):
        return (path / _FORMAT_COPY).read_bytes().strip() == _FORMAT_LINE.encode()
    return False


def _lock_of(path: Path) -> int:
    """Reserve *path*; return the descriptor that holds the lock. Raise StoreError, OSError."""
    descriptor = os.open(path / "lock", os.O_RDWR | os.O_CREAT, FILE_MODE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(descriptor)
        raise StoreError(
            f"data folder {path} is in use by another broker (process {owner});"
            " stop it or choose another folder"
        ) from None
    with suppress(OSError):  # a full disk does not prevent a broker from starting
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor


def _write_format(path: Path) -> None:
    for name in (_FORMAT, _FORMAT_COPY):
        fresh = path / f"{name}.new"
        write(fresh, f"{_FORMAT_LINE}\n".encode())
        sync_file(fresh)
        fresh.replace(path / name)  # an empty file would count as another version


@contextmanager
def new_data_folder(path: Path) -> Iterator[None]:
    """Reserve *path* for data that the block writes; complete it at the end of the block.

    Without an error, the folder is then one of a broker that was closed. Raises StoreError if
    *path* has data or is in use.
    """
    try:
        make_folder(path)
        sync_folder(path.parent)
        lock = _lock_of(path)
    except OSError as error:
        raise StoreError(f"data folder {path} cannot be used: {error.strerror}") from error
    try:
        found = {entry.name for entry in path.iterdir()} - {"lock", "lost+found"}
        if found:
            raise StoreError(
                f"data folder {path} is not empty ({', '.join(sorted(found)[:3])}): choose a new"
                " folder, or move its contents away"
            )
        yield
        _write_format(path)
        sync_folder(path)
    finally:
        os.close(lock)
