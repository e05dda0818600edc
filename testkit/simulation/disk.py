"""A disk that loses data: after a power loss, unsynced writes are gone, torn, or partly present.

The files are real ones below a temporary folder, best on a memory file system. While installed, the
calls of ``os`` that change files keep undo information; a sync of a file or folder makes its
changes final. Other calls and other files pass through.
"""

from __future__ import annotations

import builtins
import errno
import fcntl
import io
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from broker_core.clock import wall_ms
from testkit.simulation.process import PROCESS, SimulatedProcess

_PAGE_BYTES = 4096
_real = {
    name: getattr(os, name)
    for name in (
        *("open", "close", "pwrite", "pread", "fdatasync", "fsync", "ftruncate", "truncate"),
        *("posix_fallocate", "rename", "replace", "unlink", "link", "fstat", "stat"),
    )
}
_real_open = io.open


class StaleDescriptor(Exception):
    """A process writes to a file that was removed, or uses one whose name another file has now."""


@dataclass(slots=True)
class _Write:
    """A write. *old* was at *position* before; the file then had *size* bytes."""

    position: int
    length: int
    old: bytes
    size: int


@dataclass(slots=True)
class _File:
    """Unsynced changes of one inode."""

    path: str
    writes: list[_Write] = field(default_factory=list)
    never_synced: bool = False


class Disk:
    """The disk below *folder*; its subfolders are the disks of hosts, which lose data
    independently.
    """

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.folder = folder
        self._root = f"{folder}{os.sep}"
        self._stash = folder / ".stash"
        self._stash.mkdir(parents=True)
        self._stashed = 0
        self._chance = chance
        self._descriptors: dict[int, tuple[int, SimulatedProcess | None, str]] = {}
        self._newest: set[int] = set()  # descriptors of files found under their names
        self._files: dict[int, _File] = {}  # by inode
        self._entries: dict[str, list[tuple[str, Callable[[], None]]]] = {}  # by folder: undo steps
        self._full: set[str] = set()
        self._failing: set[str] = set()  # hosts whose syncs fail
        self._awaited: dict[str, tuple[bool, Callable[[], None]]] = {}  # by host
        self._unsynced: set[str] = set()  # hosts that lose their power in this pass of the loop

    # ---- faults ---------------------------------------------------------------------------------

    def fill(self, host: Path) -> None:
        """Fail all writes below *host* until ``free``."""
        self._full.add(f"{host}{os.sep}")

    def free(self, host: Path) -> None:
        """Allow writes again."""
        self._full.discard(f"{host}{os.sep}")

    def fail_syncs(self, host: Path) -> None:
        """Fail all syncs below *host* until ``repair``; what is written stays in its files."""
        self._failing.add(f"{host}{os.sep}")

    def repair(self, host: Path) -> None:
        """Let syncs succeed again."""
        self._failing.discard(f"{host}{os.sep}")

    def when_writing(self, host: Path, call: Callable[[], None], *, new_file: bool = False) -> None:
        """Call *call* once, at the next write below *host*, or at the next *new_file*.

        From then on files are not synced, so a power loss in the same pass of the loop meets an
        unfinished write.
        """
        self._awaited[f"{host}{os.sep}"] = (new_file, call)

    def stop_waiting(self, host: Path) -> None:
        """Undo ``when_writing``: the power stays on."""
        self._awaited.pop(f"{host}{os.sep}", None)
        self._unsynced.discard(f"{host}{os.sep}")

    def _notice(self, path: str, *, new_file: bool) -> None:
        for host, (wants_new_file, call) in list(self._awaited.items()):
            if path.startswith(host) and new_file >= wants_new_file:
                del self._awaited[host]
                self._unsynced.add(host)
                call()

    def flip_byte(self, host: Path, *, below: str = "*") -> tuple[str, int] | None:
        """Change a byte of a file below *host* that matches the pattern *below*, as a bad disk
        does.

        Zeros at the end of a file are spared. Returns path and position, None if there is no file.
        """
        files = sorted(path for path in host.rglob(below) if path.is_file())
        sizes = {path: len(path.read_bytes().rstrip(b"\0")) for path in files}
        if not (full := [path for path in files if sizes[path]]):
            return None
        path = self._chance.choice(full)
        position = self._chance.randrange(sizes[path])
        self.flip_at(path, position)
        return str(path), position

    def flip_at(self, path: Path, position: int) -> None:
        """Change the byte at *position* of the file *path*, as a bad disk does."""
        (old,) = self.damage(path, position, b"\0")
        self.damage(path, position, bytes((old ^ self._chance.randrange(1, 256),)))

    def damage(self, path: Path, position: int, content: bytes) -> bytes:
        """Replace bytes inside of a file, unnoticed by all processes; return the former ones."""
        descriptor = _real["open"](path, os.O_RDWR)
        try:
            former: bytes = _real["pread"](descriptor, len(content), position)
            _real["pwrite"](descriptor, content[: len(former)], position)
        finally:
            _real["close"](descriptor)
        return former

    def forget(self, host: Path) -> None:
        """Forget unsynced changes below *host*, whose files were replaced and synced."""
        self._newest.clear()
        prefix = f"{host}{os.sep}"
        for inode in [each for each, file in self._files.items() if file.path.startswith(prefix)]:
            del self._files[inode]
        for folder in [each for each in self._entries if f"{each}{os.sep}".startswith(prefix)]:
            del self._entries[folder]

    def release(self, process: SimulatedProcess) -> None:
        """Free the file locks of *process*, which is dead."""
        for descriptor, (_, owner, _) in self._descriptors.items():
            if owner is process:
                with suppress(OSError):
                    fcntl.flock(descriptor, fcntl.LOCK_UN)

    def lose_power(self, host: Path) -> None:
        """Undo unsynced changes below *host*, or a part of them."""
        prefix = f"{host}{os.sep}"
        self.stop_waiting(host)
        self._newest.clear()
        for inode in sorted(self._files, key=lambda each: self._files[each].path):
            file = self._files[inode]
            if file.path.startswith(prefix):
                self._lose_writes(file)
                file.writes.clear()
        for folder in sorted(self._entries):
            if f"{folder}{os.sep}".startswith(prefix):
                steps = self._entries.pop(folder)
                for _, undo in reversed(steps[self._chance.randint(0, len(steps)) :]):
                    with suppress(FileNotFoundError, FileExistsError):
                        undo()

    def _lose_writes(self, file: _File) -> None:
        if not file.writes or not os.path.exists(file.path):
            return
        kept = self._chance.randint(0, len(file.writes))
        descriptor = _real["open"](file.path, os.O_RDWR)
        try:
            for number in range(len(file.writes) - 1, -1, -1):
                write = file.writes[number]
                if number > kept or (number == kept and not write.length):
                    self._undo(descriptor, write, 0)
                elif number == kept:
                    self._undo(descriptor, write, self._chance.randint(0, write.length))
        finally:
            _real["close"](descriptor)

    def _undo(self, descriptor: int, write: _Write, from_byte: int) -> None:
        """Undo *write* except for its first *from_byte* bytes."""
        if from_byte < len(write.old):
            _real["pwrite"](descriptor, write.old[from_byte:], write.position + from_byte)
        size = _real["fstat"](descriptor).st_size
        least = max(write.size, write.position + from_byte if from_byte else 0)
        if size > least or (not write.length and size != write.size):
            _real["ftruncate"](descriptor, write.size if not from_byte else least)

    # ---- calls of the system --------------------------------------------------------------------

    @contextmanager
    def install(self) -> Iterator[None]:
        """Redirect the calls of ``os`` to this disk."""
        ours: dict[str, Any] = {
            "open": self._open,
            "close": self._close,
            "pwrite": self._pwrite,
            "pread": self._pread,
            "fdatasync": self._sync,
            "fsync": self._sync,
            "ftruncate": self._ftruncate,
            "truncate": self._truncate,
            "posix_fallocate": self._allocate,
            "rename": self._rename,
            "replace": self._rename,
            "unlink": self._unlink,
            "link": self._link,
        }
        for name, function in ours.items():
            setattr(os, name, function)
        io.open = builtins.open = self._open_file  # type: ignore[assignment]
        try:
            yield
        finally:
            for name in ours:
                setattr(os, name, _real[name])
            io.open = builtins.open = _real_open  # type: ignore[assignment]
            for descriptor in self._descriptors:  # killed processes closed no files
                _real["close"](descriptor)
            self._descriptors.clear()
            self._newest.clear()

    def _is_ours(self, path: Any) -> bool:
        return isinstance(path, str | os.PathLike) and os.fspath(path).startswith(self._root)

    def _open(self, path: Any, flags: int, mode: int = 0o777, **more: Any) -> int:
        if more or not self._is_ours(path):
            return _real["open"](path, flags, mode, **more)
        text = os.fspath(path)
        fresh = flags & os.O_CREAT and not os.path.exists(text)
        if fresh:
            self._require_room(text)
        descriptor = _real["open"](path, flags, mode)
        inode = _real["fstat"](descriptor).st_ino
        self._descriptors[descriptor] = (inode, PROCESS.get(), text)
        if fresh:
            self._entered(text, lambda: _real["unlink"](text))
            self._files[inode] = _File(text)
            self._notice(text, new_file=True)
        return descriptor

    def _open_file(self, file: Any, mode: str = "r", *args: Any, **named: Any) -> Any:
        if isinstance(file, int) and (known := self._descriptors.pop(file, None)) is not None:
            self._newest.discard(file)
            # The file object closes it, without ``os.close``.
            inode, _, text = known
            self._files.setdefault(inode, _File(text)).never_synced = True
            return _real_open(file, mode, *args, **named)
        if self._is_ours(file) and set(mode) & set("wax+"):
            text = os.fspath(file)
            self._require_room(text)
            fresh = not os.path.exists(text)
            opened = _real_open(file, mode, *args, **named)
            descriptor = opened.fileno()
            inode = _real["fstat"](descriptor).st_ino
            self._files.setdefault(inode, _File(text)).never_synced = True
            if fresh:
                self._entered(text, lambda: _real["unlink"](text))
            return opened
        return _real_open(file, mode, *args, **named)

    def _close(self, descriptor: int) -> None:
        self._descriptors.pop(descriptor, None)
        self._newest.discard(descriptor)
        _real["close"](descriptor)

    def _pwrite(self, descriptor: int, data: Any, position: int) -> int:
        known = self._descriptors.get(descriptor)
        if known is not None:
            inode, _, path = known
            if descriptor not in self._newest:
                self._require_newest(descriptor, writing=True)
            self._require_room(path)
            self._remember(descriptor, inode, path, position, len(data))
            if self._awaited:
                self._notice(path, new_file=False)
        return _real["pwrite"](descriptor, data, position)

    def _pread(self, descriptor: int, size: int, position: int) -> bytes:
        if descriptor not in self._newest and descriptor in self._descriptors:
            self._require_newest(descriptor)
        content: bytes = _real["pread"](descriptor, size, position)
        return content

    def _require_newest(self, descriptor: int, *, writing: bool = False) -> None:
        """Raise StaleDescriptor if another file has the name of this one by now or, when *writing*,
        none has it, so that what is written is nowhere.
        """
        inode, _, path = self._descriptors[descriptor]
        try:
            newest = _real["stat"](path).st_ino
        except FileNotFoundError:
            if writing:
                raise StaleDescriptor(f"{path} was removed, and is still written to") from None
            return  # deleted while it is read, as by retention
        if newest != inode:
            raise StaleDescriptor(f"{path} was replaced, and the former file is still in use")
        self._newest.add(descriptor)  # until a name changes

    def _remember(self, descriptor: int, inode: int, path: str, position: int, length: int) -> None:
        file = self._files.get(inode)
        if file is None:
            file = self._files[inode] = _File(path)
        size = _real["fstat"](descriptor).st_size
        old = _real["pread"](descriptor, length, position) if position < size else b""
        file.writes.append(_Write(position, length, old, size))

    def _sync(self, descriptor: int) -> None:
        known = self._descriptors.get(descriptor)
        if known is not None:
            inode, _, path = known
            self._require_room(path)
            if any(path.startswith(host) for host in self._failing):
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)
            if os.path.isdir(path):
                self._entries.pop(path, None)
            elif any(path.startswith(host) for host in self._unsynced):
                pass
            elif (file := self._files.get(inode)) is not None:
                if file.writes:
                    now_ns = wall_ms() * 1_000_000  # by the clock of the host
                    os.utime(descriptor, ns=(now_ns, now_ns))
                file.writes.clear()
                file.never_synced = False
            return
        if isinstance(descriptor, int):
            inode = _real["fstat"](descriptor).st_ino
            if (file := self._files.get(inode)) is not None:
                self._require_room(file.path)
                file.never_synced = False
                return
        _real["fsync"](descriptor)

    def _ftruncate(self, descriptor: int, length: int) -> None:
        if (known := self._descriptors.get(descriptor)) is not None:
            self._resized(descriptor, known[0], known[2], length)
        _real["ftruncate"](descriptor, length)

    def _truncate(self, path: Any, length: int) -> None:
        if isinstance(path, int):
            self._ftruncate(path, length)
        elif self._is_ours(path):
            descriptor = self._open(path, os.O_RDWR)
            try:
                self._ftruncate(descriptor, length)
            finally:
                self._close(descriptor)
        else:
            _real["truncate"](path, length)

    def _resized(self, descriptor: int, inode: int, path: str, length: int) -> None:
        file = self._files.setdefault(inode, _File(path))
        size = _real["fstat"](descriptor).st_size
        old = b""
        if length < size:
            old = _real["pread"](descriptor, size - length, length).rstrip(b"\0")
        file.writes.append(_Write(min(length, size), 0, old, size))

    def _allocate(self, descriptor: int, offset: int, length: int) -> None:
        known = self._descriptors.get(descriptor)
        if known is None:
            _real["posix_fallocate"](descriptor, offset, length)
            return
        self._require_room(known[2])
        size = _real["fstat"](descriptor).st_size
        if offset + length > size:
            self._resized(descriptor, known[0], known[2], offset + length)
            _real["ftruncate"](descriptor, offset + length)

    def _rename(self, source: Any, target: Any, **more: Any) -> None:
        if not self._is_ours(source):
            _real["rename"](source, target, **more)
            return
        self._newest.clear()
        old, new = os.fspath(source), os.fspath(target)
        kept = None if os.path.isdir(old) else self._keep(new)
        if not os.path.isdir(old):
            inode = _real["stat"](old).st_ino
            if (file := self._files.get(inode)) is not None:
                file.path = new
                if file.never_synced:
                    self._tear(old, file)
        _real["rename"](source, target)

        def undo() -> None:
            _real["rename"](new, old)
            if kept is not None:
                _real["rename"](kept, new)

        self._entered(new, undo)

    def _tear(self, path: str, file: _File) -> None:
        """Tear a file whose content was never synced: a power loss may leave any part of it."""
        content = Path(path).read_bytes()
        file.writes.append(_Write(0, len(content), b"", 0))

    def _unlink(self, path: Any, **more: Any) -> None:
        self._newest.clear()
        if more or not self._is_ours(path):
            _real["unlink"](path, **more)
            return
        text = os.fspath(path)
        kept = self._keep(text)
        _real["unlink"](path)
        if kept is not None:
            self._entered(text, lambda: _real["rename"](kept, text))

    def _link(self, source: Any, target: Any, **more: Any) -> None:
        _real["link"](source, target, **more)
        if self._is_ours(target):
            text = os.fspath(target)
            self._entered(text, lambda: _real["unlink"](text))

    def _keep(self, path: str) -> str | None:
        """Link the file at *path* under another name, so that it can be restored."""
        if not os.path.isfile(path):
            return None
        self._stashed += 1
        kept = str(self._stash / str(self._stashed))
        _real["link"](path, kept)
        return kept

    def _entered(self, path: str, undo: Callable[[], None]) -> None:
        folder = os.path.dirname(path)
        steps = self._entries.setdefault(folder, [])
        steps.append((path, undo))
        if len(steps) > 200:  # no sync of this folder: the system writes it after a while
            del steps[:100]

    def _require_room(self, path: str) -> None:
        if self._full and any(path.startswith(host) for host in self._full):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
